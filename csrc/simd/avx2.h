// 16 lanes as two 256-bit registers; dot products by 16-bit multiply-add on even and odd columns.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "../half.h"

#define TS_INLINE static inline __attribute__((always_inline))
#define TS_METHOD inline __attribute__((always_inline))

namespace twostroke {
namespace TS_ISA {

struct F32x16 { __m256 a, b; };
struct I32x16 { __m256i a, b; };
struct Bytes64 { __m256i a, b; };

#define TS_BOTH(T, f, x, y) T{f((x).a, (y).a), f((x).b, (y).b)}

TS_INLINE __m256i lane_mask(int n, int first) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

constexpr int kMostRows = 4;  // activation rows multiplied together
constexpr int kRowsAtOnce = 4;  // of those, in registers
constexpr bool kFewTiles = false;  // only that many, and one
constexpr bool kPairs = false;  // two groups at a time, where registers hold them
constexpr int kLeastPaired = 1;

TS_INLINE F32x16 f_set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
TS_INLINE F32x16 f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
TS_INLINE void f_store(float* p, F32x16 x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
TS_INLINE F32x16 f_load_n(const float* p, int n) {
    return {_mm256_maskload_ps(p, lane_mask(n, 0)), _mm256_maskload_ps(p + 8, lane_mask(n, 8))};
}
TS_INLINE void f_store_n(float* p, F32x16 x, int n) {
    _mm256_maskstore_ps(p, lane_mask(n, 0), x.a);
    _mm256_maskstore_ps(p + 8, lane_mask(n, 8), x.b);
}
TS_INLINE F32x16 f_add(F32x16 x, F32x16 y) { return TS_BOTH(F32x16, _mm256_add_ps, x, y); }
TS_INLINE F32x16 f_sub(F32x16 x, F32x16 y) { return TS_BOTH(F32x16, _mm256_sub_ps, x, y); }
TS_INLINE F32x16 f_mul(F32x16 x, F32x16 y) { return TS_BOTH(F32x16, _mm256_mul_ps, x, y); }
TS_INLINE F32x16 f_div(F32x16 x, F32x16 y) { return TS_BOTH(F32x16, _mm256_div_ps, x, y); }
TS_INLINE F32x16 f_fma(F32x16 x, F32x16 y, F32x16 z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
TS_INLINE F32x16 f_max(F32x16 x, F32x16 y) { return TS_BOTH(F32x16, _mm256_max_ps, x, y); }
TS_INLINE F32x16 f_min(F32x16 x, F32x16 y) { return TS_BOTH(F32x16, _mm256_min_ps, x, y); }
TS_INLINE F32x16 f_abs(F32x16 x) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return {_mm256_and_ps(x.a, mask), _mm256_and_ps(x.b, mask)};
}
TS_INLINE F32x16 f_keep(F32x16 x, int n, F32x16 fill) {
    return {_mm256_blendv_ps(fill.a, x.a, _mm256_castsi256_ps(lane_mask(n, 0))),
            _mm256_blendv_ps(fill.b, x.b, _mm256_castsi256_ps(lane_mask(n, 8)))};
}
TS_INLINE F32x16 f_zero_below(F32x16 v, F32x16 x, F32x16 limit) {
    return {_mm256_and_ps(v.a, _mm256_cmp_ps(x.a, limit.a, _CMP_NLT_UQ)),
            _mm256_and_ps(v.b, _mm256_cmp_ps(x.b, limit.b, _CMP_NLT_UQ))};
}
TS_INLINE F32x16 f_where_less(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
    return {_mm256_blendv_ps(b.a, a.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
            _mm256_blendv_ps(b.b, a.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
TS_INLINE float f_sum(F32x16 x) {
    const __m256 h8 = _mm256_add_ps(x.a, x.b);
    const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
    const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
    return _mm_cvtss_f32(_mm_add_ss(h2, _mm_shuffle_ps(h2, h2, 1)));
}
TS_INLINE float f_hmax(F32x16 x) {
    const __m256 h8 = _mm256_max_ps(x.a, x.b);
    const __m128 h4 = _mm_max_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
    const __m128 h2 = _mm_max_ps(h4, _mm_movehl_ps(h4, h4));
    return _mm_cvtss_f32(_mm_max_ss(h2, _mm_shuffle_ps(h2, h2, 1)));
}

TS_INLINE F32x16 f_load_f16(const uint16_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
TS_INLINE F32x16 f_load_bf16(const uint16_t* p) {
    const __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}
// Saturated, as f32_to_f16_saturated(); not-a-number stays that.
TS_INLINE __m128i to_f16(__m256 a) {
    const __m256 limit = _mm256_set1_ps(65504.0f), lowest = _mm256_set1_ps(-65504.0f);
    return _mm256_cvtps_ph(_mm256_max_ps(lowest, _mm256_min_ps(limit, a)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TS_INLINE void f_store_f16(uint16_t* p, F32x16 a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_f16(a.a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), to_f16(a.b));
}

TS_INLINE I32x16 i_set(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
TS_INLINE I32x16 i_load(const void* p) {
    const auto* q = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
TS_INLINE void i_store(int32_t* p, I32x16 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}
TS_INLINE I32x16 i_load_i8(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
TS_INLINE I32x16 i_load_u8(const uint8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
TS_INLINE I32x16 i_load_u16(const uint16_t* p) {
    const auto* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
}
TS_INLINE I32x16 i_add(I32x16 x, I32x16 y) { return TS_BOTH(I32x16, _mm256_add_epi32, x, y); }
TS_INLINE I32x16 i_sub(I32x16 x, I32x16 y) { return TS_BOTH(I32x16, _mm256_sub_epi32, x, y); }
TS_INLINE I32x16 i_and(I32x16 x, int32_t m) {
    const I32x16 y = i_set(m);
    return TS_BOTH(I32x16, _mm256_and_si256, x, y);
}
TS_INLINE I32x16 i_or(I32x16 x, I32x16 y) { return TS_BOTH(I32x16, _mm256_or_si256, x, y); }
TS_INLINE I32x16 i_shr(I32x16 x, int s) { return {_mm256_srli_epi32(x.a, s), _mm256_srli_epi32(x.b, s)}; }
TS_INLINE I32x16 i_shl(I32x16 x, int s) { return {_mm256_slli_epi32(x.a, s), _mm256_slli_epi32(x.b, s)}; }
TS_INLINE I32x16 i_bits(F32x16 x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
TS_INLINE F32x16 bits_f32(I32x16 x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
TS_INLINE F32x16 to_f32(I32x16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
TS_INLINE I32x16 to_i32(F32x16 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
TS_INLINE F32x16 f_scale2(F32x16 x, I32x16 n) {
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.a), _mm256_slli_epi32(n.a, 23))),
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.b), _mm256_slli_epi32(n.b, 23)))};
}

TS_INLINE Bytes64 b_load(const uint8_t* p) {
    const auto* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
TS_INLINE void b_store(uint8_t* p, Bytes64 x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.b);
}
TS_INLINE Bytes64 b_mask(Bytes64 x, char m) {
    const __m256i mask = _mm256_set1_epi8(m);
    return {_mm256_and_si256(x.a, mask), _mm256_and_si256(x.b, mask)};
}
TS_INLINE Bytes64 b_low4(Bytes64 x) { return b_mask(x, 15); }
TS_INLINE Bytes64 b_high4(Bytes64 x) { return b_mask({_mm256_srli_epi16(x.a, 4), _mm256_srli_epi16(x.b, 4)}, 15); }
template <int from, int to>
TS_INLINE Bytes64 b_shift(Bytes64 x) {
    if (from > to) return {_mm256_srli_epi16(x.a, from - to), _mm256_srli_epi16(x.b, from - to)};
    if (from < to) return {_mm256_slli_epi16(x.a, to - from), _mm256_slli_epi16(x.b, to - from)};
    return x;
}
template <int g, int to>
TS_INLINE Bytes64 b_pair(Bytes64 x) {
    return b_mask(b_shift<2 * g, to>(x), static_cast<char>(3 << to));
}
template <int g, int to>
TS_INLINE Bytes64 b_bit(Bytes64 x) {
    return b_mask(b_shift<g, to>(x), static_cast<char>(1 << to));
}
TS_INLINE Bytes64 b_lookup(const uint8_t* table, Bytes64 x) {
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(t, x.a), _mm256_shuffle_epi8(t, x.b)};
}
TS_INLINE Bytes64 b_or(Bytes64 x, Bytes64 y) { return TS_BOTH(Bytes64, _mm256_or_si256, x, y); }

// Bytes as 16-bit integers: even columns and odd ones.
struct Factors { __m256i even_a, even_b, odd_a, odd_b; };
TS_INLINE Factors factors(Bytes64 quads) {
    const __m256i mask = _mm256_set1_epi16(0xff);
    return {_mm256_and_si256(quads.a, mask), _mm256_and_si256(quads.b, mask),
            _mm256_srli_epi16(quads.a, 8), _mm256_srli_epi16(quads.b, 8)};
}
template <int offset>
TS_INLINE Factors signed_factors(Bytes64 quads) {
    const Factors w = factors(quads);
    const __m256i o = _mm256_set1_epi16(offset);
    return {_mm256_sub_epi16(w.even_a, o), _mm256_sub_epi16(w.even_b, o),
            _mm256_sub_epi16(w.odd_a, o), _mm256_sub_epi16(w.odd_b, o)};
}

struct Dot { __m256i a, b; };

TS_INLINE Dot dot_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
TS_INLINE void dot_pair(Dot& d, __m256i a, __m256i b, const uint8_t* x) {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    const __m256i both = _mm256_set1_epi32(pair);
    d.a = _mm256_add_epi32(d.a, _mm256_madd_epi16(a, both));
    d.b = _mm256_add_epi32(d.b, _mm256_madd_epi16(b, both));
    __asm__("" : "+x"(d.a), "+x"(d.b));  // GCC would add products first, and run out of registers
}
TS_INLINE void dot_quad(Dot& d, const Factors& w, const uint8_t* x) {
    dot_pair(d, w.even_a, w.even_b, x);
    dot_pair(d, w.odd_a, w.odd_b, x + 4);
}
// Of R rows: two vectors of weights at a time, which stay in registers while the rows' sums do.
template <int R>
TS_INLINE void dot_quads(Dot* dots, const Factors& w, const uint8_t* const* x, int at) {
    for (int r = 0; r < R; ++r) dot_pair(dots[r], w.even_a, w.even_b, x[r] + at);
    for (int r = 0; r < R; ++r) dot_pair(dots[r], w.odd_a, w.odd_b, x[r] + at + 4);
}
TS_INLINE I32x16 dot_sum(Dot d) { return {d.a, d.b}; }

// The same of bytes: 16-bit sums of 2 products each, of the high bytes of activations and of the low ones.
struct ByteDot { __m256i high_a, high_b, low_a, low_b; };

TS_INLINE ByteDot byte_dot_zero() {
    const __m256i zero = _mm256_setzero_si256();
    return {zero, zero, zero, zero};
}
TS_INLINE void byte_dot_quad(ByteDot& d, Bytes64 w, const uint8_t* x) {
    int32_t high, low;
    std::memcpy(&high, x, 4);
    std::memcpy(&low, x + 4, 4);
    const __m256i h = _mm256_set1_epi32(high), l = _mm256_set1_epi32(low);
    d.high_a = _mm256_add_epi16(d.high_a, _mm256_maddubs_epi16(w.a, h));
    d.high_b = _mm256_add_epi16(d.high_b, _mm256_maddubs_epi16(w.b, h));
    d.low_a = _mm256_add_epi16(d.low_a, _mm256_maddubs_epi16(w.a, l));
    d.low_b = _mm256_add_epi16(d.low_b, _mm256_maddubs_epi16(w.b, l));
    asm("" : "+x"(d.high_a), "+x"(d.high_b), "+x"(d.low_a), "+x"(d.low_b));  // a tree of sums would not fit the registers
}
TS_INLINE void add_byte_dot(Dot& total, const ByteDot& d) {
    const __m256i one = _mm256_set1_epi16(1), high = _mm256_set1_epi16(256);
    total.a = _mm256_add_epi32(total.a, _mm256_add_epi32(_mm256_madd_epi16(d.high_a, high), _mm256_madd_epi16(d.low_a, one)));
    total.b = _mm256_add_epi32(total.b, _mm256_add_epi32(_mm256_madd_epi16(d.high_b, high), _mm256_madd_epi16(d.low_b, one)));
}

// `count` columns, as store_quads() leaves them, to 4 high and 4 low bytes a quad: value = 256 * high + low, both signed.
TS_INLINE void split_bytes(const uint8_t* quads, int64_t count, uint8_t* bytes) {
    const __m256i order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15));
    for (int64_t i = 0; i < count; i += 16) {
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quads + 2 * i));
        const __m256i low = _mm256_srai_epi16(_mm256_slli_epi16(both, 8), 8);
        const __m256i high = _mm256_srai_epi16(_mm256_sub_epi16(both, low), 8);
        const __m256i packed = _mm256_shuffle_epi8(_mm256_packs_epi16(high, low), order);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 2 * i), packed);
    }
}

// Each quad: columns 0, 2, then 1, 3, as 16-bit integers.
TS_INLINE void store_quads(uint8_t* p, I32x16 q) {
    const __m256i in_order = _mm256_permute4x64_epi64(_mm256_packs_epi32(q.a, q.b), 0xd8);
    const __m256i turned = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(in_order, 0xd8), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), turned);
}
TS_INLINE int32_t i_sum(I32x16 x) {
    const __m256i h8 = _mm256_add_epi32(x.a, x.b);
    const __m128i h4 = _mm_add_epi32(_mm256_castsi256_si128(h8), _mm256_extracti128_si256(h8, 1));
    const __m128i h2 = _mm_add_epi32(h4, _mm_unpackhi_epi64(h4, h4));
    return _mm_cvtsi128_si32(_mm_add_epi32(h2, _mm_shuffle_epi32(h2, 1)));
}

TS_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
TS_INLINE void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

#undef TS_BOTH

}  // namespace TS_ISA
}  // namespace twostroke
