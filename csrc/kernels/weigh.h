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
    TS_METHOD const int32_t* sums(int t) const { return x->sums + (row + t) * (x->cols / 16); }
};

// Sums of weight * q over 32 columns, of which the dot products of quads and q are given, one, or one for each half; and
// the sums of q over each half.
template <class P>
TS_INLINE F32x16 weigh(const Columns& c, const I32x16* dots, const int32_t* q_sums) {
    if constexpr (P::kHalves) {
        const int32_t sum0 = q_sums[0], sum1 = q_sums[1];
        I32x16 dot0 = dots[0], dot1 = dots[1];
        if constexpr (P::kOffset != 0) {
            dot0 = i_add(dot0, i_set(-P::kOffset * sum0));
            dot1 = i_add(dot1, i_set(-P::kOffset * sum1));
        }
        F32x16 sum = f_fma(to_f32(dot0), c.scale[0], f_mul(to_f32(dot1), c.scale[1]));
        if constexpr (P::kAffine) {
            sum = f_fma(c.minimum[0], to_f32(i_set(sum0)), sum);
            sum = f_fma(c.minimum[1], to_f32(i_set(sum1)), sum);
        }
        return sum;
    } else {
        const int32_t sum32 = q_sums[0] + q_sums[1];
        I32x16 dot = dots[0];
        if constexpr (P::kOffset != 0) dot = i_add(dot, i_set(-P::kOffset * sum32));
        if constexpr (P::kAffine) return f_fma(c.scale[0], to_f32(dot), f_mul(c.minimum[0], to_f32(i_set(sum32))));
        return f_mul(c.scale[0], to_f32(dot));
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
