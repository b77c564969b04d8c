// 16 lanes as one 512-bit register; dot products by VNNI on the high and low bytes of 16-bit activations.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "../half.h"

#define TS_INLINE static inline __attribute__((always_inline))
#define TS_METHOD inline __attribute__((always_inline))

namespace twostroke {
namespace TS_ISA {

using F32x16 = __m512;
using I32x16 = __m512i;
using Bytes64 = __m512i;

TS_INLINE __mmask16 first_n(int n) { return static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u); }

constexpr int kMostRows = 16;  // activation rows multiplied together: weights are widened once for them
constexpr int kRowsAtOnce = 1;  // of those, in registers
constexpr bool kFewTiles = false;  // only that many, and one
constexpr bool kPairs = true;  // two groups at a time, where registers hold them
constexpr int kLeastPaired = 4;  // rows for which that pays: fewer wait for memory, which is one stream then

TS_INLINE F32x16 f_set(float x) { return _mm512_set1_ps(x); }
TS_INLINE F32x16 f_load(const float* p) { return _mm512_loadu_ps(p); }
TS_INLINE void f_store(float* p, F32x16 a) { _mm512_storeu_ps(p, a); }
TS_INLINE F32x16 f_load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(first_n(n), p); }
TS_INLINE void f_store_n(float* p, F32x16 a, int n) { _mm512_mask_storeu_ps(p, first_n(n), a); }
TS_INLINE F32x16 f_add(F32x16 a, F32x16 b) { return _mm512_add_ps(a, b); }
TS_INLINE F32x16 f_sub(F32x16 a, F32x16 b) { return _mm512_sub_ps(a, b); }
TS_INLINE F32x16 f_mul(F32x16 a, F32x16 b) { return _mm512_mul_ps(a, b); }
TS_INLINE F32x16 f_div(F32x16 a, F32x16 b) { return _mm512_div_ps(a, b); }
TS_INLINE F32x16 f_fma(F32x16 a, F32x16 b, F32x16 c) { return _mm512_fmadd_ps(a, b, c); }
TS_INLINE F32x16 f_max(F32x16 a, F32x16 b) { return _mm512_max_ps(a, b); }
TS_INLINE F32x16 f_min(F32x16 a, F32x16 b) { return _mm512_min_ps(a, b); }
TS_INLINE F32x16 f_abs(F32x16 a) { return _mm512_abs_ps(a); }
TS_INLINE F32x16 f_keep(F32x16 a, int n, F32x16 fill) { return _mm512_mask_blend_ps(first_n(n), fill, a); }
TS_INLINE F32x16 f_zero_below(F32x16 a, F32x16 x, F32x16 limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), a);
}
TS_INLINE F32x16 f_where_less(F32x16 x, F32x16 y, F32x16 a, F32x16 b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
}
TS_INLINE float f_sum(F32x16 a) {
    const __m256 h8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
    const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
    return _mm_cvtss_f32(_mm_add_ss(h2, _mm_shuffle_ps(h2, h2, 1)));
}
TS_INLINE float f_hmax(F32x16 a) {
    const __m256 h8 = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 h4 = _mm_max_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
    const __m128 h2 = _mm_max_ps(h4, _mm_movehl_ps(h4, h4));
    return _mm_cvtss_f32(_mm_max_ss(h2, _mm_shuffle_ps(h2, h2, 1)));
}

TS_INLINE F32x16 f_load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TS_INLINE F32x16 f_load_bf16(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
// Saturated, as f32_to_f16_saturated(); not-a-number stays that.
TS_INLINE void f_store_f16(uint16_t* p, F32x16 a) {
    const __m512 limit = _mm512_set1_ps(65504.0f), lowest = _mm512_set1_ps(-65504.0f);
    const __m256i half = _mm512_cvtps_ph(_mm512_max_ps(lowest, _mm512_min_ps(limit, a)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half);
}

TS_INLINE I32x16 i_set(int32_t x) { return _mm512_set1_epi32(x); }
TS_INLINE I32x16 i_load(const void* p) { return _mm512_loadu_si512(p); }
TS_INLINE void i_store(int32_t* p, I32x16 a) { _mm512_storeu_si512(p, a); }
TS_INLINE I32x16 i_load_i8(const int8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TS_INLINE I32x16 i_load_u8(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
TS_INLINE I32x16 i_load_u16(const uint16_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
TS_INLINE I32x16 i_add(I32x16 a, I32x16 b) { return _mm512_add_epi32(a, b); }
TS_INLINE I32x16 i_sub(I32x16 a, I32x16 b) { return _mm512_sub_epi32(a, b); }
TS_INLINE I32x16 i_and(I32x16 a, int32_t m) { return _mm512_and_si512(a, _mm512_set1_epi32(m)); }
TS_INLINE I32x16 i_or(I32x16 a, I32x16 b) { return _mm512_or_si512(a, b); }
TS_INLINE I32x16 i_shr(I32x16 a, int s) { return _mm512_srli_epi32(a, static_cast<unsigned>(s)); }
TS_INLINE I32x16 i_shl(I32x16 a, int s) { return _mm512_slli_epi32(a, static_cast<unsigned>(s)); }
TS_INLINE I32x16 i_bits(F32x16 a) { return _mm512_castps_si512(a); }
TS_INLINE F32x16 bits_f32(I32x16 a) { return _mm512_castsi512_ps(a); }
TS_INLINE F32x16 to_f32(I32x16 a) { return _mm512_cvtepi32_ps(a); }
TS_INLINE I32x16 to_i32(F32x16 a) { return _mm512_cvtps_epi32(a); }
TS_INLINE F32x16 f_scale2(F32x16 a, I32x16 n) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(n, 23)));
}

TS_INLINE Bytes64 b_load(const uint8_t* p) { return _mm512_loadu_si512(p); }
TS_INLINE void b_store(uint8_t* p, Bytes64 a) { _mm512_storeu_si512(p, a); }
TS_INLINE Bytes64 b_low4(Bytes64 a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
TS_INLINE Bytes64 b_high4(Bytes64 a) { return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15)); }
template <int from, int to>
TS_INLINE Bytes64 b_shift(Bytes64 a) {
    if (from > to) return _mm512_srli_epi16(a, from - to);
    if (from < to) return _mm512_slli_epi16(a, to - from);
    return a;
}
template <int g, int to>
TS_INLINE Bytes64 b_pair(Bytes64 a) {
    return _mm512_and_si512(b_shift<2 * g, to>(a), _mm512_set1_epi8(3 << to));
}
template <int g, int to>
TS_INLINE Bytes64 b_bit(Bytes64 a) {
    return _mm512_and_si512(b_shift<g, to>(a), _mm512_set1_epi8(1 << to));
}
TS_INLINE Bytes64 b_lookup(const uint8_t* table, Bytes64 a) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), a);
}
TS_INLINE Bytes64 b_or(Bytes64 a, Bytes64 b) { return _mm512_or_si512(a, b); }

using Factors = Bytes64;
TS_INLINE Factors factors(Bytes64 quads) { return quads; }

struct Dot { __m512i high, low; };

TS_INLINE Dot dot_zero() { return {_mm512_setzero_si512(), _mm512_setzero_si512()}; }
TS_INLINE void dot_quad(Dot& d, Factors w, const uint8_t* x) {
    int32_t high, low;
    std::memcpy(&high, x, 4);
    std::memcpy(&low, x + 4, 4);
    d.high = _mm512_dpbusd_epi32(d.high, w, _mm512_set1_epi32(high));
    d.low = _mm512_dpbusd_epi32(d.low, w, _mm512_set1_epi32(low));
}
TS_INLINE I32x16 dot_sum(Dot d) { return _mm512_add_epi32(_mm512_slli_epi32(d.high, 8), d.low); }

// Each quad: 4 high bytes, 4 low bytes, both signed: value = 256 * high + low.
TS_INLINE void store_quads(uint8_t* p, I32x16 q) {
    const __m512i low = _mm512_srai_epi32(_mm512_slli_epi32(q, 24), 24);
    const __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(q, low), 8);
    const __m128i low8 = _mm512_cvtepi32_epi8(low), high8 = _mm512_cvtepi32_epi8(high);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi32(high8, low8));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm_unpackhi_epi32(high8, low8));
}
TS_INLINE int32_t i_sum(I32x16 a) { return _mm512_reduce_add_epi32(a); }

TS_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
TS_INLINE void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace TS_ISA
}  // namespace twostroke
