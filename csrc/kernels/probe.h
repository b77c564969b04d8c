// What this instruction set can do at best: reading memory, and multiplying from registers. For roofline probes.
namespace twostroke {
namespace TS_ISA {

static float probe_read(const uint8_t* data, size_t bytes, size_t prefetch_bytes) {
    I32x16 sums[8];
    for (auto& sum : sums) sum = i_set(0);
    const size_t whole = bytes / 512 * 512;
    for (size_t at = 0; at < whole; at += 512) {
        for (size_t i = 0; i < 8; ++i) {
            if (prefetch_bytes) __builtin_prefetch(data + at + i * 64 + prefetch_bytes, 0, 2);  // into L2
            sums[i] = i_add(sums[i], i_load(data + at + i * 64));
        }
    }
    for (int i = 1; i < 8; ++i) sums[0] = i_add(sums[0], sums[i]);
    return static_cast<float>(i_sum(sums[0]));
}

// Independent sums: enough to hide an FMA's latency, few enough to stay in registers.
#if defined(__AVX512F__)
constexpr int kProbeSums = 12;
#else
constexpr int kProbeSums = 5;
#endif

static double probe_f32(int64_t rounds, float* sink) {
    F32x16 sums[kProbeSums];
    for (auto& sum : sums) sum = f_set(sink[0]);
    const F32x16 a = f_set(sink[1]), b = f_set(sink[2]);
    for (int64_t r = 0; r < rounds; ++r)
        for (auto& sum : sums) sum = f_fma(a, sum, b);
    for (int i = 1; i < kProbeSums; ++i) sums[0] = f_add(sums[0], sums[i]);
    sink[0] = f_sum(sums[0]);
    return static_cast<double>(rounds) * kProbeSums * 16 * 2;
}

// Byte weights times 16-bit activations, as the linear kernels do it.
static double probe_16bit(int64_t rounds, float* sink) {
    alignas(64) uint8_t bytes[64], x[64];
    for (int i = 0; i < 64; ++i) bytes[i] = x[i] = static_cast<uint8_t>(sink[2]) & 15;
    constexpr int kDots = kRowsAtOnce > 1 ? kRowsAtOnce : 8;
    Dot dots[kDots];
    for (auto& dot : dots) dot = dot_zero();
    const Factors w = factors(b_load(bytes));
    for (int64_t r = 0; r < rounds; ++r)
        for (int i = 0; i < kDots; ++i) dot_quad(dots[i], w, x + 8 * i);
    I32x16 total = i_set(0);
    for (auto& dot : dots) total = i_add(total, dot_sum(dot));
    sink[0] = static_cast<float>(i_sum(total));
    return static_cast<double>(rounds) * kDots * 64 * 2;
}

}  // namespace TS_ISA
}  // namespace twostroke
