// Prompt rows times packed matrices, in bfloat16: weights are expanded a panel at a time into cache, and all rows are
// multiplied by the panel while it is there. What multiplies, `multiply_panel`, is the instruction set's.
//
// A panel is some columns of up to 4 groups of matrix rows. A group's weights lie pair after pair: columns 2p and 2p + 1 of
// its 16 rows side by side. Sums are float32 and columns are added in order, so that a row's result depends on itself.
namespace twostroke {
namespace TS_ISA {

// Columns `begin` .. `end` of a group, to out (columns / 2, 16, 2).
template <class P, class Packed>
static void expand_packed(const PackedMatrix& m, const uint8_t* data, int64_t begin, int64_t end, uint16_t* out) {
    constexpr int kHalves = P::kHalves ? 2 : 1;
    const auto* blocks = reinterpret_cast<const Packed*>(data);
    Columns c;
    c.codebook = m.codebook;
    c.bf16_scales = has_bf16_scales(m.type);
    for (int64_t i = begin / P::kColumns; i < end / P::kColumns; ++i)
        for (int sub = 0; sub < P::kColumns / 32; ++sub) {
            P::load(blocks[i], sub, c);
            for (int half = 0; half < kHalves; ++half) {
                const F32x16 minimum = P::kAffine ? c.minimum[half] : f_mul(c.scale[half], f_set(-P::kOffset));
                const Twice scales = f_twice(c.scale[half]), minimums = f_twice(minimum);
                for (int quad = 0; quad < 8 / kHalves; ++quad, out += 64)
                    store_quad(out, c.quads[half * 4 + quad], scales, minimums);
            }
        }
}

static void expand_brains(const uint8_t* data, int64_t begin, int64_t end, uint16_t* out) {
    const auto* w = reinterpret_cast<const uint16_t*>(data);
    const F32x16 zero = f_set(0.0f);
    for (int64_t k = begin; k < begin + (end - begin + 31) / 32 * 32; k += 2, out += 32)
        f_store_brains(out, k < end ? f_load_bf16(w + k * kLanes) : zero, k + 1 < end ? f_load_bf16(w + (k + 1) * kLanes) : zero);
}

static void expand(const PackedMatrix& m, int64_t group, int64_t begin, int64_t end, uint16_t* out) {
    const uint8_t* data = m.data + static_cast<size_t>(group) * m.group_bytes;
    switch (m.type) {
#define TS_EXPAND(type, columns) \
    case TensorType::type: return expand_packed<Panel##type, Packed##type>(m, data, begin, end, out);
        TS_PACKED_TYPES(TS_EXPAND)
#undef TS_EXPAND
        default: return expand_brains(data, begin, end, out);
    }
}

static void linear_prefill(const LinearArgs& a) {
    constexpr int64_t kSlotRows = kPrefillRows + kBrainRest;
    auto* sums = reinterpret_cast<float*>(a.scratch);
    auto* weights = reinterpret_cast<uint16_t*>(sums + kPrefillGroups * kSlotRows * kLanes);
    const int matrices = a.up ? 2 : 1;  // a gate's group and its up's are neighbours
    const int64_t cols = a.matrix->cols;
    begin_panels();
    for (int64_t group = a.group_begin; group < a.group_end;) {
        const int64_t groups = a.group_end - group < kPrefillGroups / matrices ? a.group_end - group : kPrefillGroups / matrices;
        const int slots = static_cast<int>(groups) * matrices;
        for (int64_t begin = 0; begin < cols; begin += kPrefillColumns) {
            const int64_t end = begin + kPrefillColumns < cols ? begin + kPrefillColumns : cols;
            for (int slot = 0; slot < slots; ++slot)
                expand(slot % matrices ? *a.up : *a.matrix, group + slot / matrices, begin, end,
                       weights + slot * kPrefillColumns * kLanes);
            multiply_panel({weights, slots, a.brain.values + begin, a.brain.stride, a.num_rows, (end - begin + 31) / 32 * 16,
                            begin == 0, sums});
        }
        for (int slot = 0; slot < slots; slot += matrices)
            store_tile(a, group++, 0, static_cast<int>(a.num_rows), sums + slot * kSlotRows * kLanes,
                       a.up ? sums + (slot + 1) * kSlotRows * kLanes : nullptr);
    }
    end_panels();
}

static void round_rows(const RoundArgs& a) {
    const int64_t end = (a.cols + 31) / 32 * 32;
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
        const float* x = a.x + row * a.x_stride;
        uint16_t* out = a.out.values + row * a.out.stride;
        const Moments m = a.norm.weight ? moments(x, a.cols, a.norm) : Moments{0.0f, 1.0f};
        for (int64_t i = 0; i < end; i += 16) {
            const int n = static_cast<int>(a.cols - i);
            F32x16 v = f_load_n(x + i, n);
            if (a.norm.weight) v = f_keep(normalized(v, a.norm, m, i, n), n, f_set(0.0f));
            f_store_brain(out + i, v);
        }
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
