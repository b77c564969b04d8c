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

// x / (1 + e^-x)
TS_INLINE F32x16 f_silu(F32x16 x) { return f_div(x, f_add(f_set(1.0f), f_exp(f_sub(f_set(0.0f), x)))); }

}  // namespace TS_ISA
}  // namespace twostroke
