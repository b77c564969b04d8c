// The kernels compiled for amx: of prompt rows, and linears of many generated rows; the others are those of avx512. Nothing here may include a header with
// inline code shared between instruction sets.
#define TS_ISA amx
#include "../ops.h"
#include "../simd/avx512.h"
#include "../simd/brain.h"
#include "../kernels/math.h"
#include "../kernels/moments.h"
#include "../kernels/panels.h"
#include "../kernels/codebooks.h"
#include "../kernels/weigh.h"
#include "../kernels/linear_output.h"
#include "../kernels/panel.h"

namespace twostroke {
namespace amx {

struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static const TileConfig kTileConfig;  // static: GCC 12 drops stores to one on the stack

// Loads of tiles do not say what memory they read: what was stored must be there.
TS_INLINE void finish_stores() { asm volatile("" ::: "memory"); }
TS_INLINE void begin_panels() { _tile_loadconfig(&kTileConfig); }
TS_INLINE void end_panels() { _tile_release(); }

// 16 rows, or 32, times one group or two. Tiles 0 to 3 are sums, 4 and 5 rows (16, 32), 6 and 7 weights (32, 16).
template <bool more_rows, bool more_groups>
static void multiply_tiles(const PanelArgs& a, int slot, int64_t row) {
    finish_stores();
    float* sums = a.sums + slot * kSlotSums + row * kLanes;
    float *const other = sums + kSlotSums, *const below = sums + 16 * kLanes, *const last = other + 16 * kLanes;
    if (a.is_first) {
        _tile_zero(0);
        if (more_groups) _tile_zero(1);
        if (more_rows) _tile_zero(2);
        if (more_rows && more_groups) _tile_zero(3);
    } else {
        _tile_loadd(0, sums, 64);
        if (more_groups) _tile_loadd(1, other, 64);
        if (more_rows) _tile_loadd(2, below, 64);
        if (more_rows && more_groups) _tile_loadd(3, last, 64);
    }
    const uint16_t* x = a.rows + row * a.stride;
    const uint16_t* w = a.weights + slot * kPrefillColumns * kLanes;
    const int64_t stride = a.stride * 2;
    for (int64_t p = 0; p < a.num_pairs; p += 16, x += 32, w += 16 * 32) {
        _tile_loadd(4, x, stride);
        _tile_loadd(6, w, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (more_groups) {
            _tile_loadd(7, w + kPrefillColumns * kLanes, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (more_rows) {
            _tile_loadd(5, x + 16 * a.stride, stride);
            _tile_dpbf16ps(2, 5, 6);
            if (more_groups) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 64);
    if (more_groups) _tile_stored(1, other, 64);
    if (more_rows) _tile_stored(2, below, 64);
    if (more_rows && more_groups) _tile_stored(3, last, 64);
    finish_stores();
}

template <bool more_groups>
static void multiply_groups(const PanelArgs& a, int slot) {
    int64_t row = 0;
    for (; a.num_rows - row > 16; row += 32) multiply_tiles<true, more_groups>(a, slot, row);
    if (row < a.num_rows) multiply_tiles<false, more_groups>(a, slot, row);
}

// Two groups of some columns are 32 KiB and stay in L1 while the rows stream from L2.
static void multiply_panel(const PanelArgs& a) {
    int slot = 0;
    for (; slot + 1 < a.num_slots; slot += 2) multiply_groups<true>(a, slot);
    if (slot < a.num_slots) multiply_groups<false>(a, slot);
}

// Signed bytes of 16 activation rows (16, 64) at `stride` times weights: high, low (16, 16). `which`: of two sets of tiles.
template <int which>
TS_INLINE void multiply_bytes(const uint8_t* x, int64_t stride, const uint8_t* weights, int32_t* high, int32_t* low) {
    finish_stores();
    if constexpr (which == 0) {
        _tile_loadd(4, x, stride);
        _tile_loadd(6, weights + 64, 64);
        _tile_loadd(7, weights, 64);
        _tile_zero(0);
        _tile_zero(1);
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        _tile_stored(0, high, 64);
        _tile_stored(1, low, 64);
    } else {
        _tile_loadd(5, x, stride);
        _tile_loadd(6, weights + 64, 64);
        _tile_loadd(7, weights, 64);
        _tile_zero(2);
        _tile_zero(3);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
        _tile_stored(2, high, 64);
        _tile_stored(3, low, 64);
    }
    finish_stores();
}

// bf16 tiles from registers: 4 sums, each 16 x 16 of 32-long dot products.
static double probe_tiles(int64_t rounds, float* sink) {
    alignas(64) float out[16 * 16];
    begin_panels();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t r = 0; r < rounds; ++r) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, out, 64);
    end_panels();
    sink[0] = out[0];
    return static_cast<double>(rounds) * 4 * 16 * 16 * 32 * 2;
}

}  // namespace amx
}  // namespace twostroke

#include "../kernels/linear_prefill.h"
#include "../kernels/linear_tiles.h"

namespace twostroke {
Kernels avx512_kernels();

namespace amx {

// What no tile is filled with, avx512 does.
static void linear(const LinearArgs& a) {
    static const auto linear_rest = avx512_kernels().linear;
    const int64_t done = linear_tiles(a);
    if (done < a.num_rows) linear_rest(of_rows(a, done, a.num_rows - done));
}

}  // namespace amx

Kernels amx_kernels() {
    Kernels k = avx512_kernels();
    k.name = "amx";
    k.linear = amx::linear;
    k.linear_prefill = amx::linear_prefill;
    k.round_rows = amx::round_rows;
    k.probe_16bit = amx::probe_tiles;
    return k;
}
}  // namespace twostroke
