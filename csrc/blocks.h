// Quantised block formats as GGUF stores them, and the packed forms the kernels read.
// Source of the file formats: ggml's public block layout (ggml-common.h); sizes are asserted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace twostroke {

// GGML type ids of the tensor types that have kernels.
enum class TensorType : int {
    F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13,
    Q6_K = 14, IQ2_XXS = 16, IQ2_XS = 17, IQ3_XXS = 18, IQ1_S = 19, IQ4_NL = 20, IQ3_S = 21, IQ2_S = 22, IQ4_XS = 23,
    IQ1_M = 29, BF16 = 30, TQ1_0 = 34, TQ2_0 = 35, MXFP4 = 39,
    // Our own, for checkpoints quantised in groups (weights/grouped_blocks.py): code and bits, group, scale.
    G4_32_F16 = 1000, G4_64_F16, G4_128_F16, G4_32_BF16, G4_64_BF16, G4_128_BF16, G8_32_F16, G8_64_F16, G8_128_F16,
    G8_32_BF16, G8_64_BF16, G8_128_BF16, F8_32_BF16, F8_64_BF16, F8_128_BF16, F8_32_F32, F8_64_F32, F8_128_F32
};

// --- blocks of 32 weights; d, m in f16 ---------------------------------------------------------------------------------
// Nibbles: byte i holds weight i low and weight i + 16 high. Fifth bits: bit i of a little-endian word is weight i's.

struct BlockQ4_0 {  // d * (q - 8)
    uint16_t d;
    uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct BlockQ4_1 {  // d * q + m
    uint16_t d, m;
    uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

struct BlockQ5_0 {  // d * (q - 16)
    uint16_t d;
    uint8_t qh[4], qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

struct BlockQ5_1 {  // d * q + m
    uint16_t d, m;
    uint8_t qh[4], qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

struct BlockQ8_0 {  // d * q
    uint16_t d;
    int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockIQ4_NL {  // d * table[q]
    uint16_t d;
    uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

struct BlockMXFP4 {  // 2^(e - 127) * FP4 (E2M1) value: OCP Microscaling formats
    uint8_t e, qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// --- super-blocks of 256 weights ---------------------------------------------------------------------------------------

struct BlockQ2_K {  // sub-blocks of 16: d * scale * q - dmin * min, scale and min 4 bits of one byte
    uint8_t scales[16], qs[64];
    uint16_t d, dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

struct BlockQ3_K {  // sub-blocks of 16: d * (scale - 32) * (q - 4), q of 2 low bits and an inverted high one
    uint8_t hmask[32], qs[64], scales[12];
    uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

struct BlockQ4_K {  // sub-blocks of 32: d * scale * q - dmin * min
    uint16_t d, dmin;
    uint8_t scales[12];  // 8 scales and 8 minima of 6 bits
    uint8_t qs[128];  // 64 weights in 32 bytes: low nibbles, then high nibbles
};
static_assert(sizeof(BlockQ4_K) == 144);

struct BlockQ5_K {  // as Q4_K; bit s of qh[i] is the fifth bit of weight i of sub-block s
    uint16_t d, dmin;
    uint8_t scales[12], qh[32], qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

struct BlockQ6_K {  // sub-blocks of 16: d * scale * (q - 32)
    uint8_t ql[128];  // low 4 bits
    uint8_t qh[64];  // high 2 bits
    int8_t scales[16];
    uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

struct BlockIQ4_XS {  // sub-blocks of 32: d * (scale - 32) * table[q], scale of 4 low and 2 high bits
    uint16_t d, scales_h;
    uint8_t scales_l[4], qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

struct BlockTQ2_0 {  // d * (q - 1)
    uint8_t qs[64];
    uint16_t d;
};
static_assert(sizeof(BlockTQ2_0) == 66);

// Codebook blocks: an index names an entry of 8 values (IQ1, IQ2) or 4 (IQ3). "Sevens" are the signs of 8 values, the
// eighth making the number of minus signs even.

struct BlockIQ2_XXS {  // per 32: 4 index bytes; 4 sevens and a scale of 4 bits
    uint16_t d;
    uint8_t qs[64];
};
static_assert(sizeof(BlockIQ2_XXS) == 66);

struct BlockIQ2_XS {  // per 8: index of 9 bits and a seven; per 16: scale of 4 bits
    uint16_t d, qs[32];
    uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_XS) == 74);

struct BlockIQ2_S {  // per 8: index of 8 + 2 bits, 8 signs; per 16: scale of 4 bits
    uint16_t d;
    uint8_t qs[32], signs[32], qh[8], scales[8];
};
static_assert(sizeof(BlockIQ2_S) == 82);

struct BlockIQ3_XXS {  // per 4: index of 8 bits; per 32: 4 sevens and a scale of 4 bits
    uint16_t d;
    uint8_t qs[64], heads[32];
};
static_assert(sizeof(BlockIQ3_XXS) == 98);

struct BlockIQ3_S {  // per 4: index of 8 + 1 bits; per 8: 8 signs; per 32: scale of 4 bits
    uint16_t d;
    uint8_t qs[64], qh[8], signs[32], scales[4];
};
static_assert(sizeof(BlockIQ3_S) == 110);

struct BlockIQ1_S {  // per 8: index of 8 + 3 bits; per 32: scale of 3 bits, sign of the shift by 1/8
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
};
static_assert(sizeof(BlockIQ1_S) == 50);

struct BlockIQ1_M {  // per 8: index of 8 + 3 bits, sign of the shift; per 16: scale of 3 bits; d in the top bits of scales
    uint8_t qs[32], qh[16];
    uint16_t scales[4];
};
static_assert(sizeof(BlockIQ1_M) == 56);

struct BlockTQ1_0 {  // d * (q - 1), five base-3 digits a byte
    uint8_t qs[48], qh[4];
    uint16_t d;
};
static_assert(sizeof(BlockTQ1_0) == 54);

// Groups: scales in float16 or bfloat16, for G4 a byte of zeros (of a second group in its high half), then codes.
template <int kColumns, int kGroup>
struct BlockG4 {  // scale * (q - zero)
    uint8_t scales[kColumns / kGroup][2];  // bytes: an odd size leaves nothing aligned
    uint8_t zeros, qs[kColumns / 2];  // of each 16 bytes, low halves are 16 columns and high halves the next 16
};
using BlockG4_32_F16 = BlockG4<64, 32>;
using BlockG4_64_F16 = BlockG4<64, 64>;
using BlockG4_128_F16 = BlockG4<128, 128>;

template <int kGroup>
struct BlockG8 {  // scale * q
    uint16_t scale;
    int8_t qs[kGroup];
};
using BlockG8_32_F16 = BlockG8<32>;
using BlockG8_64_F16 = BlockG8<64>;
using BlockG8_128_F16 = BlockG8<128>;

// Packed forms: 16 rows ("lanes") side by side, so that one vector holds the same columns of 16 rows. A quad is 4
// consecutive columns of all lanes: byte 4 * lane + j is column j. Quads are unsigned; signed types are offset.
// Every packed block has exactly the bits of its 16 source blocks.
constexpr int kLanes = 16;

// 32 columns of 4 bits: vector v holds quad 2v in its low nibbles, quad 2v + 1 in its high ones.
using Nibbles = uint8_t[4][64];
// 16 columns of 2 bits: bits 2g of byte 4 * lane + j are column 4g + j.
using Pairs = uint8_t[64];
// 32 columns of 1 bit: bit g of byte 4 * lane + j is column 4g + j.
using Bits = uint8_t[64];

struct PackedQ4_0 {
    uint16_t d[kLanes];
    Nibbles quads;
};
struct PackedQ4_1 {
    uint16_t d[kLanes], m[kLanes];
    Nibbles quads;
};
struct PackedQ5_0 {
    uint16_t d[kLanes];
    Nibbles quads;
    Bits fifth;
};
struct PackedQ5_1 {
    uint16_t d[kLanes], m[kLanes];
    Nibbles quads;
    Bits fifth;
};
struct PackedQ8_0 {  // q + 128
    uint16_t d[kLanes];
    uint8_t quads[8][64];
};
using PackedIQ4_NL = PackedQ4_0;
struct PackedMXFP4 {
    uint8_t e[kLanes];
    Nibbles quads;
};
struct PackedQ2_K {
    uint16_t d[kLanes], dmin[kLanes];
    uint8_t scales[16][kLanes];
    Pairs quads[16];
};
struct PackedQ3_K {
    uint16_t d[kLanes];
    uint32_t scales[3][kLanes];  // the 12 scale bytes of each lane as three words
    struct {  // 32 columns
        Pairs low[2];
        Bits high;
    } parts[8];
};
struct PackedQ4_K {
    uint16_t d[kLanes], dmin[kLanes];
    uint32_t scales[3][kLanes];
    Nibbles quads[8];
};
struct PackedQ5_K {
    uint16_t d[kLanes], dmin[kLanes];
    uint32_t scales[3][kLanes];
    struct {  // 32 columns
        Nibbles quads;
        Bits fifth;
    } parts[8];
};
struct PackedQ6_K {
    uint16_t d[kLanes];
    int8_t scales[16][kLanes];
    struct {  // 32 columns
        Nibbles low;
        Pairs high[2];
    } parts[8];
};
struct PackedIQ4_XS {
    uint16_t d[kLanes], scales_h[kLanes];
    uint32_t scales_l[kLanes];
    Nibbles quads[8];
};
struct PackedTQ2_0 {
    uint16_t d[kLanes];
    Pairs quads[16];
};

// Codebook blocks stay as they are, those of the 16 lanes one after another.
template <class Block>
struct Raw {
    Block lanes[kLanes];
};
using PackedIQ2_XXS = Raw<BlockIQ2_XXS>;
using PackedIQ2_XS = Raw<BlockIQ2_XS>;
using PackedIQ2_S = Raw<BlockIQ2_S>;
using PackedIQ3_XXS = Raw<BlockIQ3_XXS>;
using PackedIQ3_S = Raw<BlockIQ3_S>;
using PackedIQ1_S = Raw<BlockIQ1_S>;
using PackedIQ1_M = Raw<BlockIQ1_M>;
using PackedTQ1_0 = Raw<BlockTQ1_0>;

template <int kColumns, int kGroup>
struct PackedG4 {
    uint16_t scales[kColumns / kGroup][kLanes];
    uint8_t zeros[kLanes];
    Nibbles quads[kColumns / 32];
};
using PackedG4_32_F16 = PackedG4<64, 32>;
using PackedG4_64_F16 = PackedG4<64, 64>;
using PackedG4_128_F16 = PackedG4<128, 128>;

template <int kGroup>
struct PackedG8 {  // q + 128
    uint16_t scale[kLanes];
    uint8_t quads[kGroup / 4][64];
};
using PackedG8_32_F16 = PackedG8<32>;
using PackedG8_64_F16 = PackedG8<64>;
using PackedG8_128_F16 = PackedG8<128>;

// Types that differ only in how their scales are read.
#define TS_SAME_LAYOUT(type)                \
    using Block##type##_BF16 = Block##type##_F16; \
    using Packed##type##_BF16 = Packed##type##_F16;
TS_SAME_LAYOUT(G4_32)
TS_SAME_LAYOUT(G4_64)
TS_SAME_LAYOUT(G4_128)
TS_SAME_LAYOUT(G8_32)
TS_SAME_LAYOUT(G8_64)
TS_SAME_LAYOUT(G8_128)
#undef TS_SAME_LAYOUT

constexpr bool has_bf16_scales(TensorType type) {
    return (type >= TensorType::G4_32_BF16 && type <= TensorType::G4_128_BF16) ||
           (type >= TensorType::G8_32_BF16 && type <= TensorType::F8_128_BF16);
}

// FP8 (E4M3) in groups. Packed: the 16 lanes' scales, then a column's 16 lanes after another.
constexpr bool is_f8(TensorType type) { return type >= TensorType::F8_32_BF16 && type <= TensorType::F8_128_F32; }
constexpr int f8_group(TensorType type) {
    return 32 << ((static_cast<int>(type) - static_cast<int>(TensorType::F8_32_BF16)) % 3);
}
constexpr int f8_scale_bytes(TensorType type) { return has_bf16_scales(type) ? 2 : 4; }

// Types that prompt rows are multiplied with in bfloat16: the low-bit ones, and what is bfloat16 itself. Of the others the
// file has digits that bfloat16 does not.
constexpr bool has_prefill(TensorType type) {
    return type != TensorType::F32 && type != TensorType::F16 && !is_f8(type);
}

// Every packed type and its columns a block.
#define TS_PACKED_TYPES(X)                                                                                    \
    X(Q4_0, 32) X(Q4_1, 32) X(Q5_0, 32) X(Q5_1, 32) X(Q8_0, 32) X(IQ4_NL, 32) X(MXFP4, 32)                    \
    X(Q2_K, 256) X(Q3_K, 256) X(Q4_K, 256) X(Q5_K, 256) X(Q6_K, 256) X(IQ4_XS, 256) X(TQ2_0, 256)             \
    X(IQ2_XXS, 256) X(IQ2_XS, 256) X(IQ2_S, 256) X(IQ3_XXS, 256) X(IQ3_S, 256) X(IQ1_S, 256) X(IQ1_M, 256)    \
    X(TQ1_0, 256) X(G4_32_F16, 64) X(G4_64_F16, 64) X(G4_128_F16, 128) X(G4_32_BF16, 64) X(G4_64_BF16, 64)    \
    X(G4_128_BF16, 128) X(G8_32_F16, 32) X(G8_64_F16, 64) X(G8_128_F16, 128) X(G8_32_BF16, 32)                \
    X(G8_64_BF16, 64) X(G8_128_BF16, 128)

#define TS_ASSERT_SIZE(type, columns) static_assert(sizeof(Packed##type) == kLanes * sizeof(Block##type));
TS_PACKED_TYPES(TS_ASSERT_SIZE)
#undef TS_ASSERT_SIZE

// Types kept as floats: no activation is rounded for them.
constexpr bool is_float(TensorType type) {
    return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16 || is_f8(type);
}

constexpr int columns_per_block(TensorType type) {
    switch (type) {
#define TS_COLUMNS(type, columns) \
    case TensorType::type: return columns;
        TS_PACKED_TYPES(TS_COLUMNS)
#undef TS_COLUMNS
        default: return is_f8(type) ? f8_group(type) : 1;
    }
}

// Bytes of one block of one row; a packed block of 16 rows has 16 times as many.
constexpr size_t bytes_per_block(TensorType type) {
    switch (type) {
#define TS_BYTES(type, columns) \
    case TensorType::type: return sizeof(Block##type);
        TS_PACKED_TYPES(TS_BYTES)
#undef TS_BYTES
        default: return is_f8(type) ? static_cast<size_t>(f8_group(type) + f8_scale_bytes(type))
                                    : type == TensorType::F32 ? 4 : 2;
    }
}

}  // namespace twostroke
