// Quantised block formats as GGUF stores them, and the packed forms the kernels read.
// Source of the file formats: ggml's public block layout (ggml-common.h); sizes are asserted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace twostroke {

// GGML type ids of the tensor types that have kernels.
enum class TensorType : int { F32 = 0, Q4_1 = 3, Q8_0 = 8, Q4_K = 12, Q6_K = 14 };

struct BlockQ4_1 {  // 32 weights: d * q + m, q in 0..15
    uint16_t d, m;  // f16
    uint8_t qs[16];  // byte i: weight i low nibble, weight i + 16 high nibble
};
static_assert(sizeof(BlockQ4_1) == 20);

struct BlockQ8_0 {  // 32 weights: d * q
    uint16_t d;
    int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockQ4_K {  // 256 weights in 8 sub-blocks of 32: d * scale * q - dmin * min
    uint16_t d, dmin;
    uint8_t scales[12];  // 8 scales and 8 minima of 6 bits
    uint8_t qs[128];  // 64 weights in 32 bytes: low nibbles, then high nibbles
};
static_assert(sizeof(BlockQ4_K) == 144);

struct BlockQ6_K {  // 256 weights in 16 sub-blocks of 16: d * scale * (q - 32)
    uint8_t ql[128];  // low 4 bits
    uint8_t qh[64];  // high 2 bits
    int8_t scales[16];
    uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// Packed forms: 16 rows ("lanes") side by side, so that one vector holds the same columns of 16 rows. A quad is 4
// consecutive columns of all lanes: byte 4 * lane + j is column j. Quads are unsigned; signed types are offset.
// Every packed block has exactly the bits of its 16 source blocks.
constexpr int kLanes = 16;

struct PackedQ4_1 {  // 32 columns
    uint16_t d[kLanes], m[kLanes];
    uint8_t quads[4][64];  // vector v: low nibbles quad 2v, high nibbles quad 2v + 1
};
static_assert(sizeof(PackedQ4_1) == kLanes * sizeof(BlockQ4_1));

struct PackedQ8_0 {  // 32 columns, q + 128
    uint16_t d[kLanes];
    uint8_t quads[8][64];
};
static_assert(sizeof(PackedQ8_0) == kLanes * sizeof(BlockQ8_0));

struct PackedQ4_K {  // 256 columns
    uint16_t d[kLanes], dmin[kLanes];
    uint32_t scales[3][kLanes];  // the 12 scale bytes of each lane as three words
    uint8_t quads[8][4][64];  // sub-block, vector: nibbles as in PackedQ4_1
};
static_assert(sizeof(PackedQ4_K) == kLanes * sizeof(BlockQ4_K));

struct PackedQ6_K {  // 256 columns, q in 0..63
    uint16_t d[kLanes];
    int8_t scales[16][kLanes];
    struct {  // 32 columns
        uint8_t low[4][64];  // nibbles as in PackedQ4_1
        uint8_t high[2][64];  // 16 columns a vector: bits 2g of byte 4 * lane + j are column 4g + j
    } parts[8];
};
static_assert(sizeof(PackedQ6_K) == kLanes * sizeof(BlockQ6_K));

constexpr int columns_per_block(TensorType type) {
    switch (type) {
        case TensorType::F32: return 1;
        case TensorType::Q4_1:
        case TensorType::Q8_0: return 32;
        case TensorType::Q4_K:
        case TensorType::Q6_K: return 256;
    }
    return 0;
}

// Bytes of one block of one row; a packed block of 16 rows has 16 times as many.
constexpr size_t bytes_per_block(TensorType type) {
    switch (type) {
        case TensorType::F32: return sizeof(float);
        case TensorType::Q4_1: return sizeof(BlockQ4_1);
        case TensorType::Q8_0: return sizeof(BlockQ8_0);
        case TensorType::Q4_K: return sizeof(BlockQ4_K);
        case TensorType::Q6_K: return sizeof(BlockQ6_K);
    }
    return 0;
}

}  // namespace twostroke
