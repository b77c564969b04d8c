// Kernels on rows of activations: norm, 16-bit quantisation, RoPE, elementwise, and the reductions sampling needs.
namespace twostroke {
namespace TS_ISA {

static float inverse_rms(const float* x, int64_t dim, float eps) {
    F32x16 sum = f_set(0.0f);
    int64_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        const F32x16 v = f_load(x + i);
        sum = f_fma(v, v, sum);
    }
    if (i < dim) {
        const F32x16 v = f_load_n(x + i, static_cast<int>(dim - i));
        sum = f_fma(v, v, sum);
    }
    return 1.0f / __builtin_sqrtf(f_sum(sum) / static_cast<float>(dim) + eps);
}

static void rms_norm(const RmsNormArgs& a) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
        const float* x = a.x + row * a.x_stride;
        float* out = a.out + row * a.out_stride;
        const F32x16 scale = f_set(inverse_rms(x, a.dim, a.eps));
        for (int64_t i = 0; i < a.dim; i += 16) {
            const int n = static_cast<int>(a.dim - i);
            f_store_n(out + i, f_mul(f_mul(f_load_n(x + i, n), scale), f_load_n(a.weight + i, n)), n);
        }
    }
}

// One block of 32: scale = max|x| / 32639, so that 256 * high + low fits two signed bytes.
TS_INLINE void quantize_block(F32x16 low, F32x16 high, uint8_t* quads, float* scale, int32_t* sums) {
    const float largest = f_hmax(f_max(f_abs(low), f_abs(high)));
    const float invalid = f_sum(f_add(f_sub(low, low), f_sub(high, high)));  // 0, or NaN, which a maximum would lose
    if (!(largest >= 1e-30f) || invalid != 0.0f) {  // zero; or infinite or NaN, which the scale carries on
        std::memset(quads, 0, 64);
        *scale = invalid;
        sums[0] = sums[1] = 0;
        return;
    }
    *scale = largest / 32639.0f;
    const F32x16 inverse = f_set(32639.0f / largest);
    const I32x16 q0 = to_i32(f_mul(low, inverse)), q1 = to_i32(f_mul(high, inverse));
    store_quads(quads, q0);
    store_quads(quads + 32, q1);
    sums[0] = i_sum(q0);
    sums[1] = i_sum(q1);
}

static void quantize_rows(const QuantizeArgs& a) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
        const float* x = a.x + row * a.x_stride;
        const F32x16 rms = f_set(a.norm_weight ? inverse_rms(x, a.cols, a.eps) : 1.0f);
        for (int64_t i = 0; i < a.cols; i += 32) {
            const int n = static_cast<int>(a.cols - i);
            F32x16 low = f_load_n(x + i, n), high = f_load_n(x + i + 16, n - 16);
            if (a.norm_weight) {
                low = f_mul(f_mul(low, rms), f_load_n(a.norm_weight + i, n));
                high = f_mul(f_mul(high, rms), f_load_n(a.norm_weight + i + 16, n - 16));
            }
            if (a.plain) {
                f_store_n(a.plain + row * a.cols + i, low, n);
                f_store_n(a.plain + row * a.cols + i + 16, high, n - 16);
            }
            if (a.quant.quads) {
                quantize_block(low, high, a.quant.quads + (row * a.cols + i) * 2,
                               a.quant.scales + (row * a.cols + i) / 32, a.quant.sums + (row * a.cols + i) / 16);
            }
        }
    }
}

static void rope(const RopeArgs& a) {
    const int half = a.dim / 2, step = a.interleaved ? 2 : 1, other = a.interleaved ? 1 : half;
    for (int head = 0; head < a.num_heads; ++head) {
        const float* x = a.x + head * a.head_dim;
        float* out = a.out + head * a.head_dim;
        for (int i = 0; i < half; ++i) {
            const float x0 = x[i * step], x1 = x[i * step + other];
            out[i * step] = __builtin_fmaf(x0, a.cos[i], -(x1 * a.sin[i]));
            out[i * step + other] = __builtin_fmaf(x1, a.cos[i], x0 * a.sin[i]);
        }
        for (int i = a.dim; i < a.head_dim; ++i) out[i] = x[i];
    }
}

static void add(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];
}

static void swiglu(const float* gate, const float* up, float* out, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        const int left = static_cast<int>(n - i);
        f_store_n(out + i, f_mul(f_silu(f_load_n(gate + i, left)), f_load_n(up + i, left)), left);
    }
}

static int64_t argmax(const float* x, int64_t n) {
    const F32x16 one = f_set(1.0f), infinity = f_set(__builtin_inff());
    F32x16 best = f_set(-__builtin_inff()), invalid = f_set(0.0f);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const F32x16 v = f_load(x + i);
        best = f_max(v, best);
        invalid = f_add(invalid, f_zero_below(one, v, infinity));
    }
    float largest = f_hmax(best), num_invalid = f_sum(invalid);
    for (; i < n; ++i) {
        largest = x[i] > largest ? x[i] : largest;
        num_invalid += x[i] < __builtin_inff() ? 0.0f : 1.0f;
    }
    if (num_invalid > 0.0f) return -1;
    for (i = 0; i < n; ++i)
        if (x[i] == largest) return i;
    return -1;
}

static float sum_exp(const float* x, int64_t n, float offset, float scale) {
    F32x16 sums[4] = {f_set(0.0f), f_set(0.0f), f_set(0.0f), f_set(0.0f)};
    const F32x16 shift = f_set(offset), factor = f_set(scale);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        for (int j = 0; j < 4; ++j)
            sums[j] = f_add(sums[j], f_exp(f_mul(f_sub(f_load(x + i + 16 * j), shift), factor)));
    float total = f_sum(f_add(f_add(sums[0], sums[1]), f_add(sums[2], sums[3])));
    for (; i < n; i += 16) {
        const int left = static_cast<int>(n - i);
        const F32x16 e = f_exp(f_mul(f_sub(f_load_n(x + i, left), shift), factor));
        total += f_sum(f_keep(e, left, f_set(0.0f)));
    }
    return total;
}

}  // namespace TS_ISA
}  // namespace twostroke
