// How each packed block type becomes 32 columns of unsigned bytes and scales: all that the linear skeleton knows of it.
namespace twostroke {
namespace TS_ISA {

// 32 columns of 16 matrix rows: unsigned integers and what makes weights of them. A panel's load() fills in `quads`
// and `scale[0]`, and what its constants say: kHalves, `scale[1]` for the last 16 columns; kAffine, `minimum` likewise.
// A weight is scale * (quad - kOffset), or with kAffine scale * quad + minimum. kAllScales: whoever reads whole blocks in
// order can have the scales of all 8 sub-blocks at once, load_all_scales(), and only the quads of each, load_quads().
// kMost: no quad is larger.
struct Columns {
    const int8_t* codebook;  // the matrix's
    bool bf16_scales;
    Bytes64 quads[8];
    F32x16 scale[2], minimum[2];
};

TS_INLINE F32x16 negated(F32x16 x) { return f_sub(f_set(0.0f), x); }

TS_INLINE void load_nibbles(const Nibbles& vectors, Bytes64* quads) {
    for (int v = 0; v < 4; ++v) {
        const Bytes64 both = b_load(vectors[v]);
        quads[2 * v] = b_low4(both);
        quads[2 * v + 1] = b_high4(both);
    }
}

TS_INLINE void load_pairs(const Pairs& vector, Bytes64* quads) {
    const Bytes64 pairs = b_load(vector);
    quads[0] = b_pair<0, 0>(pairs);
    quads[1] = b_pair<1, 0>(pairs);
    quads[2] = b_pair<2, 0>(pairs);
    quads[3] = b_pair<3, 0>(pairs);
}

// Adds two bits above four.
TS_INLINE void add_pairs(const Pairs& vector, Bytes64* quads) {
    const Bytes64 pairs = b_load(vector);
    quads[0] = b_or(quads[0], b_pair<0, 4>(pairs));
    quads[1] = b_or(quads[1], b_pair<1, 4>(pairs));
    quads[2] = b_or(quads[2], b_pair<2, 4>(pairs));
    quads[3] = b_or(quads[3], b_pair<3, 4>(pairs));
}

// Adds one bit at position `to`.
template <int to>
TS_INLINE void add_bits(const Bits& vector, Bytes64* quads) {
    const Bytes64 bits = b_load(vector);
    quads[0] = b_or(quads[0], b_bit<0, to>(bits));
    quads[1] = b_or(quads[1], b_bit<1, to>(bits));
    quads[2] = b_or(quads[2], b_bit<2, to>(bits));
    quads[3] = b_or(quads[3], b_bit<3, to>(bits));
    quads[4] = b_or(quads[4], b_bit<4, to>(bits));
    quads[5] = b_or(quads[5], b_bit<5, to>(bits));
    quads[6] = b_or(quads[6], b_bit<6, to>(bits));
    quads[7] = b_or(quads[7], b_bit<7, to>(bits));
}

TS_INLINE void look_up(const uint8_t* table, Bytes64* quads) {
    for (int i = 0; i < 8; ++i) quads[i] = b_lookup(table, quads[i]);
}

// Values of 4-bit codes, 128 added: IQ4's non-linear table, and FP4 (E2M1) doubled.
static const uint8_t kIq4Table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t kFp4Table[16] = {128, 129, 130, 131, 132, 134, 136, 140, 128, 127, 126, 125, 124, 122, 120, 116};

template <int columns, int offset, bool halves, bool affine>
struct Panel {
    static constexpr int kColumns = columns, kOffset = offset;
    static constexpr bool kHalves = halves, kAffine = affine, kAllScales = false;
    static constexpr int kMost = 255;
};

// --- blocks of 32 ------------------------------------------------------------------------------------------------------

struct PanelQ4_0 : Panel<32, 8, false, false> {
    static constexpr int kMost = 15;
    TS_INLINE void load(const PackedQ4_0& b, int, Columns& c) {
        load_nibbles(b.quads, c.quads);
        c.scale[0] = f_load_f16(b.d);
    }
};

struct PanelQ4_1 : Panel<32, 0, false, true> {
    static constexpr int kMost = 15;
    TS_INLINE void load(const PackedQ4_1& b, int, Columns& c) {
        load_nibbles(b.quads, c.quads);
        c.scale[0] = f_load_f16(b.d);
        c.minimum[0] = f_load_f16(b.m);
    }
};

struct PanelQ5_0 : Panel<32, 16, false, false> {
    static constexpr int kMost = 31;
    TS_INLINE void load(const PackedQ5_0& b, int, Columns& c) {
        load_nibbles(b.quads, c.quads);
        add_bits<4>(b.fifth, c.quads);
        c.scale[0] = f_load_f16(b.d);
    }
};

struct PanelQ5_1 : Panel<32, 0, false, true> {
    static constexpr int kMost = 31;
    TS_INLINE void load(const PackedQ5_1& b, int, Columns& c) {
        load_nibbles(b.quads, c.quads);
        add_bits<4>(b.fifth, c.quads);
        c.scale[0] = f_load_f16(b.d);
        c.minimum[0] = f_load_f16(b.m);
    }
};

struct PanelQ8_0 : Panel<32, 128, false, false> {
    TS_INLINE void load(const PackedQ8_0& b, int, Columns& c) {
        for (int i = 0; i < 8; ++i) c.quads[i] = b_load(b.quads[i]);
        c.scale[0] = f_load_f16(b.d);
    }
};

struct PanelIQ4_NL : Panel<32, 128, false, false> {
    TS_INLINE void load(const PackedIQ4_NL& b, int, Columns& c) {
        load_nibbles(b.quads, c.quads);
        look_up(kIq4Table, c.quads);
        c.scale[0] = f_load_f16(b.d);
    }
};

struct PanelMXFP4 : Panel<32, 128, false, false> {
    TS_INLINE void load(const PackedMXFP4& b, int, Columns& c) {
        load_nibbles(b.quads, c.quads);
        look_up(kFp4Table, c.quads);
        // 2^(e - 128), halved because the table is doubled: two factors, since either end has no normal float.
        const I32x16 e = i_load_u8(b.e), half = i_shr(e, 1);
        const F32x16 low = bits_f32(i_shl(i_add(half, i_set(63)), 23));
        const F32x16 high = bits_f32(i_shl(i_add(i_add(half, i_and(e, 1)), i_set(63)), 23));
        c.scale[0] = f_mul(low, high);
    }
};

// --- super-blocks of 256 -----------------------------------------------------------------------------------------------

struct PanelQ2_K : Panel<256, 0, true, true> {
    static constexpr int kMost = 3;
    TS_INLINE void load(const PackedQ2_K& b, int sub, Columns& c) {
        const F32x16 d = f_load_f16(b.d), dmin = negated(f_load_f16(b.dmin));
        for (int h = 0; h < 2; ++h) {
            const I32x16 both = i_load_u8(b.scales[2 * sub + h]);
            load_pairs(b.quads[2 * sub + h], c.quads + 4 * h);
            c.scale[h] = f_mul(d, to_f32(i_and(both, 15)));
            c.minimum[h] = f_mul(dmin, to_f32(i_shr(both, 4)));
        }
    }
};

struct PanelQ3_K : Panel<256, 4, true, false> {
    static constexpr int kMost = 7;
    TS_INLINE void load(const PackedQ3_K& b, int sub, Columns& c) {
        const F32x16 d = f_load_f16(b.d);
        for (int h = 0; h < 2; ++h) {  // scale i: low 4 bits in byte i % 8 (high nibble from 8 on), high 2 in byte 8 + i % 4
            const int i = 2 * sub + h, at = i % 8;
            const I32x16 low = i_and(i_shr(i_load(b.scales[at / 4]), 8 * (at % 4) + (i < 8 ? 0 : 4)), 15);
            const I32x16 high = i_and(i_shr(i_load(b.scales[2]), 8 * (i % 4) + 2 * (i / 4)), 3);
            load_pairs(b.parts[sub].low[h], c.quads + 4 * h);
            c.scale[h] = f_mul(d, to_f32(i_add(i_or(low, i_shl(high, 4)), i_set(-32))));
        }
        add_bits<2>(b.parts[sub].high, c.quads);
    }
};

// Scale and minimum of sub-block `sub` in the 12 bytes that Q4_K and Q5_K share.
template <class Packed>
TS_INLINE void load_scales(const Packed& b, int sub, Columns& c) {
    const int shift = 8 * (sub % 4);
    const I32x16 s0 = i_load(b.scales[0]), s1 = i_load(b.scales[1]), s2 = i_load(b.scales[2]);
    I32x16 scale, minimum;
    if (sub < 4) {
        scale = i_and(i_shr(s0, shift), 63);
        minimum = i_and(i_shr(s1, shift), 63);
    } else {
        scale = i_or(i_and(i_shr(s2, shift), 15), i_shl(i_and(i_shr(s0, shift + 6), 3), 4));
        minimum = i_or(i_and(i_shr(s2, shift + 4), 15), i_shl(i_and(i_shr(s1, shift + 6), 3), 4));
    }
    c.scale[0] = f_mul(f_load_f16(b.d), to_f32(scale));
    c.minimum[0] = f_mul(negated(f_load_f16(b.dmin)), to_f32(minimum));
}

// The same of all 8 sub-blocks, (scale, minimum): shifts are constants, and d and dmin are converted once.
using AllScales = F32x16[8][2];
template <class Packed>
TS_INLINE void load_all_scales(const Packed& b, AllScales& all) {
    const F32x16 d = f_load_f16(b.d), dmin = negated(f_load_f16(b.dmin));
    const I32x16 s0 = i_load(b.scales[0]), s1 = i_load(b.scales[1]), s2 = i_load(b.scales[2]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const int shift = 8 * i;
        all[i][0] = f_mul(d, to_f32(i_and(i_shr(s0, shift), 63)));
        all[i][1] = f_mul(dmin, to_f32(i_and(i_shr(s1, shift), 63)));
        all[i + 4][0] = f_mul(d, to_f32(i_or(i_and(i_shr(s2, shift), 15), i_and(i_shr(s0, shift + 2), 48))));
        all[i + 4][1] = f_mul(dmin, to_f32(i_or(i_and(i_shr(s2, shift + 4), 15), i_and(i_shr(s1, shift + 2), 48))));
    }
}

struct PanelQ4_K : Panel<256, 0, false, true> {
    static constexpr int kMost = 15;
    static constexpr bool kAllScales = true;
    TS_INLINE void load_quads(const PackedQ4_K& b, int sub, Columns& c) { load_nibbles(b.quads[sub], c.quads); }
    TS_INLINE void load(const PackedQ4_K& b, int sub, Columns& c) {
        load_quads(b, sub, c);
        load_scales(b, sub, c);
    }
};

struct PanelQ5_K : Panel<256, 0, false, true> {
    static constexpr int kMost = 31;
    static constexpr bool kAllScales = true;
    TS_INLINE void load_quads(const PackedQ5_K& b, int sub, Columns& c) {
        load_nibbles(b.parts[sub].quads, c.quads);
        add_bits<4>(b.parts[sub].fifth, c.quads);
    }
    TS_INLINE void load(const PackedQ5_K& b, int sub, Columns& c) {
        load_quads(b, sub, c);
        load_scales(b, sub, c);
    }
};

struct PanelQ6_K : Panel<256, 32, true, false> {
    static constexpr int kMost = 63;
    TS_INLINE void load(const PackedQ6_K& b, int sub, Columns& c) {
        const F32x16 d = f_load_f16(b.d);
        load_nibbles(b.parts[sub].low, c.quads);
        for (int h = 0; h < 2; ++h) {
            add_pairs(b.parts[sub].high[h], c.quads + 4 * h);
            c.scale[h] = f_mul(d, to_f32(i_load_i8(b.scales[2 * sub + h])));
        }
    }
};

struct PanelIQ4_XS : Panel<256, 128, false, false> {
    TS_INLINE void load(const PackedIQ4_XS& b, int sub, Columns& c) {
        load_nibbles(b.quads[sub], c.quads);
        look_up(kIq4Table, c.quads);
        const I32x16 low = i_and(i_shr(i_load(b.scales_l), 4 * sub), 15);
        const I32x16 high = i_and(i_shr(i_load_u16(b.scales_h), 2 * sub), 3);
        c.scale[0] = f_mul(f_load_f16(b.d), to_f32(i_add(i_or(low, i_shl(high, 4)), i_set(-32))));
    }
};

struct PanelTQ2_0 : Panel<256, 1, false, false> {
    static constexpr int kMost = 3;
    TS_INLINE void load(const PackedTQ2_0& b, int sub, Columns& c) {
        load_pairs(b.quads[2 * sub], c.quads);
        load_pairs(b.quads[2 * sub + 1], c.quads + 4);
        c.scale[0] = f_load_f16(b.d);
    }
};

// --- groups ------------------------------------------------------------------------------------------------------------

TS_INLINE F32x16 load_scale(const uint16_t* p, const Columns& c) { return c.bf16_scales ? f_load_bf16(p) : f_load_f16(p); }

template <int columns, int group>
struct PanelG4 : Panel<columns, 0, false, true> {
    static constexpr int kMost = 15;
    TS_INLINE void load(const PackedG4<columns, group>& b, int sub, Columns& c) {
        const int index = sub * 32 / group;
        load_nibbles(b.quads[sub], c.quads);
        c.scale[0] = load_scale(b.scales[index], c);
        const I32x16 zero = i_and(i_shr(i_load_u8(b.zeros), 4 * index), 15);
        c.minimum[0] = negated(f_mul(c.scale[0], to_f32(zero)));
    }
};
using PanelG4_32_F16 = PanelG4<64, 32>;
using PanelG4_64_F16 = PanelG4<64, 64>;
using PanelG4_128_F16 = PanelG4<128, 128>;
using PanelG4_32_BF16 = PanelG4_32_F16;
using PanelG4_64_BF16 = PanelG4_64_F16;
using PanelG4_128_BF16 = PanelG4_128_F16;

template <int group>
struct PanelG8 : Panel<group, 128, false, false> {
    TS_INLINE void load(const PackedG8<group>& b, int sub, Columns& c) {
        for (int i = 0; i < 8; ++i) c.quads[i] = b_load(b.quads[8 * sub + i]);
        c.scale[0] = load_scale(b.scale, c);
    }
};
using PanelG8_32_F16 = PanelG8<32>;
using PanelG8_64_F16 = PanelG8<64>;
using PanelG8_128_F16 = PanelG8<128>;
using PanelG8_32_BF16 = PanelG8_32_F16;
using PanelG8_64_BF16 = PanelG8_64_F16;
using PanelG8_128_BF16 = PanelG8_128_F16;

// 16 lanes of E4M3: shifted to float32's places they are 2^-120 of the value; 0x7f and 0xff are NaN.
TS_INLINE F32x16 load_e4m3(const uint8_t* p) {
    const I32x16 bytes = i_load_u8(p);
    const F32x16 size = f_mul(bits_f32(i_shl(i_and(bytes, 0x7f), 20)), f_set(0x1p120f));
    const F32x16 invalid = f_zero_below(f_set(__builtin_nanf("")), size, f_set(480.0f));
    return bits_f32(i_or(i_bits(f_add(size, invalid)), i_shl(i_and(bytes, 0x80), 24)));
}

TS_INLINE F32x16 load_f8_scale(TensorType type, const uint8_t* p) {
    return has_bf16_scales(type) ? f_load_bf16(reinterpret_cast<const uint16_t*>(p)) : f_load(reinterpret_cast<const float*>(p));
}

}  // namespace TS_ISA
}  // namespace twostroke
