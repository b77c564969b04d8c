// One function an instruction, for the tests of the tile unit: integers and pointers in, tiles and vectors in memory out.
#include <immintrin.h>

#include <cstdint>

namespace {

constexpr int64_t kBytes = 64;  // of a row in memory

// sums (tile 0) += a (tile 1) times b (tile 2), by the product given.
template <class Product>
void multiply(const void* config, const void* a, const void* b, void* sums, Product product) {
    _tile_loadconfig(config);
    _tile_loadd(0, sums, kBytes);
    _tile_loadd(1, a, kBytes);
    _tile_stream_loadd(2, b, kBytes);
    product();
    _tile_stored(0, sums, kBytes);
    _tile_release();
}

}  // namespace

extern "C" {

void tdpbf16ps(const void* config, const void* a, const void* b, void* sums) {
    multiply(config, a, b, sums, [] { _tile_dpbf16ps(0, 1, 2); });
}
void tdpbssd(const void* config, const void* a, const void* b, void* sums) {
    multiply(config, a, b, sums, [] { _tile_dpbssd(0, 1, 2); });
}
void tdpbsud(const void* config, const void* a, const void* b, void* sums) {
    multiply(config, a, b, sums, [] { _tile_dpbsud(0, 1, 2); });
}
void tdpbusd(const void* config, const void* a, const void* b, void* sums) {
    multiply(config, a, b, sums, [] { _tile_dpbusd(0, 1, 2); });
}
void tdpbuud(const void* config, const void* a, const void* b, void* sums) {
    multiply(config, a, b, sums, [] { _tile_dpbuud(0, 1, 2); });
}

// Tile 7 by a stride in a high register with a displacement, through tile 7 again zeroed, and the configuration back.
int64_t move(const void* config, const uint8_t* from, int64_t stride, uint8_t* to, uint8_t* zeros, void* config_out) {
    _tile_loadconfig(config);
    _tile_loadd(7, from + 64, stride);
    _tile_stored(7, to, 2 * stride);
    _tile_zero(7);
    _tile_stored(7, zeros, 64);
    _tile_storeconfig(config_out);
    _tile_release();
    return stride;
}

// Every row of tile 0 from one place: without an index register the stride is 0. Then as no tile load can be encoded.
void load_repeated(const void* config, const void* from, void* to) {
    _tile_loadconfig(config);
    asm volatile("tileloadd (%0), %%tmm0" : : "r"(from) : "memory");
    _tile_stored(0, to, 64);
    _tile_release();
}
void load_without_sib(const void* config) {
    _tile_loadconfig(config);
    asm volatile(".byte 0xC4, 0xE2, 0x7B, 0x4B, 0x07");  // tileloadd (%rdi), tmm0: assemblers add the byte
}

void use_unconfigured() {
    _tile_release();
    _tile_zero(0);
}
void product_of_one_tile(const void* config) {
    _tile_loadconfig(config);
    asm volatile(".byte 0xC4, 0xE2, 0x72, 0x5C, 0xC1");  // tdpbf16ps tmm0, tmm1, tmm1: assemblers refuse it
}
void configure(const void* config) { _tile_loadconfig(config); }
void undefined() { asm volatile("ud2"); }
void run_on(int64_t forever) {
    while (forever) asm volatile("");
}
int64_t twelfth(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                int64_t last) {
    return last;
}
}
