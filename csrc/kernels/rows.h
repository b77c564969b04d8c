// Kernels on rows of activations: norm, 16-bit quantisation, RoPE, elementwise, and the reductions sampling needs.
namespace twostroke {
namespace TS_ISA {

static void normalize(const NormalizeArgs& a) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
        const float* x = a.x + row * a.dim;
        const Moments m = moments(x, a.dim, a.norm);
        for (int64_t i = 0; i < a.dim; i += 16) {
            const int n = static_cast<int>(a.dim - i);
            f_store_n(a.out + row * a.dim + i, normalized(f_load_n(x + i, n), a.norm, m, i, n), n);
        }
    }
}

// One block of 32: scale = max|x| / 32639, so that 256 * high + low fits two signed bytes.
TS_INLINE void quantize_block(F32x16 low, F32x16 high, uint8_t* quads, float* scale, float* sums) {
    const float largest = f_hmax(f_max(f_abs(low), f_abs(high)));
    const float invalid = f_sum(f_add(f_sub(low, low), f_sub(high, high)));  // 0, or NaN, which a maximum would lose
    if (!(largest >= 1e-30f) || invalid != 0.0f) {  // zero; or infinite or NaN, which the scale carries on
        std::memset(quads, 0, 64);
        *scale = invalid;
        sums[0] = sums[1] = 0.0f;
        return;
    }
    *scale = largest / 32639.0f;
    const F32x16 inverse = f_set(32639.0f / largest);
    const I32x16 q0 = to_i32(f_mul(low, inverse)), q1 = to_i32(f_mul(high, inverse));
    store_quads(quads, q0);
    store_quads(quads + 32, q1);
    sums[0] = static_cast<float>(i_sum(q0));
    sums[1] = static_cast<float>(i_sum(q1));
}

static void quantize_rows(const QuantizeArgs& a) {
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
        const float* x = a.x + row * a.x_stride;
        const Moments m = a.norm.weight ? moments(x, a.cols, a.norm) : Moments{0.0f, 1.0f};
        for (int64_t i = 0; i < a.cols; i += 32) {
            const int n = static_cast<int>(a.cols - i);
            F32x16 low = f_load_n(x + i, n), high = f_load_n(x + i + 16, n - 16);
            if (a.norm.weight) {
                low = normalized(low, a.norm, m, i, n);
                high = f_keep(normalized(high, a.norm, m, i + 16, n - 16), n - 16, f_set(0.0f));
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

// Pairs (i, i + half), 16 at a time.
TS_INLINE void rotate_halves(const RopeArgs& a, const float* x, float* out, int half) {
    for (int i = 0; i < half; i += 16) {
        const int n = half - i;
        const F32x16 x0 = f_load_n(x + i, n), x1 = f_load_n(x + half + i, n);
        const F32x16 cos = f_load_n(a.cos + i, n), sin = f_load_n(a.sin + i, n);
        f_store_n(out + i, f_fma(x0, cos, f_sub(f_set(-0.0f), f_mul(x1, sin))), n);
        f_store_n(out + half + i, f_fma(x1, cos, f_mul(x0, sin)), n);
    }
}

TS_INLINE void rotate_neighbours(const RopeArgs& a, const float* x, float* out, int half) {
    for (int i = 0; i < half; ++i) {
        const float x0 = x[2 * i], x1 = x[2 * i + 1];
        out[2 * i] = __builtin_fmaf(x0, a.cos[i], -(x1 * a.sin[i]));
        out[2 * i + 1] = __builtin_fmaf(x1, a.cos[i], x0 * a.sin[i]);
    }
}

static void rope(const RopeArgs& a) {
    const int half = a.dim / 2;
    for (int head = 0; head < a.num_heads; ++head) {
        const float* x = a.x + head * a.head_dim;
        float* out = a.out + head * a.head_dim;
        if (a.interleaved) {
            rotate_neighbours(a, x, out, half);
        } else {
            rotate_halves(a, x, out, half);
        }
        for (int i = a.dim; i < a.head_dim; ++i) out[i] = x[i];
    }
}

TS_INLINE F32x16 element(Elementwise kind, F32x16 a, F32x16 b, F32x16 constant) {
    switch (kind) {
        case Elementwise::Add: return f_add(a, b);
        case Elementwise::Silu: return f_silu(a);
        case Elementwise::Gelu: return f_gelu(a);
        case Elementwise::GeluTanh: return f_gelu_tanh(a);
        case Elementwise::SquaredRelu: {
            const F32x16 positive = f_max(f_set(0.0f), a);
            return f_mul(positive, positive);
        }
        case Elementwise::Scale: return f_mul(a, constant);
        case Elementwise::SoftCap: return f_mul(constant, f_tanh(f_div(a, constant)));
        case Elementwise::SigmoidGate: return f_div(a, f_add(f_set(1.0f), f_exp(f_sub(f_set(0.0f), b))));
        default: return f_gate(kind, a, b);
    }
}

static void elementwise(const ElementwiseArgs& a) {
    const F32x16 constant = f_set(a.constant);
    for (int64_t row = a.row_begin; row < a.row_end; ++row) {
        for (int64_t i = 0; i < a.dim; i += 16) {
            const int n = static_cast<int>(a.dim - i);
            F32x16 b = f_set(0.0f);
            if (a.b) b = a.kind == Elementwise::SigmoidGate ? f_set(a.b[row]) : f_load_n(a.b + row * a.dim + i, n);
            f_store_n(a.out + row * a.dim + i, element(a.kind, f_load_n(a.a + row * a.dim + i, n), b, constant), n);
        }
    }
}

static void accumulate(float* out, const float* x, float share, int64_t n) {
    const F32x16 factor = f_set(share);
    for (int64_t i = 0; i < n; i += 16) {
        const int left = static_cast<int>(n - i);
        f_store_n(out + i, f_add(f_load_n(out + i, left), f_mul(factor, f_load_n(x + i, left))), left);
    }
}

static int64_t argmax(const float* x, int64_t n) {
    constexpr int64_t kStretch = 512;  // only that of the largest is searched for where it is
    const F32x16 one = f_set(1.0f), infinity = f_set(__builtin_inff()), lowest = f_set(-__builtin_inff());
    F32x16 invalid = f_set(0.0f);
    float largest = -__builtin_inff();
    int64_t at = 0;
    for (int64_t begin = 0; begin < n; begin += kStretch) {
        const int64_t end = begin + kStretch < n ? begin + kStretch : n;
        F32x16 best = lowest;
        for (int64_t i = begin; i < end; i += 16) {
            const F32x16 v = f_keep(f_load_n(x + i, static_cast<int>(end - i)), static_cast<int>(end - i), lowest);
            best = f_max(v, best);
            invalid = f_add(invalid, f_zero_below(one, v, infinity));
        }
        const float largest_here = f_hmax(best);
        if (largest_here > largest) {
            largest = largest_here;
            at = begin;
        }
    }
    if (f_sum(invalid) > 0.0f) return -1;
    for (; at < n; ++at)
        if (x[at] == largest) return at;
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
