// Normalisation of a row, which several kernels begin with.
namespace twostroke {
namespace TS_ISA {

// What normalises a row: (x - mean) * inverse. Without LayerNorm the mean is 0.
struct Moments {
    float mean, inverse;
};

static Moments moments(const float* x, int64_t dim, const NormSpec& norm) {
    float mean = 0.0f;
    if (norm.layer) {
        F32x16 sum = f_set(0.0f);
        for (int64_t i = 0; i < dim; i += 16) sum = f_add(sum, f_load_n(x + i, static_cast<int>(dim - i)));
        mean = f_sum(sum) / static_cast<float>(dim);
    }
    const F32x16 centre = f_set(mean), zero = f_set(0.0f);
    F32x16 sum = zero;
    for (int64_t i = 0; i < dim; i += 16) {
        const int n = static_cast<int>(dim - i);
        F32x16 v = f_load_n(x + i, n);
        if (norm.layer) v = f_keep(f_sub(v, centre), n, zero);
        sum = f_fma(v, v, sum);
    }
    return {mean, 1.0f / __builtin_sqrtf(f_sum(sum) / static_cast<float>(dim) + norm.eps)};
}

// 16 elements of a row from `i` on, normalised.
TS_INLINE F32x16 normalized(F32x16 v, const NormSpec& norm, Moments m, int64_t i, int n) {
    if (norm.layer) v = f_sub(v, f_set(m.mean));
    v = f_mul(f_mul(v, f_set(m.inverse)), f_load_n(norm.weight + i, n));
    return norm.bias ? f_add(v, f_load_n(norm.bias + i, n)) : v;
}

}  // namespace TS_ISA
}  // namespace twostroke
