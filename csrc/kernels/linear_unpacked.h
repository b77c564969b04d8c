// Low-bit weights times many rows of 16-bit activations, where unpacking takes long: some columns are unpacked into L1 once,
// as they are multiplied, and all rows pass over them. Products, sums and their order are those of linear.h, so bits are too.
namespace twostroke {
namespace TS_ISA {

constexpr int64_t kUnpackedRows = 256;  // activation rows that one unpacking is for
constexpr int64_t kUnpackedBlocks = 16;  // blocks of 32 columns unpacked at a time: 20 KiB

// 32 columns of a group as they are multiplied.
struct Operand {
    Factors quads[8];
    F32x16 scale[2], minimum[2];  // as of Columns
};

struct OperandPanel {
    int64_t begin, end;  // blocks
    Operand blocks[kUnpackedBlocks];
};

// All that multiplying needs to know of a type: offsets are subtracted in unpacking.
template <class P>
using Unpacked = Panel<32, 0, P::kHalves, P::kAffine>;

template <class P, class Packed>
static void unpack_block(const PackedMatrix& m, const Packed& block, int sub, Operand& w) {
    Columns c;
    c.codebook = m.codebook;
    c.bf16_scales = has_bf16_scales(m.type);
    P::load(block, sub, c);
    for (int quad = 0; quad < 8; ++quad) w.quads[quad] = signed_factors<P::kOffset>(c.quads[quad]);
    for (int half = 0; half < (P::kHalves ? 2 : 1); ++half) {
        w.scale[half] = c.scale[half];
        if (P::kAffine) w.minimum[half] = c.minimum[half];
    }
}

// sums[r] += x_scale * sum over 32 columns of weight * q, for R activation rows.
template <class P, int R>
TS_INLINE void add_unpacked(const Operand& w, Tile x, int64_t block, F32x16* sums) {
    constexpr int kParts = P::kHalves ? 2 : 1, kQuads = 8 / kParts;
    const uint8_t* q[R];
    for (int r = 0; r < R; ++r) q[r] = x.quads(r, block);
    Dot dots[kParts][R];
    for (auto& part : dots)
        for (Dot& dot : part) dot = dot_zero();
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad) dot_quads<R>(dots[quad / kQuads], w.quads[quad], q, 8 * quad);
    for (int r = 0; r < R; ++r) {
        I32x16 totals[kParts];
        for (int part = 0; part < kParts; ++part) totals[part] = dot_sum(dots[part][r]);
        sums[r] = f_fma(weigh<P>(w, totals, x.sums(r) + 2 * block), f_set(x.scales(r)[block]), sums[r]);
    }
}

// Rows from `row` on times a panel, R rows at a time, then what is left by halves.
template <class P, int R>
static void multiply_unpacked(const OperandPanel& panel, const LinearArgs& a, int64_t row, float* acc) {
    for (; row + R <= a.num_rows; row += R) {
        F32x16 sums[R];
        for (int r = 0; r < R; ++r) sums[r] = panel.begin == 0 ? f_set(0.0f) : f_load(acc + 16 * (row + r));
        for (int64_t block = panel.begin; block < panel.end; ++block)
            add_unpacked<P, R>(panel.blocks[block - panel.begin], {&a.quant, row}, block, sums);
        for (int r = 0; r < R; ++r) f_store(acc + 16 * (row + r), sums[r]);
    }
    if constexpr (R > 1)
        if (row < a.num_rows) multiply_unpacked<P, R / 2>(panel, a, row, acc);
}

template <class P, class Packed>
static void multiply_panels(const PackedMatrix& m, const uint8_t* data, const LinearArgs& a, float* acc) {
    constexpr int kSubs = P::kColumns / 32;
    const auto* blocks = reinterpret_cast<const Packed*>(data);
    const int64_t num_blocks = m.cols / 32;
    OperandPanel panel;
    for (panel.begin = 0; panel.begin < num_blocks; panel.begin = panel.end) {
        panel.end = panel.begin + kUnpackedBlocks < num_blocks ? panel.begin + kUnpackedBlocks : num_blocks;
        for (int64_t block = panel.begin; block < panel.end; ++block)
            unpack_block<P>(m, blocks[block / kSubs], static_cast<int>(block % kSubs), panel.blocks[block - panel.begin]);
        multiply_unpacked<Unpacked<P>, kRowsAtOnce>(panel, a, 0, acc);
    }
}

// acc (num_rows, 16): a group of 16 matrix rows times all activation rows.
static void multiply_group(const PackedMatrix& m, int64_t group, const LinearArgs& a, float* acc) {
    const uint8_t* data = m.data + static_cast<size_t>(group) * m.group_bytes;
    switch (m.type) {
#define TS_MULTIPLY(type, columns) \
    case TensorType::type: return multiply_panels<Panel##type, Packed##type>(m, data, a, acc);
        TS_PACKED_TYPES(TS_MULTIPLY)
#undef TS_MULTIPLY
        default: return;
    }
}

// Of types that are not floats.
static void linear_unpacked(const LinearArgs& a) {
    alignas(64) float acc[kUnpackedRows * kLanes], up[kUnpackedRows * kLanes];
    for (int64_t row = 0; row < a.num_rows; row += kUnpackedRows) {
        const LinearArgs part = of_rows(a, row, a.num_rows - row < kUnpackedRows ? a.num_rows - row : kUnpackedRows);
        for (int64_t group = a.group_begin; group < a.group_end; ++group) {
            multiply_group(*a.matrix, group, part, acc);
            if (a.up) multiply_group(*a.up, group, part, up);
            store_tile(part, group, 0, static_cast<int>(part.num_rows), acc, a.up ? up : nullptr);
        }
    }
}

// One row by bytes where that is faster, few rows by weights as they are read.
static void linear_by_rows(const LinearArgs& a) {
    const bool takes_bytes = a.num_rows == 1 && a.matrix->cols <= kMostByteColumns && can_take_bytes(*a.matrix);
    if (takes_bytes && (!a.up || can_take_bytes(*a.up))) return linear_bytes(a);
    if (a.num_rows <= kMostRows || is_float(a.matrix->type) || (a.up && is_float(a.up->type))) return linear(a);
    linear_unpacked(a);
}

}  // namespace TS_ISA
}  // namespace twostroke
