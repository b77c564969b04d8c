// 16 lanes in plain C++: the meaning of the vector vocabulary, and the path for any machine. Also aarch64.
// avx2.h and avx512.h give the same names and, lane for lane, the same bits.
#pragma once

#include <cstdint>
#include <cstring>

#include "../half.h"

#define TS_INLINE static inline __attribute__((always_inline))
#define TS_METHOD inline __attribute__((always_inline))

namespace twostroke {
namespace TS_ISA {

struct F32x16 { float v[16]; };
struct I32x16 { int32_t v[16]; };
struct Bytes64 { uint8_t v[64]; };  // a quad: 4 columns of 16 lanes

#define TS_EACH for (int i = 0; i < 16; ++i)

constexpr int kMostRows = 4;  // activation rows multiplied together
constexpr int kRowsAtOnce = 1;  // of those, in registers
constexpr bool kFewTiles = true;  // only that many, and one
constexpr bool kPairs = false;  // two groups at a time, where registers hold them
constexpr int kLeastPaired = 1;

TS_INLINE F32x16 f_set(float x) { F32x16 r; TS_EACH r.v[i] = x; return r; }
TS_INLINE F32x16 f_load(const float* p) { F32x16 r; std::memcpy(r.v, p, 64); return r; }
TS_INLINE void f_store(float* p, F32x16 a) { std::memcpy(p, a.v, 64); }
TS_INLINE F32x16 f_load_n(const float* p, int n) { F32x16 r; TS_EACH r.v[i] = i < n ? p[i] : 0.0f; return r; }
TS_INLINE void f_store_n(float* p, F32x16 a, int n) { for (int i = 0; i < n && i < 16; ++i) p[i] = a.v[i]; }
TS_INLINE F32x16 f_add(F32x16 a, F32x16 b) { TS_EACH a.v[i] += b.v[i]; return a; }
TS_INLINE F32x16 f_sub(F32x16 a, F32x16 b) { TS_EACH a.v[i] -= b.v[i]; return a; }
TS_INLINE F32x16 f_mul(F32x16 a, F32x16 b) { TS_EACH a.v[i] *= b.v[i]; return a; }
TS_INLINE F32x16 f_div(F32x16 a, F32x16 b) { TS_EACH a.v[i] /= b.v[i]; return a; }
TS_INLINE F32x16 f_fma(F32x16 a, F32x16 b, F32x16 c) {
    TS_EACH a.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
    return a;
}
TS_INLINE F32x16 f_max(F32x16 a, F32x16 b) { TS_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
TS_INLINE F32x16 f_min(F32x16 a, F32x16 b) { TS_EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return a; }
TS_INLINE F32x16 f_abs(F32x16 a) { TS_EACH a.v[i] = bits_to_float(float_to_bits(a.v[i]) & 0x7fffffffu); return a; }
// Lanes below n keep a, the others take fill.
TS_INLINE F32x16 f_keep(F32x16 a, int n, F32x16 fill) { TS_EACH if (i >= n) a.v[i] = fill.v[i]; return a; }
// Zero where x < limit, else a.
TS_INLINE F32x16 f_zero_below(F32x16 a, F32x16 x, F32x16 limit) {
    TS_EACH if (x.v[i] < limit.v[i]) a.v[i] = 0.0f;
    return a;
}
// a where x < y, else b.
TS_INLINE F32x16 f_where_less(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
    TS_EACH if (x.v[i] < y.v[i]) b.v[i] = a.v[i];
    return b;
}
// Sums and maxima fold halves: 16, 8, 4, 2, 1.
TS_INLINE float f_sum(F32x16 a) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
    return a.v[0];
}
TS_INLINE float f_hmax(F32x16 a) {
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) a.v[i] = a.v[i] > a.v[i + half] ? a.v[i] : a.v[i + half];
    return a.v[0];
}

TS_INLINE F32x16 f_load_f16(const uint16_t* p) { F32x16 r; TS_EACH r.v[i] = f16_to_f32(p[i]); return r; }
TS_INLINE F32x16 f_load_bf16(const uint16_t* p) { F32x16 r; TS_EACH r.v[i] = bf16_to_f32(p[i]); return r; }
TS_INLINE void f_store_f16(uint16_t* p, F32x16 a) { TS_EACH p[i] = f32_to_f16_saturated(a.v[i]); }

TS_INLINE I32x16 i_set(int32_t x) { I32x16 r; TS_EACH r.v[i] = x; return r; }
TS_INLINE I32x16 i_load(const void* p) { I32x16 r; std::memcpy(r.v, p, 64); return r; }
TS_INLINE void i_store(int32_t* p, I32x16 a) { std::memcpy(p, a.v, 64); }
TS_INLINE I32x16 i_load_i8(const int8_t* p) { I32x16 r; TS_EACH r.v[i] = p[i]; return r; }
TS_INLINE I32x16 i_load_u8(const uint8_t* p) { I32x16 r; TS_EACH r.v[i] = p[i]; return r; }
TS_INLINE I32x16 i_load_u16(const uint16_t* p) { I32x16 r; TS_EACH r.v[i] = p[i]; return r; }
TS_INLINE I32x16 i_add(I32x16 a, I32x16 b) { TS_EACH a.v[i] += b.v[i]; return a; }
TS_INLINE I32x16 i_sub(I32x16 a, I32x16 b) { TS_EACH a.v[i] -= b.v[i]; return a; }
TS_INLINE I32x16 i_and(I32x16 a, int32_t m) { TS_EACH a.v[i] &= m; return a; }
TS_INLINE I32x16 i_or(I32x16 a, I32x16 b) { TS_EACH a.v[i] |= b.v[i]; return a; }
TS_INLINE I32x16 i_shr(I32x16 a, int s) {
    TS_EACH a.v[i] = static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> s);
    return a;
}
TS_INLINE I32x16 i_shl(I32x16 a, int s) {
    TS_EACH a.v[i] = static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) << s);
    return a;
}
TS_INLINE I32x16 i_bits(F32x16 a) { I32x16 r; std::memcpy(r.v, a.v, 64); return r; }
TS_INLINE F32x16 bits_f32(I32x16 a) { F32x16 r; std::memcpy(r.v, a.v, 64); return r; }
TS_INLINE F32x16 to_f32(I32x16 a) { F32x16 r; TS_EACH r.v[i] = static_cast<float>(a.v[i]); return r; }
// Round to nearest even; |a| must be below 2^22.
TS_INLINE I32x16 to_i32(F32x16 a) {
    I32x16 r;
    TS_EACH r.v[i] = static_cast<int32_t>(float_to_bits(a.v[i] + 0x1.8p23f) - 0x4b400000u);
    return r;
}
// a * 2^n by its exponent bits; both must stay normal.
TS_INLINE F32x16 f_scale2(F32x16 a, I32x16 n) {
    TS_EACH a.v[i] = bits_to_float(float_to_bits(a.v[i]) + (static_cast<uint32_t>(n.v[i]) << 23));
    return a;
}

TS_INLINE Bytes64 b_load(const uint8_t* p) { Bytes64 r; std::memcpy(r.v, p, 64); return r; }
TS_INLINE void b_store(uint8_t* p, Bytes64 a) { std::memcpy(p, a.v, 64); }
TS_INLINE Bytes64 b_low4(Bytes64 a) { for (auto& x : a.v) x &= 15; return a; }
TS_INLINE Bytes64 b_high4(Bytes64 a) { for (auto& x : a.v) x >>= 4; return a; }
// Bits 2g, 2g + 1 of every byte, moved to bits `to`, `to` + 1.
template <int g, int to>
TS_INLINE Bytes64 b_pair(Bytes64 a) {
    for (auto& x : a.v) x = static_cast<uint8_t>(((x >> (2 * g)) & 3) << to);
    return a;
}
// Bit g of every byte, moved to bit `to`.
template <int g, int to>
TS_INLINE Bytes64 b_bit(Bytes64 a) {
    for (auto& x : a.v) x = static_cast<uint8_t>(((x >> g) & 1) << to);
    return a;
}
// table[x] for every byte x < 16.
TS_INLINE Bytes64 b_lookup(const uint8_t* table, Bytes64 a) {
    for (auto& x : a.v) x = table[x];
    return a;
}
TS_INLINE Bytes64 b_or(Bytes64 a, Bytes64 b) { for (int i = 0; i < 64; ++i) a.v[i] |= b.v[i]; return a; }

// A quad as it is multiplied: what is made of it once for all rows.
using Factors = Bytes64;
TS_INLINE const Factors& factors(const Bytes64& quads) { return quads; }

// Exact integer dot products: lane += sum over the quad's 4 columns of weight (0..255) * activation (16 bit).
// An activation quad is 8 bytes, in whatever order this ISA's store_quads gives them.
struct Dot { int32_t v[16]; };

TS_INLINE Dot dot_zero() { Dot d; TS_EACH d.v[i] = 0; return d; }
TS_INLINE void dot_quad(Dot& d, const Factors& w, const uint8_t* x) {
    int16_t q[4];
    std::memcpy(q, x, 8);
    TS_EACH {
        const uint8_t* b = w.v + 4 * i;
        d.v[i] += b[0] * q[0] + b[1] * q[1] + b[2] * q[2] + b[3] * q[3];
    }
}
TS_INLINE I32x16 dot_sum(const Dot& d) { I32x16 r; std::memcpy(r.v, d.v, 64); return r; }

// 16 consecutive activations as 4 quads.
TS_INLINE void store_quads(uint8_t* p, I32x16 q) {
    int16_t narrow[16];
    TS_EACH narrow[i] = static_cast<int16_t>(q.v[i]);
    std::memcpy(p, narrow, 32);
}
TS_INLINE int32_t i_sum(I32x16 a) { int32_t s = 0; TS_EACH s += a.v[i]; return s; }

TS_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }
TS_INLINE void prefetch_l2(const void* p) { __builtin_prefetch(p, 0, 2); }

#undef TS_EACH

}  // namespace TS_ISA
}  // namespace twostroke
