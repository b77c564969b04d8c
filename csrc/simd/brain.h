// bfloat16 by AVX-512 BF16: rounding, and dot products of pairs.
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

}  // namespace TS_ISA
}  // namespace twostroke
