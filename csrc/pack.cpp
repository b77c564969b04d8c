#include "pack.h"

#include <cstring>

#include "half.h"

namespace twostroke {

namespace {

// Writes quad q (4 columns) of one lane into nibble vectors: vector q / 2, low or high nibbles by q % 2.
void put_nibble(uint8_t (*vectors)[64], int column, int lane, int value) {
    const int quad = column / 4, byte = 4 * lane + column % 4;
    vectors[quad / 2][byte] = static_cast<uint8_t>(vectors[quad / 2][byte] | (value << (4 * (quad % 2))));
}

int get_nibble(const uint8_t (*vectors)[64], int column, int lane) {
    const int quad = column / 4, byte = 4 * lane + column % 4;
    return (vectors[quad / 2][byte] >> (4 * (quad % 2))) & 15;
}

void pack(const BlockQ4_1& b, int lane, PackedQ4_1& out) {
    out.d[lane] = b.d;
    out.m[lane] = b.m;
    for (int i = 0; i < 16; ++i) {
        put_nibble(out.quads, i, lane, b.qs[i] & 15);
        put_nibble(out.quads, i + 16, lane, b.qs[i] >> 4);
    }
}

void pack(const BlockQ8_0& b, int lane, PackedQ8_0& out) {
    out.d[lane] = b.d;
    for (int i = 0; i < 32; ++i) out.quads[i / 4][4 * lane + i % 4] = static_cast<uint8_t>(b.qs[i] ^ 0x80);
}

void pack(const BlockQ4_K& b, int lane, PackedQ4_K& out) {
    out.d[lane] = b.d;
    out.dmin[lane] = b.dmin;
    for (int word = 0; word < 3; ++word) std::memcpy(&out.scales[word][lane], b.scales + 4 * word, 4);
    for (int i = 0; i < 128; ++i) {
        const int pair = i / 32, column = i % 32;
        put_nibble(out.quads[2 * pair], column, lane, b.qs[i] & 15);
        put_nibble(out.quads[2 * pair + 1], column, lane, b.qs[i] >> 4);
    }
}

// The file's order within 128 columns: ql[l] low and high nibbles are columns l and l + 64, ql[l + 32] those at l + 32
// and l + 96; qh[l] has the high bits of the four.
int q6_value(const BlockQ6_K& b, int column) {
    const int half = column / 128, in_half = column % 128, l = in_half % 32, quarter = in_half / 32;
    const int low_byte = b.ql[64 * half + l + 32 * (quarter % 2)];
    const int low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
    return low | (((b.qh[32 * half + l] >> (2 * quarter)) & 3) << 4);
}

void pack(const BlockQ6_K& b, int lane, PackedQ6_K& out) {
    out.d[lane] = b.d;
    for (int i = 0; i < 16; ++i) out.scales[i][lane] = b.scales[i];
    for (int column = 0; column < 256; ++column) {
        const int value = q6_value(b, column), sub = column / 32, in_sub = column % 32;
        put_nibble(out.parts[sub].low, in_sub, lane, value & 15);
        uint8_t& high = out.parts[sub].high[in_sub / 16][4 * lane + column % 4];
        high = static_cast<uint8_t>(high | ((value >> 4) << (2 * (in_sub % 16 / 4))));
    }
}

template <class Block, class Packed>
void pack_blocks(const uint8_t* source, int64_t blocks, int lanes, uint8_t* out) {
    std::memset(out, 0, static_cast<size_t>(blocks) * sizeof(Packed));
    for (int lane = 0; lane < lanes; ++lane) {
        const uint8_t* row = source + static_cast<size_t>(lane * blocks) * sizeof(Block);
        for (int64_t i = 0; i < blocks; ++i) {
            Block block;
            std::memcpy(&block, row + static_cast<size_t>(i) * sizeof(Block), sizeof(Block));
            pack(block, lane, reinterpret_cast<Packed*>(out)[i]);
        }
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
