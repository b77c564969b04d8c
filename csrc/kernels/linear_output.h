// What becomes of sums of a linear: bias, gate and residual, then memory.
namespace twostroke {
namespace TS_ISA {

// Sums of 16 matrix rows with rows `row` .. `row + t_count`: acc and, where there is a gate, up (t_count, 16).
TS_INLINE void store_tile(const LinearArgs& a, int64_t group, int64_t row, int t_count, const float* acc, const float* up) {
    const int64_t column = group * kLanes;
    const int n = static_cast<int>(a.matrix->rows - column);
    for (int t = 0; t < t_count; ++t) {
        F32x16 y = f_load(acc + 16 * t);
        if (a.bias) y = f_add(y, f_load_n(a.bias + column, n));
        if (up) {
            F32x16 z = f_load(up + 16 * t);
            if (a.up_bias) z = f_add(z, f_load_n(a.up_bias + column, n));
            y = f_gate(a.gate, y, z);
        }
        if (a.residual) y = f_add(f_load_n(a.residual + (row + t) * a.residual_stride + column, n), y);
        f_store_n(a.out + (row + t) * a.out_stride + column, y, n);
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
