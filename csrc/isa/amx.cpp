// The kernels compiled for amx: AVX-512, and the tile unit where it serves. Nothing here may include a header with
// inline code shared between instruction sets.
#define TS_ISA amx
#include "../ops.h"
#include "../simd/avx512.h"
#include "../kernels/math.h"
#include "../kernels/rows.h"
#include "../kernels/panels.h"
#include "../kernels/codebooks.h"
#include "../kernels/linear.h"
#include "../kernels/attention.h"
#include "../kernels/quantize.h"
#include "../kernels/probe.h"
#include "../kernels/table.h"

namespace twostroke {
namespace amx {

struct alignas(64) TileConfig {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static const TileConfig kTileConfig;  // static: GCC 12 drops stores to one on the stack

// bf16 tiles from registers: 4 sums, each 16 x 16 of 32-long dot products.
static double probe_tiles(int64_t rounds, float* sink) {
    alignas(64) float out[16 * 16];
    _tile_loadconfig(&kTileConfig);
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
    _tile_release();
    sink[0] = out[0];
    return static_cast<double>(rounds) * 4 * 16 * 16 * 32 * 2;
}

}  // namespace amx

Kernels amx_kernels() {
    Kernels k = amx::make_table("amx");
    k.probe_16bit = amx::probe_tiles;
    return k;
}
}  // namespace twostroke
