#include "pack.h"

#include <cstring>

namespace twostroke {

namespace {

uint32_t load32(const uint8_t* p) {
    uint32_t word;
    std::memcpy(&word, p, 4);
    return word;
}

void store32(uint8_t* vector, int lane, uint32_t word) { std::memcpy(vector + 4 * lane, &word, 4); }

// One lane of 32 columns of nibbles: column i is a nibble of bytes[i], the high ones or the low.
void put_nibbles(Nibbles& vectors, int lane, const uint8_t* bytes, bool high) {
    for (int v = 0; v < 4; ++v) {
        const uint32_t even = load32(bytes + 8 * v), odd = load32(bytes + 8 * v + 4);
        store32(vectors[v], lane, high ? ((even >> 4) & 0x0f0f0f0fu) | (odd & 0xf0f0f0f0u)
                                       : (even & 0x0f0f0f0fu) | ((odd & 0x0f0f0f0fu) << 4));
    }
}

// The same where byte i holds columns i and i + 16.
void put_split_nibbles(Nibbles& vectors, int lane, const uint8_t (&bytes)[16]) {
    uint8_t columns[32];
    for (int i = 0; i < 16; ++i) {
        columns[i] = bytes[i] & 15;
        columns[i + 16] = bytes[i] >> 4;
    }
    put_nibbles(vectors, lane, columns, false);
}

// One lane of 16 columns of 2 bits: column i is bits `shift`, `shift` + 1 of bytes[i].
void put_pairs(Pairs& vector, int lane, const uint8_t* bytes, int shift) {
    uint32_t word = 0;
    for (int g = 0; g < 4; ++g) word |= ((load32(bytes + 4 * g) >> shift) & 0x03030303u) << (2 * g);
    store32(vector, lane, word);
}

// One lane of 32 columns of 1 bit: column i is bit `shift` of bytes[i].
void put_bits(Bits& vector, int lane, const uint8_t* bytes, int shift) {
    uint32_t word = 0;
    for (int g = 0; g < 8; ++g) word |= ((load32(bytes + 4 * g) >> shift) & 0x01010101u) << g;
    store32(vector, lane, word);
}

// The same from a word whose bit i is column i.
void put_word_bits(Bits& vector, int lane, uint32_t bits) {
    uint8_t columns[32];
    for (int i = 0; i < 32; ++i) columns[i] = (bits >> i) & 1;
    put_bits(vector, lane, columns, 0);
}

template <class Packed>
void put_scales(Packed& out, int lane, const uint8_t (&scales)[12]) {
    for (int word = 0; word < 3; ++word) out.scales[word][lane] = load32(scales + 4 * word);
}

void pack(const BlockQ4_0& b, int lane, PackedQ4_0& out) {
    out.d[lane] = b.d;
    put_split_nibbles(out.quads, lane, b.qs);
}

void pack(const BlockQ4_1& b, int lane, PackedQ4_1& out) {
    out.d[lane] = b.d;
    out.m[lane] = b.m;
    put_split_nibbles(out.quads, lane, b.qs);
}

void pack(const BlockQ5_0& b, int lane, PackedQ5_0& out) {
    out.d[lane] = b.d;
    put_split_nibbles(out.quads, lane, b.qs);
    put_word_bits(out.fifth, lane, load32(b.qh));
}

void pack(const BlockQ5_1& b, int lane, PackedQ5_1& out) {
    out.d[lane] = b.d;
    out.m[lane] = b.m;
    put_split_nibbles(out.quads, lane, b.qs);
    put_word_bits(out.fifth, lane, load32(b.qh));
}

void pack(const BlockQ8_0& b, int lane, PackedQ8_0& out) {
    out.d[lane] = b.d;
    for (int quad = 0; quad < 8; ++quad)
        store32(out.quads[quad], lane, load32(reinterpret_cast<const uint8_t*>(b.qs) + 4 * quad) ^ 0x80808080u);
}

void pack(const BlockIQ4_NL& b, int lane, PackedIQ4_NL& out) {
    out.d[lane] = b.d;
    put_split_nibbles(out.quads, lane, b.qs);
}

void pack(const BlockMXFP4& b, int lane, PackedMXFP4& out) {
    out.e[lane] = b.e;
    put_split_nibbles(out.quads, lane, b.qs);
}

// Within 128 columns, byte i of 32 holds columns i, i + 32, i + 64, i + 96 in its bit pairs from the lowest up.
void pack(const BlockQ2_K& b, int lane, PackedQ2_K& out) {
    out.d[lane] = b.d;
    out.dmin[lane] = b.dmin;
    for (int i = 0; i < 16; ++i) {
        out.scales[i][lane] = b.scales[i];
        put_pairs(out.quads[i], lane, b.qs + 32 * (i / 8) + 16 * (i % 2), 2 * (i / 2 % 4));
    }
}

void pack(const BlockTQ2_0& b, int lane, PackedTQ2_0& out) {
    out.d[lane] = b.d;
    for (int i = 0; i < 16; ++i) put_pairs(out.quads[i], lane, b.qs + 32 * (i / 8) + 16 * (i % 2), 2 * (i / 2 % 4));
}

void pack(const BlockQ3_K& b, int lane, PackedQ3_K& out) {
    out.d[lane] = b.d;
    put_scales(out, lane, b.scales);
    for (int sub = 0; sub < 8; ++sub) {
        for (int h = 0; h < 2; ++h)
            put_pairs(out.parts[sub].low[h], lane, b.qs + 32 * (sub / 4) + 16 * h, 2 * (sub % 4));
        put_bits(out.parts[sub].high, lane, b.hmask, sub);
    }
}

void pack(const BlockQ4_K& b, int lane, PackedQ4_K& out) {
    out.d[lane] = b.d;
    out.dmin[lane] = b.dmin;
    put_scales(out, lane, b.scales);
    for (int sub = 0; sub < 8; ++sub) put_nibbles(out.quads[sub], lane, b.qs + 32 * (sub / 2), sub % 2 != 0);
}

void pack(const BlockQ5_K& b, int lane, PackedQ5_K& out) {
    out.d[lane] = b.d;
    out.dmin[lane] = b.dmin;
    put_scales(out, lane, b.scales);
    for (int sub = 0; sub < 8; ++sub) {
        put_nibbles(out.parts[sub].quads, lane, b.qs + 32 * (sub / 2), sub % 2 != 0);
        put_bits(out.parts[sub].fifth, lane, b.qh, sub);
    }
}

// Within 128 columns, quarter q of 32 columns has its low bits in ql[32 * (q % 2)...], low nibbles for the first two
// quarters and high ones for the others, and its high bits at bits 2q of qh.
void pack(const BlockQ6_K& b, int lane, PackedQ6_K& out) {
    out.d[lane] = b.d;
    for (int i = 0; i < 16; ++i) out.scales[i][lane] = b.scales[i];
    for (int sub = 0; sub < 8; ++sub) {
        const int half = sub / 4, quarter = sub % 4;
        put_nibbles(out.parts[sub].low, lane, b.ql + 64 * half + 32 * (quarter % 2), quarter >= 2);
        for (int h = 0; h < 2; ++h) put_pairs(out.parts[sub].high[h], lane, b.qh + 32 * half + 16 * h, 2 * quarter);
    }
}

void pack(const BlockIQ4_XS& b, int lane, PackedIQ4_XS& out) {
    out.d[lane] = b.d;
    out.scales_h[lane] = b.scales_h;
    out.scales_l[lane] = load32(b.scales_l);
    for (int sub = 0; sub < 8; ++sub) {
        uint8_t bytes[16];
        std::memcpy(bytes, b.qs + 16 * sub, 16);
        put_split_nibbles(out.quads[sub], lane, bytes);
    }
}

template <int kColumns, int kGroup>
void pack(const BlockG4<kColumns, kGroup>& b, int lane, PackedG4<kColumns, kGroup>& out) {
    for (int i = 0; i < kColumns / kGroup; ++i) std::memcpy(&out.scales[i][lane], b.scales[i], 2);
    out.zeros[lane] = b.zeros;
    for (int sub = 0; sub < kColumns / 32; ++sub) {
        uint8_t bytes[16];
        std::memcpy(bytes, b.qs + 16 * sub, 16);
        put_split_nibbles(out.quads[sub], lane, bytes);
    }
}

template <int kGroup>
void pack(const BlockG8<kGroup>& b, int lane, PackedG8<kGroup>& out) {
    out.scale[lane] = b.scale;
    for (int quad = 0; quad < kGroup / 4; ++quad)
        store32(out.quads[quad], lane, load32(reinterpret_cast<const uint8_t*>(b.qs) + 4 * quad) ^ 0x80808080u);
}

template <class Block>
void pack(const Block& b, int lane, Raw<Block>& out) {
    out.lanes[lane] = b;
}

template <class Block, class Packed>
void pack_blocks(const uint8_t* source, int64_t blocks, int lanes, uint8_t* out) {
    if (lanes < kLanes) std::memset(out, 0, static_cast<size_t>(blocks) * sizeof(Packed));
    for (int64_t i = 0; i < blocks; ++i)
        for (int lane = 0; lane < lanes; ++lane) {
            Block block;
            std::memcpy(&block, source + static_cast<size_t>(lane * blocks + i) * sizeof(Block), sizeof(Block));
            pack(block, lane, reinterpret_cast<Packed*>(out)[i]);
        }
}

// Columns one after another, the 16 lanes of each side by side.
template <class T>
void pack_floats(const uint8_t* source, int64_t cols, int lanes, uint8_t* out) {
    if (lanes < kLanes) std::memset(out, 0, static_cast<size_t>(cols) * kLanes * sizeof(T));
    for (int64_t i = 0; i < cols; ++i)
        for (int lane = 0; lane < lanes; ++lane)
            std::memcpy(out + static_cast<size_t>(i * kLanes + lane) * sizeof(T),
                        source + static_cast<size_t>(lane * cols + i) * sizeof(T), sizeof(T));
}

void pack_f8(TensorType type, const uint8_t* source, int64_t blocks, int lanes, uint8_t* out) {
    const auto group = static_cast<size_t>(f8_group(type)), scale = static_cast<size_t>(f8_scale_bytes(type));
    const size_t bytes = group + scale;
    if (lanes < kLanes) std::memset(out, 0, static_cast<size_t>(blocks) * bytes * kLanes);
    for (int64_t i = 0; i < blocks; ++i, out += bytes * kLanes)
        for (int lane = 0; lane < lanes; ++lane) {
            const uint8_t* block = source + static_cast<size_t>(lane * blocks + i) * bytes;
            std::memcpy(out + static_cast<size_t>(lane) * scale, block, scale);
            for (size_t c = 0; c < group; ++c) out[scale * kLanes + c * kLanes + static_cast<size_t>(lane)] = block[scale + c];
        }
}

}  // namespace

size_t packed_group_bytes(TensorType type, int64_t cols) {
    return static_cast<size_t>(cols / columns_per_block(type)) * bytes_per_block(type) * kLanes;
}

void pack_group(TensorType type, const uint8_t* source, int64_t rows, int64_t cols, int64_t group, uint8_t* out) {
    const int64_t first = group * kLanes, left = rows - first, blocks = cols / columns_per_block(type);
    const int lanes = static_cast<int>(left < kLanes ? left : kLanes);
    source += static_cast<size_t>(first * blocks) * bytes_per_block(type);
    switch (type) {
        case TensorType::F32: return pack_floats<float>(source, cols, lanes, out);
        case TensorType::F16:
        case TensorType::BF16: return pack_floats<uint16_t>(source, cols, lanes, out);
#define TS_PACK(type, columns) \
    case TensorType::type: return pack_blocks<Block##type, Packed##type>(source, blocks, lanes, out);
            TS_PACKED_TYPES(TS_PACK)
#undef TS_PACK
        default: return pack_f8(type, source, blocks, lanes, out);
    }
}

}  // namespace twostroke
