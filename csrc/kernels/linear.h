// Matrices of packed low-bit weights times 16-bit activations: one skeleton for every block type, one row or many.
//
// 16 matrix rows are multiplied at a time by up to 8 or 16 activation rows. Within a block of 32 columns (16 for Q6_K) the
// sum is an exact integer; blocks are then scaled and added in float32 in column order. So a result depends on its
// own two rows alone, not on how many are multiplied together, and is the same on every instruction set.
namespace twostroke {
namespace TS_ISA {

// acc[G * t + g] += x_scale * sum over 32 columns of weight * q, for T activation rows and G groups of matrix rows.
template <int G, int T, class P>
TS_INLINE void add_columns(const Columns* c, Tile x, int64_t block, F32x16* acc) {
    constexpr int kParts = P::kHalves ? 2 : 1, kQuads = 8 / kParts, R = T < kRowsAtOnce ? T : kRowsAtOnce;
    Factors w[G][8];
    for (int g = 0; g < G; ++g)
        for (int quad = 0; quad < 8; ++quad) w[g][quad] = factors(c[g].quads[quad]);
    for (int first = 0; first < T; first += R) {
        const uint8_t* q[R];
        for (int r = 0; r < R; ++r) q[r] = x.quads(first + r, block);
        Dot dots[R][G][kParts];
        for (auto& groups : dots)
            for (auto& parts : groups)
                for (Dot& dot : parts) dot = dot_zero();
#pragma GCC unroll 8
        for (int quad = 0; quad < 8; ++quad)
            for (int g = 0; g < G; ++g)
                for (int r = 0; r < R; ++r) dot_quad(dots[r][g][quad / kQuads], w[g][quad], q[r] + 8 * quad);
        for (int r = 0; r < R; ++r) {
            const int t = first + r;
            const F32x16 scale = f_set(x.scales(t)[block]);
            for (int g = 0; g < G; ++g) {
                I32x16 totals[kParts];
                for (int part = 0; part < kParts; ++part) totals[part] = dot_sum(dots[r][g][part]);
                acc[G * t + g] = f_fma(weigh<P>(c[g], totals, x.sums(t) + 2 * block), scale, acc[G * t + g]);
            }
        }
    }
}

// acc[g] (T, 16): each of G groups of 16 matrix rows times T activation rows, which X has in the form that add_columns()
// reads. Several groups at once fetch a row's quads once for all; one at a time is read from memory as one stream, which
// is what a single row waits for.
template <int G, int T, class P, class Packed, class X = Tile>
static void multiply_packed(const PackedMatrix& m, const uint8_t* const* data, const LinearArgs& a, int64_t row, float* const* acc) {
    F32x16 sums[G * T];
    for (F32x16& sum : sums) sum = f_set(0.0f);
    const X x{&a.quant, row};
    const Packed* blocks[G];
    for (int g = 0; g < G; ++g) blocks[g] = reinterpret_cast<const Packed*>(data[g]);
    constexpr int kSubs = P::kColumns / 32;
    // A block is read front to back, so that the hardware prefetcher follows; prefetching by hand made it slower.
    for (int64_t i = 0; i < m.cols / P::kColumns; ++i) {
        AllScales scales[G];
        if constexpr (P::kAllScales)
            for (int g = 0; g < G; ++g) load_all_scales(blocks[g][i], scales[g]);
        for (int sub = 0; sub < kSubs; ++sub) {
            Columns c[G];
            for (int g = 0; g < G; ++g) {
                c[g].codebook = m.codebook;
                c[g].bf16_scales = has_bf16_scales(m.type);
                if constexpr (P::kAllScales) {
                    P::load_quads(blocks[g][i], sub, c[g]);
                    c[g].scale[0] = scales[g][sub][0];
                    c[g].minimum[0] = scales[g][sub][1];
                } else {
                    P::load(blocks[g][i], sub, c[g]);
                }
            }
            add_columns<G, T, P>(c, x, i * kSubs + sub, sums);
        }
    }
    for (int t = 0; t < T; ++t)
        for (int g = 0; g < G; ++g) f_store(acc[g] + 16 * t, sums[G * t + g]);
}

TS_INLINE F32x16 load_floats(const float* p) { return f_load(p); }
struct Half { uint16_t bits; };
struct Brain { uint16_t bits; };
TS_INLINE F32x16 load_floats(const Half* p) { return f_load_f16(&p->bits); }
TS_INLINE F32x16 load_floats(const Brain* p) { return f_load_bf16(&p->bits); }

// Weights in floats, activations in float32: columns go to four running sums by index modulo 4.
template <int T, class W>
static void multiply_floats(const PackedMatrix& m, const uint8_t* data, const LinearArgs& a, int64_t row, float* acc) {
    const auto* w = reinterpret_cast<const W*>(data);
    for (int t = 0; t < T; ++t) {
        const float* x = a.plain + (row + t) * m.cols;
        F32x16 sums[4] = {f_set(0.0f), f_set(0.0f), f_set(0.0f), f_set(0.0f)};
        int64_t k = 0;
        for (; k + 4 <= m.cols; k += 4)
            for (int j = 0; j < 4; ++j) sums[j] = f_fma(load_floats(w + (k + j) * 16), f_set(x[k + j]), sums[j]);
        for (int j = 0; k < m.cols; ++k, ++j) sums[j] = f_fma(load_floats(w + k * 16), f_set(x[k]), sums[j]);
        f_store(acc + 16 * t, f_add(f_add(sums[0], sums[1]), f_add(sums[2], sums[3])));
    }
}

// FP8 weights: the codes of a group times activations in float32, column after column, then the group's scale.
template <int T>
static void multiply_f8(const PackedMatrix& m, const uint8_t* data, const LinearArgs& a, int64_t row, float* acc) {
    const int group = f8_group(m.type), scale_bytes = f8_scale_bytes(m.type) * kLanes;
    for (int t = 0; t < T; ++t) {
        const float* x = a.plain + (row + t) * m.cols;
        const uint8_t* block = data;
        F32x16 total = f_set(0.0f);
        for (int64_t k = 0; k < m.cols; k += group, block += scale_bytes + group * kLanes) {
            F32x16 sums[4] = {f_set(0.0f), f_set(0.0f), f_set(0.0f), f_set(0.0f)};
            for (int i = 0; i < group; i += 4)
                for (int j = 0; j < 4; ++j)
                    sums[j] = f_fma(load_e4m3(block + scale_bytes + (i + j) * kLanes), f_set(x[k + i + j]), sums[j]);
            const F32x16 sum = f_add(f_add(sums[0], sums[1]), f_add(sums[2], sums[3]));
            total = f_fma(load_f8_scale(m.type, block), sum, total);
        }
        f_store(acc + 16 * t, total);
    }
}

template <int T>
static void multiply(const PackedMatrix& m, int64_t group, const LinearArgs& a, int64_t row, float* acc) {
    const uint8_t* data = m.data + static_cast<size_t>(group) * m.group_bytes;
    switch (m.type) {
        case TensorType::F32: return multiply_floats<T, float>(m, data, a, row, acc);
        case TensorType::F16: return multiply_floats<T, Half>(m, data, a, row, acc);
        case TensorType::BF16: return multiply_floats<T, Brain>(m, data, a, row, acc);
#define TS_MULTIPLY(type, columns) \
    case TensorType::type: return multiply_packed<1, T, Panel##type, Packed##type>(m, &data, a, row, &acc);
            TS_PACKED_TYPES(TS_MULTIPLY)
#undef TS_MULTIPLY
        default: return multiply_f8<T>(m, data, a, row, acc);
    }
}

// Two groups times T rows; false where the type has no kernel for two.
template <int T>
static bool multiply_two(const PackedMatrix& m, const uint8_t* const* data, const LinearArgs& a, int64_t row, float* const* acc) {
    switch (m.type) {
#define TS_MULTIPLY_TWO(type, columns) \
    case TensorType::type: multiply_packed<2, T, Panel##type, Packed##type>(m, data, a, row, acc); return true;
        TS_PACKED_TYPES(TS_MULTIPLY_TWO)
#undef TS_MULTIPLY_TWO
        default: return false;
    }
}

template <int T>
static void linear_tile(const LinearArgs& a, int64_t group, int64_t row) {
    alignas(64) float acc[16 * T], up[16 * T];
    multiply<T>(*a.matrix, group, a, row, acc);
    if (a.up) multiply<T>(*a.up, group, a, row, up);
    store_tile(a, group, row, T, acc, a.up ? up : nullptr);
}

constexpr int kMostAlone = kMostRows < 8 ? kMostRows : 8;  // rows times one group: a last odd one is not worth more code

// A tile of T rows times groups `begin` .. `end`: two groups at a time, a gate with its up, where that pays.
template <int T>
static void linear_tiles(const LinearArgs& a, int64_t begin, int64_t end, int64_t row) {
    alignas(64) float acc[16 * T], other[16 * T];
    float* const accs[2] = {acc, other};
    const bool gated = a.up && a.up->type == a.matrix->type && a.up->codebook == a.matrix->codebook;
    for (int64_t group = begin; group < end;) {
        if (kPairs && T >= kLeastPaired && (a.up ? gated : group + 1 < end)) {
            const PackedMatrix& second = a.up ? *a.up : *a.matrix;
            const uint8_t* const data[2] = {a.matrix->data + static_cast<size_t>(group) * a.matrix->group_bytes,
                                            second.data + static_cast<size_t>(a.up ? group : group + 1) * second.group_bytes};
            if (multiply_two<T>(*a.matrix, data, a, row, accs)) {
                store_tile(a, group++, row, T, acc, a.up ? other : nullptr);
                if (!a.up) store_tile(a, group++, row, T, other, nullptr);
                continue;
            }
        }
        if constexpr (T > kMostAlone) {
            for (int64_t half = row; half < row + T; half += kMostAlone) linear_tile<kMostAlone>(a, group, half);
            ++group;
        } else {
            linear_tile<T>(a, group++, row);
        }
    }
}

// One lane of 32 columns as floats, exactly the file's weights.
template <class P>
TS_INLINE void store_weights(const Columns& c, int lane, float* out) {
    alignas(64) float scale[2][16], minimum[2][16];
    alignas(64) uint8_t quad[64];
    for (int h = 0; h < (P::kHalves ? 2 : 1); ++h) {
        f_store(scale[h], c.scale[h]);
        if (P::kAffine) f_store(minimum[h], c.minimum[h]);
    }
    for (int i = 0; i < 32; ++i) {
        if (i % 4 == 0) b_store(quad, c.quads[i / 4]);
        const int h = P::kHalves ? i / 16 : 0;
        const float product = scale[h][lane] * static_cast<float>(quad[4 * lane + i % 4] - P::kOffset);
        out[i] = P::kAffine ? product + minimum[h][lane] : product;
    }
}

template <class P, class Packed>
static void unpack_packed(const PackedMatrix& m, const uint8_t* data, int lane, float* out) {
    const auto* blocks = reinterpret_cast<const Packed*>(data);
    for (int64_t i = 0; i < m.cols / P::kColumns; ++i)
        for (int sub = 0; sub < P::kColumns / 32; ++sub, out += 32) {
            Columns c;
            c.codebook = m.codebook;
            c.bf16_scales = has_bf16_scales(m.type);
            P::load(blocks[i], sub, c);
            store_weights<P>(c, lane, out);
        }
}

template <class W>
static void unpack_floats(const PackedMatrix& m, const uint8_t* data, int lane, float* out) {
    float lanes[16];
    for (int64_t i = 0; i < m.cols; ++i) {
        f_store(lanes, load_floats(reinterpret_cast<const W*>(data) + i * kLanes));
        out[i] = lanes[lane];
    }
}

static void unpack_f8(const PackedMatrix& m, const uint8_t* block, int lane, float* out) {
    const int group = f8_group(m.type), scale_bytes = f8_scale_bytes(m.type) * kLanes;
    float scale[16], code[16];
    for (int64_t k = 0; k < m.cols; k += group, block += scale_bytes + group * kLanes) {
        f_store(scale, load_f8_scale(m.type, block));
        for (int i = 0; i < group; ++i) {
            f_store(code, load_e4m3(block + scale_bytes + i * kLanes));
            out[k + i] = scale[lane] * code[lane];
        }
    }
}

// Row `row` of a matrix as floats: out (cols).
static void unpack_row(const PackedMatrix& m, int64_t row, float* out) {
    const uint8_t* data = m.data + static_cast<size_t>(row / kLanes) * m.group_bytes;
    const int lane = static_cast<int>(row % kLanes);
    switch (m.type) {
        case TensorType::F32: return unpack_floats<float>(m, data, lane, out);
        case TensorType::F16: return unpack_floats<Half>(m, data, lane, out);
        case TensorType::BF16: return unpack_floats<Brain>(m, data, lane, out);
#define TS_UNPACK(type, columns) \
    case TensorType::type: return unpack_packed<Panel##type, Packed##type>(m, data, lane, out);
            TS_PACKED_TYPES(TS_UNPACK)
#undef TS_UNPACK
        default: return unpack_f8(m, data, lane, out);
    }
}

// Fewer rows than a tile: by halves. Where compiling a size is not worth its time, by ones.
template <int T>
TS_INLINE void linear_rest(const LinearArgs& a, int64_t begin, int64_t end, int64_t row) {
    if constexpr (T > 1 && !kFewTiles) {
        if (a.num_rows - row >= T) {
            linear_tiles<T>(a, begin, end, row);
            row += T;
        }
        if (row < a.num_rows) linear_rest<T / 2>(a, begin, end, row);
    } else {
        for (; row < a.num_rows; ++row) linear_tiles<1>(a, begin, end, row);
    }
}

// Groups are taken a cache-full at a time: each tile of activations is multiplied by all of them while they stay in L2.
static void linear(const LinearArgs& a) {
    constexpr size_t kPanelBytes = 256 * 1024;
    const size_t group_bytes = a.matrix->group_bytes * (a.up ? 2 : 1);
    const int64_t fit = static_cast<int64_t>(kPanelBytes / group_bytes);
    const int64_t panel = a.num_rows <= kMostRows ? a.group_end - a.group_begin : fit < 1 ? 1 : fit;
    for (int64_t begin = a.group_begin; begin < a.group_end; begin += panel) {
        const int64_t end = begin + panel < a.group_end ? begin + panel : a.group_end;
        int64_t row = 0;
        for (; row + kMostRows <= a.num_rows; row += kMostRows) linear_tiles<kMostRows>(a, begin, end, row);
        if (row < a.num_rows)
            for (int64_t group = begin; group < end; group += 2)
                linear_rest<kMostRows / 2>(a, group, group + 2 < end ? group + 2 : end, row);
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
