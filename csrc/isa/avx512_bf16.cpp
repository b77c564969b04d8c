// The kernels of prompt rows compiled for avx512_bf16; the others are those of avx512. Nothing here may include a header
// with inline code shared between instruction sets.
#define TS_ISA avx512_bf16
#include "../ops.h"
#include "../simd/avx512.h"
#include "../simd/brain.h"
#include "../kernels/math.h"
#include "../kernels/moments.h"
#include "../kernels/panels.h"
#include "../kernels/codebooks.h"
#include "../kernels/linear_output.h"
#include "../kernels/panel.h"

namespace twostroke {
namespace avx512_bf16 {

TS_INLINE void begin_panels() {}
TS_INLINE void end_panels() {}

// T rows times G groups.
template <int G, int T>
static void multiply_tile(const PanelArgs& a, int slot, int64_t row) {
    float* sums_at = a.sums + slot * kSlotSums + row * kLanes;
    const uint16_t* w = a.weights + slot * kPrefillColumns * kLanes;
    const uint16_t* x = a.rows + row * a.stride;
    F32x16 sums[G * T];
    for (int t = 0; t < T; ++t)
        for (int g = 0; g < G; ++g) sums[G * t + g] = a.is_first ? f_set(0.0f) : f_load(sums_at + g * kSlotSums + t * kLanes);
    for (int64_t p = 0; p < a.num_pairs; ++p, w += 32, x += 2) {
        __m512bh weights[G];
        for (int g = 0; g < G; ++g) weights[g] = (__m512bh)_mm512_loadu_si512(w + g * kPrefillColumns * kLanes);
        for (int t = 0; t < T; ++t) {
            int32_t pair;
            std::memcpy(&pair, x + t * a.stride, 4);
            for (int g = 0; g < G; ++g)
                sums[G * t + g] = _mm512_dpbf16_ps(sums[G * t + g], (__m512bh)_mm512_set1_epi32(pair), weights[g]);
        }
    }
    for (int t = 0; t < T; ++t)
        for (int g = 0; g < G; ++g) f_store(sums_at + g * kSlotSums + t * kLanes, sums[G * t + g]);
}

constexpr int kTileRows = 6;

template <int G, int T = kTileRows>
static void multiply_rest(const PanelArgs& a, int slot, int64_t row) {
    if (a.num_rows - row == T) return multiply_tile<G, T>(a, slot, row);
    if constexpr (T > 1) multiply_rest<G, T - 1>(a, slot, row);
}

template <int G>
static void multiply_groups(const PanelArgs& a, int slot) {
    int64_t row = 0;
    for (; row + kTileRows <= a.num_rows; row += kTileRows) multiply_tile<G, kTileRows>(a, slot, row);
    if (row < a.num_rows) multiply_rest<G>(a, slot, row);
}

static void multiply_panel(const PanelArgs& a) {
    switch (a.num_slots) {
        case 4: return multiply_groups<4>(a, 0);
        case 3: return multiply_groups<3>(a, 0);
        case 2: return multiply_groups<2>(a, 0);
        default: return multiply_groups<1>(a, 0);
    }
}

}  // namespace avx512_bf16
}  // namespace twostroke

#include "../kernels/linear_prefill.h"

namespace twostroke {
Kernels avx512_kernels();

Kernels avx512_bf16_kernels() {
    Kernels k = avx512_kernels();
    k.name = "avx512_bf16";
    k.linear_prefill = avx512_bf16::linear_prefill;
    k.round_rows = avx512_bf16::round_rows;
    return k;
}
}  // namespace twostroke
