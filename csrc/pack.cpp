#include "pack.h"

#include <cstring>

#include "half.h"

namespace twostroke {

namespace {

uint32_t load32(const uint8_t* p) {
    uint32_t word;
    std::memcpy(&word, p, 4);
    return word;
}

// One lane of four nibble vectors: 32 columns, of which column i is a nibble of bytes[i], the high ones or the low.
void put_nibbles(uint8_t (*vectors)[64], int lane, const uint8_t* bytes, bool high) {
    for (int v = 0; v < 4; ++v) {
        const uint32_t even = load32(bytes + 8 * v), odd = load32(bytes + 8 * v + 4);
        const uint32_t word = high ? ((even >> 4) & 0x0f0f0f0fu) | (odd & 0xf0f0f0f0u)
                                   : (even & 0x0f0f0f0fu) | ((odd & 0x0f0f0f0fu) << 4);
        std::memcpy(vectors[v] + 4 * lane, &word, 4);
    }
}

int get_nibble(const uint8_t (*vectors)[64], int column, int lane) {
    const int quad = column / 4, byte = 4 * lane + column % 4;
    return (vectors[quad / 2][byte] >> (4 * (quad % 2))) & 15;
}

void pack(const BlockQ4_1& b, int lane, PackedQ4_1& out) {
    out.d[lane] = b.d;
    out.m[lane] = b.m;
    uint8_t columns[32];
    for (int i = 0; i < 16; ++i) {
        columns[i] = b.qs[i] & 15;
        columns[i + 16] = b.qs[i] >> 4;
    }
    put_nibbles(out.quads, lane, columns, false);
}

void pack(const BlockQ8_0& b, int lane, PackedQ8_0& out) {
    out.d[lane] = b.d;
    for (int quad = 0; quad < 8; ++quad) {
        const uint32_t word = load32(reinterpret_cast<const uint8_t*>(b.qs) + 4 * quad) ^ 0x80808080u;
        std::memcpy(out.quads[quad] + 4 * lane, &word, 4);
    }
}

void pack(const BlockQ4_K& b, int lane, PackedQ4_K& out) {
    out.d[lane] = b.d;
    out.dmin[lane] = b.dmin;
    for (int word = 0; word < 3; ++word) std::memcpy(&out.scales[word][lane], b.scales + 4 * word, 4);
    for (int sub = 0; sub < 8; ++sub) put_nibbles(out.quads[sub], lane, b.qs + 32 * (sub / 2), sub % 2 != 0);
}

// The file's order: within 128 columns, quarter q of 32 columns has its low bits in ql[32 * (q % 2)...], low nibbles
// for the first two quarters and high ones for the others, and its high bits at bits 2q of qh.
void pack(const BlockQ6_K& b, int lane, PackedQ6_K& out) {
    out.d[lane] = b.d;
    for (int i = 0; i < 16; ++i) out.scales[i][lane] = b.scales[i];
    for (int sub = 0; sub < 8; ++sub) {
        const int half = sub / 4, quarter = sub % 4;
        put_nibbles(out.parts[sub].low, lane, b.ql + 64 * half + 32 * (quarter % 2), quarter >= 2);
        for (int h = 0; h < 2; ++h) {
            uint32_t word = 0;
            for (int g = 0; g < 4; ++g)
                word |= ((load32(b.qh + 32 * half + 16 * h + 4 * g) >> (2 * quarter)) & 0x03030303u) << (2 * g);
            std::memcpy(out.parts[sub].high[h] + 4 * lane, &word, 4);
        }
    }
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

void pack_f32(const uint8_t* source, int64_t cols, int lanes, uint8_t* out) {
    std::memset(out, 0, static_cast<size_t>(cols) * kLanes * sizeof(float));
    for (int lane = 0; lane < lanes; ++lane)
        for (int64_t i = 0; i < cols; ++i)
            std::memcpy(out + (i * kLanes + lane) * 4, source + (lane * cols + i) * 4, 4);
}

void unpack(const PackedQ4_1& b, int lane, float* out) {
    const float d = f16_to_f32(b.d[lane]), m = f16_to_f32(b.m[lane]);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(get_nibble(b.quads, i, lane)) + m;
}

void unpack(const PackedQ8_0& b, int lane, float* out) {
    const float d = f16_to_f32(b.d[lane]);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(b.quads[i / 4][4 * lane + i % 4] - 128);
}

void unpack(const PackedQ4_K& b, int lane, float* out) {
    const float d = f16_to_f32(b.d[lane]), dmin = f16_to_f32(b.dmin[lane]);
    uint8_t s[12];
    for (int word = 0; word < 3; ++word) std::memcpy(s + 4 * word, &b.scales[word][lane], 4);
    for (int sub = 0; sub < 8; ++sub) {
        const int j = sub % 4;
        const int scale = sub < 4 ? s[j] & 63 : (s[8 + j] & 15) | ((s[j] >> 6) << 4);
        const int minimum = sub < 4 ? s[4 + j] & 63 : (s[8 + j] >> 4) | ((s[4 + j] >> 6) << 4);
        const float ds = d * static_cast<float>(scale), dm = dmin * static_cast<float>(minimum);
        for (int i = 0; i < 32; ++i) out[32 * sub + i] = ds * static_cast<float>(get_nibble(b.quads[sub], i, lane)) - dm;
    }
}

void unpack(const PackedQ6_K& b, int lane, float* out) {
    const float d = f16_to_f32(b.d[lane]);
    for (int column = 0; column < 256; ++column) {
        const int sub = column / 32, in_sub = column % 32;
        const int high = b.parts[sub].high[in_sub / 16][4 * lane + column % 4] >> (2 * (in_sub % 16 / 4));
        const int value = (get_nibble(b.parts[sub].low, in_sub, lane) | ((high & 3) << 4)) - 32;
        out[column] = d * static_cast<float>(b.scales[column / 16][lane]) * static_cast<float>(value);
    }
}

template <class Packed>
void unpack_blocks(const uint8_t* group, int64_t blocks, int lane, int columns, float* out) {
    for (int64_t i = 0; i < blocks; ++i) unpack(reinterpret_cast<const Packed*>(group)[i], lane, out + i * columns);
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
        case TensorType::F32: return pack_f32(source, cols, lanes, out);
        case TensorType::Q4_1: return pack_blocks<BlockQ4_1, PackedQ4_1>(source, blocks, lanes, out);
        case TensorType::Q8_0: return pack_blocks<BlockQ8_0, PackedQ8_0>(source, blocks, lanes, out);
        case TensorType::Q4_K: return pack_blocks<BlockQ4_K, PackedQ4_K>(source, blocks, lanes, out);
        case TensorType::Q6_K: return pack_blocks<BlockQ6_K, PackedQ6_K>(source, blocks, lanes, out);
    }
}

void unpack_row(const PackedMatrix& m, int64_t row, float* out) {
    const uint8_t* group = m.data + static_cast<size_t>(row / kLanes) * m.group_bytes;
    const int lane = static_cast<int>(row % kLanes);
    const int64_t blocks = m.cols / columns_per_block(m.type);
    switch (m.type) {
        case TensorType::F32:
            for (int64_t i = 0; i < m.cols; ++i) out[i] = reinterpret_cast<const float*>(group)[i * kLanes + lane];
            return;
        case TensorType::Q4_1: return unpack_blocks<PackedQ4_1>(group, blocks, lane, 32, out);
        case TensorType::Q8_0: return unpack_blocks<PackedQ8_0>(group, blocks, lane, 32, out);
        case TensorType::Q4_K: return unpack_blocks<PackedQ4_K>(group, blocks, lane, 256, out);
        case TensorType::Q6_K: return unpack_blocks<PackedQ6_K>(group, blocks, lane, 256, out);
    }
}

}  // namespace twostroke
