// One activation row times weights of few bits, where products of bytes need less unpacking than products of 16 bits: the
// row's high and its low bytes are multiplied apart and added up in 16 bits while those suffice. Sums are the integers of
// linear.h, and all that follows is done there, so bits are the same.
namespace twostroke {
namespace TS_ISA {

constexpr int64_t kMostByteColumns = 16384;  // that the row's bytes have room for

// A row whose quads are 4 high bytes, then 4 low ones.
struct ByteTile : Tile {};

// Quads of which products with activations' bytes fit 16 bits, 2 added at a time.
template <class P>
constexpr int quads_in_16_bits() {
    const int fit = 32767 / (P::kMost * 128 * 2);
    return fit >= 8 ? 8 : fit >= 4 ? 4 : fit >= 2 ? 2 : 0;
}

template <int G, int T, class P>
TS_INLINE void add_columns(const Columns* c, ByteTile x, int64_t block, F32x16* acc) {
    static_assert(G == 1 && T == 1);
    constexpr int kParts = P::kHalves ? 2 : 1, kQuads = 8 / kParts;
    constexpr int kTogether = quads_in_16_bits<P>() < kQuads ? quads_in_16_bits<P>() : kQuads;
    const uint8_t* q = x.quads(0, block);
    I32x16 totals[kParts];
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
        Dot total = dot_zero();
#pragma GCC unroll 8
        for (int first = part * kQuads; first < (part + 1) * kQuads; first += kTogether) {
            ByteDot dot = byte_dot_zero();
#pragma GCC unroll 8
            for (int quad = first; quad < first + kTogether; ++quad) byte_dot_quad(dot, c->quads[quad], q + 8 * quad);
            add_byte_dot(total, dot);
        }
        totals[part] = dot_sum(total);
    }
    *acc = f_fma(weigh<P>(*c, totals, x.sums(0) + 2 * block), f_set(x.scales(0)[block]), *acc);
}

static bool can_take_bytes(const PackedMatrix& m) {
    switch (m.type) {
#define TS_TAKES(type, columns) \
    case TensorType::type: return quads_in_16_bits<Panel##type>() > 0;
        TS_PACKED_TYPES(TS_TAKES)
#undef TS_TAKES
        default: return false;
    }
}

static void multiply_bytes(const PackedMatrix& m, int64_t group, const LinearArgs& a, float* acc) {
    const uint8_t* data = m.data + static_cast<size_t>(group) * m.group_bytes;
    switch (m.type) {
#define TS_MULTIPLY(type, columns) \
    case TensorType::type: \
        if constexpr (quads_in_16_bits<Panel##type>() > 0) \
            multiply_packed<1, 1, Panel##type, Packed##type, ByteTile>(m, &data, a, 0, &acc); \
        return;
        TS_PACKED_TYPES(TS_MULTIPLY)
#undef TS_MULTIPLY
        default: return;
    }
}

// Of one row and types that can_take_bytes().
static void linear_bytes(LinearArgs a) {
    alignas(64) uint8_t bytes[2 * kMostByteColumns];
    alignas(64) float acc[kLanes], up[kLanes];
    split_bytes(a.quant.quads, a.matrix->cols, bytes);
    a.quant.quads = bytes;
    for (int64_t group = a.group_begin; group < a.group_end; ++group) {
        multiply_bytes(*a.matrix, group, a, acc);
        if (a.up) multiply_bytes(*a.up, group, a, up);
        store_tile(a, group, 0, 1, acc, a.up ? up : nullptr);
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
