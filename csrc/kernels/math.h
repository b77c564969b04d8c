// exp and silu on 16 lanes. Included by isa/*.cpp inside no namespace; everything lives in the ISA's own.
namespace twostroke {
namespace TS_ISA {

// e^x by range reduction to |r| <= ln(2)/2 and a degree-6 polynomial (relative error below 3e-7); 0 below -87, NaN of NaN.
TS_INLINE F32x16 f_exp(F32x16 x) {
    const F32x16 clamped = f_min(f_set(88.0f), f_max(f_set(-87.0f), x));  // of a NaN, the second argument
    const I32x16 n = to_i32(f_mul(clamped, f_set(1.44269504f)));
    const F32x16 nf = to_f32(n);
    F32x16 r = f_fma(nf, f_set(-0.693359375f), clamped);  // ln 2 in two parts
    r = f_fma(nf, f_set(2.12194440e-4f), r);
    F32x16 p = f_set(1.3888889e-3f);
    p = f_fma(p, r, f_set(8.3333333e-3f));
    p = f_fma(p, r, f_set(4.1666667e-2f));
    p = f_fma(p, r, f_set(1.6666667e-1f));
    p = f_fma(p, r, f_set(0.5f));
    p = f_fma(p, r, f_set(1.0f));
    p = f_fma(p, r, f_set(1.0f));
    const F32x16 invalid = f_sub(clamped, clamped);  // 0, or NaN, whose exponent bits the scaling may have changed
    return f_zero_below(f_add(f_scale2(p, n), invalid), x, f_set(-87.0f));
}

TS_INLINE float exp_one(float x) {
    float lanes[16];
    f_store(lanes, f_exp(f_set(x)));
    return lanes[0];
}

// x / (1 + e^-(c x)); with c = 1 silu
TS_INLINE F32x16 f_swish(F32x16 x, F32x16 c) {
    return f_div(x, f_add(f_set(1.0f), f_exp(f_sub(f_set(0.0f), f_mul(c, x)))));
}

TS_INLINE F32x16 f_silu(F32x16 x) { return f_swish(x, f_set(1.0f)); }

TS_INLINE F32x16 f_tanh(F32x16 x) {
    const F32x16 e = f_exp(f_add(x, x));
    return f_sub(f_set(1.0f), f_div(f_set(2.0f), f_add(e, f_set(1.0f))));
}

// x Phi(x), Phi by erf (Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7)
TS_INLINE F32x16 f_gelu(F32x16 x) {
    const F32x16 z = f_mul(f_abs(x), f_set(0.70710678f)), one = f_set(1.0f), zero = f_set(0.0f);
    const F32x16 t = f_div(one, f_fma(f_set(0.3275911f), z, one));
    F32x16 p = f_set(1.061405429f);
    p = f_fma(p, t, f_set(-1.453152027f));
    p = f_fma(p, t, f_set(1.421413741f));
    p = f_fma(p, t, f_set(-0.284496736f));
    p = f_fma(p, t, f_set(0.254829592f));
    const F32x16 tail = f_mul(f_mul(p, t), f_exp(f_sub(zero, f_mul(z, z))));  // 1 - erf(z)
    const F32x16 half = f_mul(f_set(0.5f), tail);  // Phi(-|x|)
    // x Phi(x) = max(x, 0) - |x| Phi(-|x|)
    return f_sub(f_max(zero, x), f_mul(f_abs(x), half));
}

// x Phi(x), Phi by tanh of sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel 2016)
TS_INLINE F32x16 f_gelu_tanh(F32x16 x) {
    const F32x16 inner = f_mul(f_set(1.59576912f), f_fma(f_mul(f_set(0.044715f), f_mul(x, x)), x, x));
    return f_div(x, f_add(f_set(1.0f), f_exp(f_sub(f_set(0.0f), inner))));
}

// gpt-oss: gate limited to 7, up to -7..7; gate sigmoid(1.702 gate) (up + 1)
TS_INLINE F32x16 f_swiglu_oai(F32x16 gate, F32x16 up) {
    const F32x16 limit = f_set(7.0f);
    gate = f_min(limit, gate);
    up = f_max(f_set(-7.0f), f_min(limit, up));
    return f_mul(f_swish(gate, f_set(1.702f)), f_add(up, f_set(1.0f)));
}

TS_INLINE F32x16 f_gate(Elementwise kind, F32x16 gate, F32x16 up) {
    switch (kind) {
        case Elementwise::GateGelu: return f_mul(f_gelu(gate), up);
        case Elementwise::GateGeluTanh: return f_mul(f_gelu_tanh(gate), up);
        case Elementwise::GateSwigluOai: return f_swiglu_oai(gate, up);
        default: return f_mul(f_silu(gate), up);
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
