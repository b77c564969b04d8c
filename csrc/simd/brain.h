// bfloat16 by AVX-512 BF16 and VBMI: rounding, and pairs of columns side by side.
#pragma once

namespace twostroke {
namespace TS_ISA {

TS_INLINE void f_store_brain(uint16_t* p, F32x16 a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(a));
}

// Elements of `even` and `odd` in turn.
TS_INLINE void f_store_brains(uint16_t* p, F32x16 even, F32x16 odd) {
    alignas(64) static const uint16_t kTurns[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23,
                                                    8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const auto halves = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
    _mm512_storeu_si512(p, _mm512_permutexvar_epi16(_mm512_load_si512(kTurns), halves));
}

// Each of 16 lanes twice: the first 8 lanes, and the others.
struct Twice {
    F32x16 half[2];
};

TS_INLINE Twice f_twice(F32x16 a) {
    const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return {{_mm512_permutexvar_ps(lanes, a), _mm512_permutexvar_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(8)), a)}};
}

// scale * quad + minimum of 4 columns of 16 lanes: columns 0 and 1 side by side, then 2 and 3.
TS_INLINE void store_quad(uint16_t* out, Bytes64 quad, const Twice& scale, const Twice& minimum) {
    constexpr __mmask64 kFirstBytes = 0x1111111111111111;
    const __m512i at = _mm512_setr_epi32(0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29);
    for (int pair = 0; pair < 2; ++pair) {
        F32x16 w[2];
        for (int half = 0; half < 2; ++half) {
            const __m512i bytes = _mm512_add_epi32(at, _mm512_set1_epi32(32 * half + 2 * pair));
            const __m512i lanes = _mm512_maskz_permutexvar_epi8(kFirstBytes, bytes, quad);
            w[half] = f_fma(scale.half[half], to_f32(lanes), minimum.half[half]);
        }
        _mm512_storeu_si512(out + 32 * pair, (__m512i)_mm512_cvtne2ps_pbh(w[1], w[0]));
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
