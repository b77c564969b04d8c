// Panels of codebook types: a lane's 32 columns are looked up one entry at a time. Bytes are the values with 128 added.
namespace twostroke {
namespace TS_ISA {

// Fills in columns from `decode(block, sub, codebook, values, scales)`: 32 signed values and two scales of one lane.
template <class Block, class Decode>
TS_INLINE void load_lanes(const Raw<Block>& b, int sub, Columns& c, Decode decode) {
    alignas(64) uint8_t bytes[8][64];
    alignas(64) float scale[2][16];
    for (int lane = 0; lane < kLanes; ++lane) {
        int8_t values[32];
        float scales[2];
        decode(b.lanes[lane], sub, c.codebook, values, scales);
        for (int quad = 0; quad < 8; ++quad) {
            uint32_t word;
            std::memcpy(&word, values + 4 * quad, 4);
            word ^= 0x80808080u;
            std::memcpy(bytes[quad] + 4 * lane, &word, 4);
        }
        scale[0][lane] = scales[0];
        scale[1][lane] = scales[1];
    }
    for (int quad = 0; quad < 8; ++quad) c.quads[quad] = b_load(bytes[quad]);
    c.scale[0] = f_load(scale[0]);
    c.scale[1] = f_load(scale[1]);
}

TS_INLINE uint32_t word_at(const uint8_t* p) {
    uint32_t word;
    std::memcpy(&word, p, 4);
    return word;
}

// The eight signs of a seven: the eighth makes the number of minus signs even.
TS_INLINE unsigned signs_of_seven(unsigned seven) {
    return seven | static_cast<unsigned>(__builtin_parity(seven)) << 7;
}

TS_INLINE void put_signed(const int8_t* entry, int count, unsigned signs, int8_t* out) {
    for (int i = 0; i < count; ++i) out[i] = static_cast<int8_t>((signs >> i) & 1 ? -entry[i] : entry[i]);
}

// IQ1's values are entry +- 1/8: eight times that is an integer, and the scale is an eighth.
TS_INLINE void put_shifted(const int8_t* entry, bool minus, int8_t* out) {
    for (int i = 0; i < 8; ++i) out[i] = static_cast<int8_t>(8 * entry[i] + (minus ? -1 : 1));
}

TS_INLINE void decode_iq2_xxs(const BlockIQ2_XXS& b, int sub, const int8_t* book, int8_t* values, float* scales) {
    const uint32_t head = word_at(b.qs + 8 * sub + 4);
    scales[0] = scales[1] = f16_to_f32(b.d) * (0.5f + static_cast<float>(head >> 28)) * 0.25f;
    for (int i = 0; i < 4; ++i)
        put_signed(book + 8 * b.qs[8 * sub + i], 8, signs_of_seven((head >> (7 * i)) & 127), values + 8 * i);
}

TS_INLINE void decode_iq2_xs(const BlockIQ2_XS& b, int sub, const int8_t* book, int8_t* values, float* scales) {
    for (int h = 0; h < 2; ++h)
        scales[h] = f16_to_f32(b.d) * (0.5f + static_cast<float>((b.scales[sub] >> (4 * h)) & 15)) * 0.25f;
    for (int i = 0; i < 4; ++i) {
        const unsigned code = b.qs[4 * sub + i];
        put_signed(book + 8 * (code & 511), 8, signs_of_seven(code >> 9), values + 8 * i);
    }
}

TS_INLINE void decode_iq2_s(const BlockIQ2_S& b, int sub, const int8_t* book, int8_t* values, float* scales) {
    for (int h = 0; h < 2; ++h)
        scales[h] = f16_to_f32(b.d) * (0.5f + static_cast<float>((b.scales[sub] >> (4 * h)) & 15)) * 0.25f;
    for (int i = 0; i < 4; ++i) {
        const int index = b.qs[4 * sub + i] | ((b.qh[sub] >> (2 * i)) & 3) << 8;
        put_signed(book + 8 * index, 8, b.signs[4 * sub + i], values + 8 * i);
    }
}

TS_INLINE void decode_iq3_xxs(const BlockIQ3_XXS& b, int sub, const int8_t* book, int8_t* values, float* scales) {
    const uint32_t head = word_at(b.heads + 4 * sub);
    scales[0] = scales[1] = f16_to_f32(b.d) * (0.5f + static_cast<float>(head >> 28)) * 0.5f;
    for (int i = 0; i < 8; ++i) {
        const unsigned signs = signs_of_seven((head >> (7 * (i / 2))) & 127);
        put_signed(book + 4 * b.qs[8 * sub + i], 4, signs >> (4 * (i % 2)), values + 4 * i);
    }
}

TS_INLINE void decode_iq3_s(const BlockIQ3_S& b, int sub, const int8_t* book, int8_t* values, float* scales) {
    const int scale = (b.scales[sub / 2] >> (4 * (sub % 2))) & 15;
    scales[0] = scales[1] = f16_to_f32(b.d) * static_cast<float>(1 + 2 * scale);
    for (int i = 0; i < 8; ++i) {
        const int index = b.qs[8 * sub + i] | ((b.qh[sub] >> i) & 1) << 8;
        put_signed(book + 4 * index, 4, b.signs[4 * sub + i / 2] >> (4 * (i % 2)), values + 4 * i);
    }
}

TS_INLINE void decode_iq1_s(const BlockIQ1_S& b, int sub, const int8_t* book, int8_t* values, float* scales) {
    const unsigned head = b.qh[sub];
    scales[0] = scales[1] = f16_to_f32(b.d) * static_cast<float>(2 * ((head >> 12) & 7) + 1) * 0.125f;
    for (int i = 0; i < 4; ++i)
        put_shifted(book + 8 * (b.qs[4 * sub + i] | ((head >> (3 * i)) & 7) << 8), head >> 15, values + 8 * i);
}

TS_INLINE void decode_iq1_m(const BlockIQ1_M& b, int sub, const int8_t* book, int8_t* values, float* scales) {
    unsigned bits = 0;
    for (int i = 0; i < 4; ++i) bits |= static_cast<unsigned>(b.scales[i] >> 12) << (4 * i);
    const float d = f16_to_f32(static_cast<uint16_t>(bits));
    for (int h = 0; h < 2; ++h) {
        const int i = 2 * sub + h;
        scales[h] = d * static_cast<float>(2 * ((b.scales[i / 4] >> (3 * (i % 4))) & 7) + 1) * 0.125f;
    }
    for (int i = 0; i < 4; ++i) {
        const unsigned head = (b.qh[2 * sub + i / 2] >> (4 * (i % 2))) & 15;
        put_shifted(book + 8 * (b.qs[4 * sub + i] | (head & 7) << 8), head >> 3, values + 8 * i);
    }
}

// Digit n of a byte of base-3 digits, the first being the most significant of byte / 256.
TS_INLINE int8_t digit(uint8_t byte, int n) {
    constexpr uint8_t kPower[5] = {1, 3, 9, 27, 81};
    return static_cast<int8_t>(((static_cast<uint8_t>(byte * kPower[n]) * 3) >> 8) - 1);
}

// 32 bytes hold 5 x 32 columns, 16 bytes 5 x 16, and 4 bytes 4 x 4.
TS_INLINE void decode_tq1_0(const BlockTQ1_0& b, int sub, const int8_t*, int8_t* values, float* scales) {
    scales[0] = scales[1] = f16_to_f32(b.d);
    for (int i = 0; i < 32; ++i) {
        const int column = 32 * sub + i;
        if (column < 160) {
            values[i] = digit(b.qs[i], sub);
        } else if (column < 240) {
            values[i] = digit(b.qs[32 + (column - 160) % 16], (column - 160) / 16);
        } else {
            values[i] = digit(b.qh[(column - 240) % 4], (column - 240) / 4);
        }
    }
}

#define TS_CODEBOOK_PANEL(type, decode, halves)                                                             \
    struct Panel##type : Panel<256, 128, halves, false> {                                                   \
        TS_INLINE void load(const Packed##type& b, int sub, Columns& c) {                                   \
            load_lanes(b, sub, c, [](const Block##type& block, int part, const int8_t* book, int8_t* values, \
                                     float* scales) { decode(block, part, book, values, scales); });        \
        }                                                                                                   \
    };
TS_CODEBOOK_PANEL(IQ2_XXS, decode_iq2_xxs, false)
TS_CODEBOOK_PANEL(IQ2_XS, decode_iq2_xs, true)
TS_CODEBOOK_PANEL(IQ2_S, decode_iq2_s, true)
TS_CODEBOOK_PANEL(IQ3_XXS, decode_iq3_xxs, false)
TS_CODEBOOK_PANEL(IQ3_S, decode_iq3_s, false)
TS_CODEBOOK_PANEL(IQ1_S, decode_iq1_s, false)
TS_CODEBOOK_PANEL(IQ1_M, decode_iq1_m, true)
TS_CODEBOOK_PANEL(TQ1_0, decode_tq1_0, false)
#undef TS_CODEBOOK_PANEL

}  // namespace TS_ISA
}  // namespace twostroke
