// Matrices of packed low-bit weights times 16-bit activations: one skeleton for every block type, one row or many.
//
// 16 matrix rows are multiplied at a time by up to 8 activation rows. Within a block of 32 columns (16 for Q6_K) the
// sum is an exact integer; blocks are then scaled and added in float32 in column order. So a result depends on its
// own two rows alone, not on how many are multiplied together, and is the same on every instruction set.
namespace twostroke {
namespace TS_ISA {

// Activation rows `row` .. `row + T`, at 32-column block `block`.
struct Tile {
    const QuantRows* x;
    int64_t row;

    TS_METHOD const uint8_t* quads(int t, int64_t block) const { return x->quads + ((row + t) * x->cols + block * 32) * 2; }
    TS_METHOD float scale(int t, int64_t block) const { return x->scales[((row + t) * x->cols) / 32 + block]; }
    TS_METHOD int32_t sum16(int t, int64_t half_block) const { return x->sums[((row + t) * x->cols) / 16 + half_block]; }
    TS_METHOD int32_t sum32(int t, int64_t block) const { return sum16(t, 2 * block) + sum16(t, 2 * block + 1); }
};

TS_INLINE void unpack_nibbles(const uint8_t (*vectors)[64], Bytes64* w) {
    for (int v = 0; v < 4; ++v) {
        const Bytes64 both = b_load(vectors[v]);
        w[2 * v] = b_low4(both);
        w[2 * v + 1] = b_high4(both);
    }
}

template <int kQuads>
TS_INLINE I32x16 dot_columns(const Bytes64* w, const uint8_t* x) {
    Dot dot = dot_zero();
    for (int i = 0; i < kQuads; ++i) dot_quad(dot, w[i], x + 8 * i);
    return dot_sum(dot);
}

// acc += x_scale * (scale * sum(q x) + minimum * sum(x))
template <int T>
TS_INLINE void add_affine(const Bytes64* w, F32x16 scale, F32x16 minimum, Tile x, int64_t block, F32x16* acc) {
    for (int t = 0; t < T; ++t) {
        const F32x16 dot = to_f32(dot_columns<8>(w, x.quads(t, block)));
        const F32x16 sum = to_f32(i_set(x.sum32(t, block)));
        acc[t] = f_fma(f_fma(scale, dot, f_mul(minimum, sum)), f_set(x.scale(t, block)), acc[t]);
    }
}

struct PanelQ4_1 {
    static constexpr int kColumns = 32;
    template <int T>
    TS_INLINE void block(const uint8_t* data, Tile x, int64_t index, F32x16* acc) {
        const auto* b = reinterpret_cast<const PackedQ4_1*>(data);
        Bytes64 w[8];
        unpack_nibbles(b->quads, w);
        add_affine<T>(w, f_load_f16(b->d), f_load_f16(b->m), x, index, acc);
    }
};

struct PanelQ8_0 {
    static constexpr int kColumns = 32;
    template <int T>
    TS_INLINE void block(const uint8_t* data, Tile x, int64_t index, F32x16* acc) {
        const auto* b = reinterpret_cast<const PackedQ8_0*>(data);
        const F32x16 d = f_load_f16(b->d);
        Bytes64 w[8];
        for (int i = 0; i < 8; ++i) w[i] = b_load(b->quads[i]);
        for (int t = 0; t < T; ++t) {
            const I32x16 dot = i_add(dot_columns<8>(w, x.quads(t, index)), i_set(-128 * x.sum32(t, index)));
            acc[t] = f_fma(f_mul(d, to_f32(dot)), f_set(x.scale(t, index)), acc[t]);
        }
    }
};

struct PanelQ4_K {
    static constexpr int kColumns = 256;
    template <int T>
    TS_INLINE void block(const uint8_t* data, Tile x, int64_t index, F32x16* acc) {
        const auto* b = reinterpret_cast<const PackedQ4_K*>(data);
        const F32x16 d = f_load_f16(b->d), dmin = f_sub(f_set(0.0f), f_load_f16(b->dmin));
        const I32x16 s0 = i_load(b->scales[0]), s1 = i_load(b->scales[1]), s2 = i_load(b->scales[2]);
        for (int sub = 0; sub < 8; ++sub) {
            const int shift = 8 * (sub % 4);
            I32x16 scale, minimum;
            if (sub < 4) {
                scale = i_and(i_shr(s0, shift), 63);
                minimum = i_and(i_shr(s1, shift), 63);
            } else {
                scale = i_or(i_and(i_shr(s2, shift), 15), i_shl(i_and(i_shr(s0, shift + 6), 3), 4));
                minimum = i_or(i_and(i_shr(s2, shift + 4), 15), i_shl(i_and(i_shr(s1, shift + 6), 3), 4));
            }
            Bytes64 w[8];
            unpack_nibbles(b->quads[sub], w);
            add_affine<T>(w, f_mul(d, to_f32(scale)), f_mul(dmin, to_f32(minimum)), x, index * 8 + sub, acc);
        }
    }
};

struct PanelQ6_K {
    static constexpr int kColumns = 256;
    template <int T>
    TS_INLINE void block(const uint8_t* data, Tile x, int64_t index, F32x16* acc) {
        const auto* b = reinterpret_cast<const PackedQ6_K*>(data);
        const F32x16 d = f_load_f16(b->d);
        for (int sub = 0; sub < 8; ++sub) {
            const int64_t column_block = index * 8 + sub;
            Bytes64 w[8];
            unpack_nibbles(b->parts[sub].low, w);
            for (int h = 0; h < 2; ++h) {
                const Bytes64 high = b_load(b->parts[sub].high[h]);
                w[4 * h] = b_or(w[4 * h], b_pair_to_4<0>(high));
                w[4 * h + 1] = b_or(w[4 * h + 1], b_pair_to_4<1>(high));
                w[4 * h + 2] = b_or(w[4 * h + 2], b_pair_to_4<2>(high));
                w[4 * h + 3] = b_or(w[4 * h + 3], b_pair_to_4<3>(high));
            }
            const F32x16 scale0 = f_mul(d, to_f32(i_load_i8(b->scales[2 * sub])));
            const F32x16 scale1 = f_mul(d, to_f32(i_load_i8(b->scales[2 * sub + 1])));
            for (int t = 0; t < T; ++t) {
                const uint8_t* q = x.quads(t, column_block);
                const I32x16 dot0 = i_add(dot_columns<4>(w, q), i_set(-32 * x.sum16(t, 2 * column_block)));
                const I32x16 dot1 = i_add(dot_columns<4>(w + 4, q + 32), i_set(-32 * x.sum16(t, 2 * column_block + 1)));
                const F32x16 sum = f_fma(to_f32(dot0), scale0, f_mul(to_f32(dot1), scale1));
                acc[t] = f_fma(sum, f_set(x.scale(t, column_block)), acc[t]);
            }
        }
    }
};

// acc (T, 16): one group of 16 matrix rows times T activation rows.
template <int T, class Panel>
static void multiply_packed(const PackedMatrix& m, const uint8_t* data, const LinearArgs& a, int64_t row, float* acc) {
    F32x16 sums[T];
    for (int t = 0; t < T; ++t) sums[t] = f_set(0.0f);
    const Tile x{&a.quant, row};
    const int64_t blocks = m.cols / Panel::kColumns;
    const size_t bytes = m.group_bytes / static_cast<size_t>(blocks);
    // A block is read front to back, so that the hardware prefetcher follows; prefetching by hand made it slower.
    for (int64_t i = 0; i < blocks; ++i, data += bytes) Panel::template block<T>(data, x, i, sums);
    for (int t = 0; t < T; ++t) f_store(acc + 16 * t, sums[t]);
}

// F32 weights: columns go to four running sums by index modulo 4.
template <int T>
static void multiply_f32(const PackedMatrix& m, const uint8_t* data, const LinearArgs& a, int64_t row, float* acc) {
    const auto* w = reinterpret_cast<const float*>(data);
    for (int t = 0; t < T; ++t) {
        const float* x = a.plain + (row + t) * m.cols;
        F32x16 sums[4] = {f_set(0.0f), f_set(0.0f), f_set(0.0f), f_set(0.0f)};
        int64_t k = 0;
        for (; k + 4 <= m.cols; k += 4)
            for (int j = 0; j < 4; ++j) sums[j] = f_fma(f_load(w + (k + j) * 16), f_set(x[k + j]), sums[j]);
        for (int j = 0; k < m.cols; ++k, ++j) sums[j] = f_fma(f_load(w + k * 16), f_set(x[k]), sums[j]);
        f_store(acc + 16 * t, f_add(f_add(sums[0], sums[1]), f_add(sums[2], sums[3])));
    }
}

template <int T>
static void multiply(const PackedMatrix& m, int64_t group, const LinearArgs& a, int64_t row, float* acc) {
    const uint8_t* data = m.data + static_cast<size_t>(group) * m.group_bytes;
    switch (m.type) {
        case TensorType::F32: return multiply_f32<T>(m, data, a, row, acc);
        case TensorType::Q4_1: return multiply_packed<T, PanelQ4_1>(m, data, a, row, acc);
        case TensorType::Q8_0: return multiply_packed<T, PanelQ8_0>(m, data, a, row, acc);
        case TensorType::Q4_K: return multiply_packed<T, PanelQ4_K>(m, data, a, row, acc);
        case TensorType::Q6_K: return multiply_packed<T, PanelQ6_K>(m, data, a, row, acc);
    }
}

TS_INLINE void store_tile(const LinearArgs& a, int64_t group, int64_t row, int t_count, const float* acc, const float* up) {
    const int64_t column = group * kLanes;
    const int n = static_cast<int>(a.matrix->rows - column);
    for (int t = 0; t < t_count; ++t) {
        F32x16 y = f_load(acc + 16 * t);
        if (a.bias) y = f_add(y, f_load_n(a.bias + column, n));
        if (up) y = f_mul(f_silu(y), f_load(up + 16 * t));
        if (a.residual) y = f_add(f_load_n(a.residual + (row + t) * a.residual_stride + column, n), y);
        f_store_n(a.out + (row + t) * a.out_stride + column, y, n);
    }
}

template <int T>
static void linear_tile(const LinearArgs& a, int64_t group, int64_t row) {
    alignas(64) float acc[16 * T], up[16 * T];
    multiply<T>(*a.matrix, group, a, row, acc);
    if (a.up) multiply<T>(*a.up, group, a, row, up);
    store_tile(a, group, row, T, acc, a.up ? up : nullptr);
}

// Groups are taken a cache-full at a time: each tile of activations is multiplied by all of them while they stay in L2.
static void linear(const LinearArgs& a) {
    constexpr size_t kPanelBytes = 256 * 1024;
    const size_t group_bytes = a.matrix->group_bytes * (a.up ? 2 : 1);
    const int64_t fit = static_cast<int64_t>(kPanelBytes / group_bytes);
    const int64_t panel = a.num_rows <= kTileRows ? a.group_end - a.group_begin : fit < 1 ? 1 : fit;
    for (int64_t begin = a.group_begin; begin < a.group_end; begin += panel) {
        const int64_t end = begin + panel < a.group_end ? begin + panel : a.group_end;
        int64_t row = 0;
        for (; row + kTileRows <= a.num_rows; row += kTileRows)
            for (int64_t group = begin; group < end; ++group) linear_tile<kTileRows>(a, group, row);
        const int64_t left = a.num_rows - row;
        for (int64_t group = begin; left > 0 && group < end; ++group) {
            int64_t at = row;
            if (left & 4) { linear_tile<4>(a, group, at); at += 4; }
            if (left & 2) { linear_tile<2>(a, group, at); at += 2; }
            if (left & 1) linear_tile<1>(a, group, at);
        }
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
