// From exact sums of integers over a block of 32 columns to its part of a result: what every linear of low-bit weights and
// 16-bit activations does in the same order.
namespace twostroke {
namespace TS_ISA {

// Activation rows `row` .. `row + T`, at 32-column block `block`.
struct Tile {
    const QuantRows* x;
    int64_t row;

    TS_METHOD const uint8_t* quads(int t, int64_t block) const { return x->quads + ((row + t) * x->cols + block * 32) * 2; }
    TS_METHOD const float* scales(int t) const { return x->scales + (row + t) * (x->cols / 32); }
    TS_METHOD const float* sums(int t) const { return x->sums + (row + t) * (x->cols / 16); }
};

// Sums of weight * q over 32 columns, of which the dot products of quads and q are given, one, or one for each half; and
// the sums of q over each half, integers.
template <class P, class Weights>
TS_INLINE F32x16 weigh(const Weights& c, const I32x16* dots, const float* q_sums) {
    static_assert((P::kOffset & (P::kOffset - 1)) == 0, "an offset is multiplied with by shifting");
    const auto without_offset = [](I32x16 dot, F32x16 sum) {
        return to_f32(P::kOffset ? i_sub(dot, i_shl(to_i32(sum), __builtin_ctz(P::kOffset | 256))) : dot);
    };
    const F32x16 sum0 = f_set(q_sums[0]), sum1 = f_set(q_sums[1]);
    if constexpr (P::kHalves) {
        const F32x16 dot0 = without_offset(dots[0], sum0), dot1 = without_offset(dots[1], sum1);
        F32x16 sum = f_fma(dot0, c.scale[0], f_mul(dot1, c.scale[1]));
        if constexpr (P::kAffine) sum = f_fma(c.minimum[1], sum1, f_fma(c.minimum[0], sum0, sum));
        return sum;
    } else {
        const F32x16 dot = without_offset(dots[0], f_add(sum0, sum1));
        if constexpr (P::kAffine) return f_fma(c.scale[0], dot, f_mul(c.minimum[0], f_add(sum0, sum1)));
        return f_mul(c.scale[0], dot);
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
