// Low-bit weights times 16 rows of 16-bit activations in byte tiles: the sums of linear.h, bit for bit, as those over 32
// columns are exact integers in whatever unit they are added.
//
// A row of activations has, for each 4 columns, 4 high bytes and 4 low ones. Weights lie between lines of zeros, so that
// tiles which begin one line apart meet the high bytes alone and the low bytes alone.
namespace twostroke {
namespace TS_ISA {

constexpr int kTileRows = 16;  // of activations

// Scales and sums of activation rows, of which the last may stand for some that are none.
struct TileRows {
    const float* scales[kTileRows];
    const float* sums[kTileRows];
};

// 32 columns at work: of which sums become floats while the next are multiplied.
template <class P>
struct TileBlock {
    static constexpr int kParts = P::kHalves ? 2 : 1;  // sums of 32 columns, or of each half of them
    Columns columns;
    alignas(64) uint8_t weights[kParts][17][64] = {};
    alignas(64) int32_t high[kParts][kTileRows][kLanes], low[kParts][kTileRows][kLanes];
};

template <int which, class P, class Packed>
TS_INLINE void multiply_block(const Packed* blocks, Tile x, int64_t block, TileBlock<P>& b) {
    constexpr int kSubs = P::kColumns / 32, kQuads = 8 / TileBlock<P>::kParts;
    P::load(blocks[block / kSubs], static_cast<int>(block % kSubs), b.columns);
    for (int quad = 0; quad < 8; ++quad) b_store(b.weights[quad / kQuads][2 * quad + 1], b.columns.quads[quad]);
    multiply_bytes<which>(x.quads(0, block), 2 * x.x->cols, b.weights[0][0], b.high[0][0], b.low[0][0]);
    if constexpr (P::kHalves)
        multiply_bytes<1 - which>(x.quads(0, block), 2 * x.x->cols, b.weights[1][0], b.high[1][0], b.low[1][0]);
}

template <class P>
TS_INLINE void weigh_block(const TileBlock<P>& b, const TileRows& rows, int64_t block, F32x16* sums) {
#pragma GCC unroll 16
    for (int t = 0; t < kTileRows; ++t) {  // all of them, so that sums stay in registers
        I32x16 dots[TileBlock<P>::kParts];
        for (int part = 0; part < TileBlock<P>::kParts; ++part)
            dots[part] = i_add(i_shl(i_load(b.high[part][t]), 8), i_load(b.low[part][t]));
        sums[t] = f_fma(weigh<P>(b.columns, dots, rows.sums[t] + 2 * block), f_set(rows.scales[t][block]), sums[t]);
    }
}

// acc (16, 16): a group of 16 matrix rows times `count` activation rows.
template <class P, class Packed>
static void multiply_packed_tiles(const PackedMatrix& m, const uint8_t* data, const LinearArgs& a, int64_t row, int count, float* acc) {
    const auto* blocks = reinterpret_cast<const Packed*>(data);
    const Tile x{&a.quant, row};
    TileRows rows;
    for (int t = 0; t < kTileRows; ++t) {
        rows.scales[t] = x.scales(t < count ? t : count - 1);
        rows.sums[t] = x.sums(t < count ? t : count - 1);
    }
    TileBlock<P> even, odd;
    even.columns.codebook = odd.columns.codebook = m.codebook;
    even.columns.bf16_scales = odd.columns.bf16_scales = has_bf16_scales(m.type);
    F32x16 sums[kTileRows];
#pragma GCC unroll 16
    for (int t = 0; t < kTileRows; ++t) sums[t] = f_set(0.0f);
    const int64_t end = m.cols / 32;
    multiply_block<0, P>(blocks, x, 0, even);
    int64_t block = 0;
    for (; block + 2 < end; block += 2) {
        multiply_block<1, P>(blocks, x, block + 1, odd);
        weigh_block(even, rows, block, sums);
        multiply_block<0, P>(blocks, x, block + 2, even);
        weigh_block(odd, rows, block + 1, sums);
    }
    if (block + 1 < end) multiply_block<1, P>(blocks, x, block + 1, odd);
    weigh_block(even, rows, block, sums);
    if (block + 1 < end) weigh_block(odd, rows, block + 1, sums);
#pragma GCC unroll 16
    for (int t = 0; t < kTileRows; ++t) f_store(acc + 16 * t, sums[t]);
}

static void multiply_tile_rows(const PackedMatrix& m, int64_t group, const LinearArgs& a, int64_t row, int count, float* acc) {
    const uint8_t* data = m.data + static_cast<size_t>(group) * m.group_bytes;
    switch (m.type) {
#define TS_MULTIPLY(type, columns) \
    case TensorType::type: return multiply_packed_tiles<Panel##type, Packed##type>(m, data, a, row, count, acc);
        TS_PACKED_TYPES(TS_MULTIPLY)
#undef TS_MULTIPLY
        default: return;
    }
}

constexpr bool in_tiles(TensorType type) { return !is_float(type); }

// As many whole and nearly whole tiles as there are rows for; returns how many rows that was.
static int64_t linear_tiles(const LinearArgs& a) {
    constexpr int kFewest = 8;  // rows that a tile is worth its time for
    if (a.num_rows < kFewest || !in_tiles(a.matrix->type) || (a.up && !in_tiles(a.up->type))) return 0;
    const int64_t rest = a.num_rows % kTileRows, rows = a.num_rows - (rest < kFewest ? rest : 0);
    alignas(64) float acc[kTileRows * kLanes], up[kTileRows * kLanes];
    begin_panels();
    for (int64_t group = a.group_begin; group < a.group_end; ++group)
        for (int64_t row = 0; row < rows; row += kTileRows) {
            const int count = static_cast<int>(rows - row < kTileRows ? rows - row : kTileRows);
            multiply_tile_rows(*a.matrix, group, a, row, count, acc);
            if (a.up) multiply_tile_rows(*a.up, group, a, row, count, up);
            store_tile(a, group, row, count, acc, a.up ? up : nullptr);
        }
    end_panels();
    return rows;
}

}  // namespace TS_ISA
}  // namespace twostroke
