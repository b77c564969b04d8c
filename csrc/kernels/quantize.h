// Float32 to a file's blocks: 16 blocks at a time, one a lane. The arithmetic of weights/quantize.py and
// weights/scale_search.py, operation by operation and sum by sum, so that the bits are theirs.
namespace twostroke {
namespace TS_ISA {

constexpr int kScaleCandidates = 5;  // on each side of the obvious one
constexpr double kScaleStride = 0.2;  // in steps of the largest value
constexpr float kNudges[] = {0.0f, -1.0f, 1.0f};  // of rounded scales and minimums

// Sums taken together.
template <int count>
struct Sums {
    F32x16 s[count];
};

// term(i) + ... over `count` indices from `first` on, `step` apart: halves are folded onto each other.
template <int count, int step = 1, class Term>
TS_INLINE auto folded(Term term, int first = 0) {
    if constexpr (count == 1) {
        return term(first);
    } else {
        auto total = folded<count / 2, 2 * step>(term, first);
        const auto other = folded<count / 2, 2 * step>(term, first + step);
        for (size_t i = 0; i < sizeof(total.s) / sizeof(total.s[0]); ++i) total.s[i] = f_add(total.s[i], other.s[i]);
        return total;
    }
}

TS_INLINE F32x16 quotient(F32x16 dividend, F32x16 divisor) {  // 0 where the divisor is not above 0
    const F32x16 zero = f_set(0.0f);
    return f_where_less(zero, divisor, f_div(dividend, f_where_less(zero, divisor, divisor, f_set(1.0f))), zero);
}

// What steps are quotients by: the scale, or infinity for 0.
TS_INLINE F32x16 as_divisor(F32x16 scale) {
    return f_where_less(f_set(0.0f), f_abs(scale), scale, f_set(__builtin_inff()));
}

TS_INLINE F32x16 nearest(F32x16 x, float lowest, float highest) {
    return to_f32(to_i32(f_min(f_max(x, f_set(lowest)), f_set(highest))));
}

static F32x16 to_half(F32x16 x) {
    float lanes[16];
    f_store(lanes, x);
    for (float& lane : lanes) lane = f16_to_f32(f32_to_f16(lane));
    return f_load(lanes);
}

// The values of 16 blocks of `size`, value after value, their weights, and the best scale and minimum so far.
template <int size>
struct ScaleSearch {
    alignas(64) float values[size][16], weights[size][16];
    F32x16 error, scale, minimum;

    TS_METHOD F32x16 x(int i) const { return f_load(values[i]); }
    TS_METHOD F32x16 w(int i) const { return f_load(weights[i]); }

    TS_METHOD void start() {
        error = f_set(__builtin_inff());
        scale = minimum = f_set(0.0f);
    }

    void consider(F32x16 candidate, F32x16 low, float lowest, float highest) {
        const F32x16 divisor = as_divisor(candidate);
        const F32x16 found = folded<size>([&](int i) {
            const F32x16 steps = nearest(f_div(f_sub(x(i), low), divisor), lowest, highest);
            const F32x16 off = f_sub(f_add(f_mul(candidate, steps), low), x(i));
            return Sums<1>{{f_mul(w(i), f_mul(off, off))}};
        }).s[0];
        scale = f_where_less(found, error, candidate, scale);
        minimum = f_where_less(found, error, low, minimum);
        error = f_where_less(found, error, found, error);
    }

    // Leaves in `scale` the best scale for steps from -levels to levels - 1.
    void symmetric(int levels) {
        F32x16 largest = x(0);
        for (int i = 1; i < size; ++i) largest = f_where_less(f_abs(largest), f_abs(x(i)), x(i), largest);
        const auto lowest = static_cast<float>(-levels), highest = static_cast<float>(levels - 1);
        const F32x16 zero = f_set(0.0f);
        start();
        consider(f_div(largest, f_set(lowest)), zero, lowest, highest);
        for (int k = -kScaleCandidates; k <= kScaleCandidates; ++k) {
            const F32x16 divisor = as_divisor(f_div(largest, f_set(static_cast<float>(-levels - kScaleStride * k))));
            const auto sums = folded<size>([&](int i) {
                const F32x16 steps = nearest(f_div(x(i), divisor), lowest, highest), weighted = f_mul(w(i), steps);
                return Sums<2>{{f_mul(weighted, x(i)), f_mul(weighted, steps)}};
            });
            consider(quotient(sums.s[0], sums.s[1]), zero, lowest, highest);
        }
    }

    // Leaves the best scale and minimum for steps from 0 to `top`; `halves`: of those that are float16.
    void affine(int top, bool halves, bool at_most_zero) {
        F32x16 low = x(0), high = x(0);
        for (int i = 1; i < size; ++i) {
            low = f_min(low, x(i));
            high = f_max(high, x(i));
        }
        if (at_most_zero) low = f_min(low, f_set(0.0f));
        const F32x16 span = f_sub(high, low);
        const auto highest = static_cast<float>(top);
        const auto rounded = [&](F32x16 value) { return halves ? to_half(value) : value; };
        start();
        consider(rounded(f_div(span, f_set(highest))), rounded(low), 0.0f, highest);
        const auto all = folded<size>([&](int i) { return Sums<2>{{w(i), f_mul(w(i), x(i))}}; });
        for (int k = -kScaleCandidates; k <= kScaleCandidates; ++k) {
            const F32x16 divisor = as_divisor(f_div(span, f_set(static_cast<float>(top + kScaleStride * k))));
            const auto sums = folded<size>([&](int i) {
                const F32x16 steps = nearest(f_div(f_sub(x(i), low), divisor), 0.0f, highest);
                const F32x16 weighted = f_mul(w(i), steps);
                return Sums<3>{{weighted, f_mul(weighted, steps), f_mul(weighted, x(i))}};
            });
            const F32x16 sum_l = sums.s[0], sum_ll = sums.s[1], sum_xl = sums.s[2], sum_w = all.s[0], sum_x = all.s[1];
            const F32x16 determinant = f_sub(f_mul(sum_w, sum_ll), f_mul(sum_l, sum_l));
            F32x16 best = quotient(f_sub(f_mul(sum_w, sum_xl), f_mul(sum_x, sum_l)), determinant);
            F32x16 least = quotient(f_sub(f_mul(sum_ll, sum_x), f_mul(sum_l, sum_xl)), determinant);
            if (at_most_zero) {
                best = f_where_less(f_set(0.0f), least, scale, best);
                least = f_where_less(f_set(0.0f), least, minimum, least);
            }
            consider(rounded(best), rounded(least), 0.0f, highest);
        }
    }

    // The steps of block `lane`, plus `offset`, for scale and minimum as they are now.
    void steps(float lowest, float highest, float offset, uint8_t (&out)[size][16]) const {
        const F32x16 divisor = as_divisor(scale);
        for (int i = 0; i < size; ++i) {
            const F32x16 step = nearest(f_div(f_sub(x(i), minimum), divisor), lowest, highest);
            int32_t lanes[16];
            i_store(lanes, to_i32(f_add(step, f_set(offset))));
            for (int lane = 0; lane < 16; ++lane) out[i][lane] = static_cast<uint8_t>(lanes[lane]);
        }
    }

    // 16 blocks, one after another; those past `blocks` are zeros.
    void read(const float* source, int64_t blocks) {
        for (int i = 0; i < size; ++i)
            for (int lane = 0; lane < 16; ++lane) values[i][lane] = lane < blocks ? source[lane * size + i] : 0.0f;
    }
};

// --- blocks of 32 ------------------------------------------------------------------------------------------------------

static void put_low_nibbles(const uint8_t (&steps)[32][16], int lane, uint8_t (&out)[16]) {
    for (int i = 0; i < 16; ++i)
        out[i] = static_cast<uint8_t>((steps[i][lane] & 15) | (steps[i + 16][lane] & 15) << 4);
}

template <class Block>
static void put_steps(const uint8_t (&steps)[32][16], int lane, Block& block) {
    put_low_nibbles(steps, lane, block.qs);
    if constexpr (requires { block.qh; }) {
        uint32_t bits = 0;
        for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(steps[i][lane] >> 4) << i;
        std::memcpy(block.qh, &bits, 4);
    }
}

// Blocks with a scale only. The nearest steps are kept, with the scale at which they are in the mean as long as the
// values (see weights/quantize.py).
template <class Block>
static void quantize_unbiased(ScaleSearch<32>& search, int levels, int lanes, Block* out) {
    const auto lowest = static_cast<float>(-levels), highest = static_cast<float>(levels - 1);
    for (auto& weights : search.weights)
        for (float& weight : weights) weight = 1.0f;
    search.symmetric(levels);
    uint8_t steps[32][16];
    search.steps(lowest, highest, -lowest, steps);
    const F32x16 divisor = as_divisor(search.scale), zero = f_set(0.0f);
    const auto sums = folded<32>([&](int i) {
        const F32x16 x = search.x(i);
        return Sums<2>{{f_mul(x, x), f_mul(x, nearest(f_div(x, divisor), lowest, highest))}};
    });
    alignas(64) float scales[16];
    f_store(scales, f_where_less(zero, f_abs(sums.s[1]), f_div(sums.s[0], as_divisor(sums.s[1])), zero));
    for (int lane = 0; lane < lanes; ++lane) {
        out[lane].d = f32_to_f16(scales[lane]);
        put_steps(steps, lane, out[lane]);
    }
}

template <class Block>
static void quantize_affine(ScaleSearch<32>& search, int top, int lanes, Block* out) {
    for (auto& weights : search.weights)
        for (float& weight : weights) weight = 1.0f;
    search.affine(top, true, false);
    uint8_t steps[32][16];
    search.steps(0.0f, static_cast<float>(top), 0.0f, steps);
    alignas(64) float scales[16], minimums[16];
    f_store(scales, search.scale);
    f_store(minimums, search.minimum);
    for (int lane = 0; lane < lanes; ++lane) {
        out[lane].d = f32_to_f16(scales[lane]);
        out[lane].m = f32_to_f16(minimums[lane]);
        put_steps(steps, lane, out[lane]);
    }
}

static void quantize_q8_0(const float* values, int64_t blocks, BlockQ8_0* out) {
    for (int64_t block = 0; block < blocks; ++block, values += 32) {
        float largest = 0.0f;
        for (int i = 0; i < 32; ++i) largest = __builtin_fmaxf(largest, __builtin_fabsf(values[i]));
        const float scale = largest / 127.0f, inverse = scale > 1e-38f ? 1.0f / scale : 0.0f;
        out[block].d = f32_to_f16(scale);
        for (int i = 0; i < 32; ++i) {
            const float scaled = values[i] * inverse;
            out[block].qs[i] = static_cast<int8_t>(static_cast<int32_t>(scaled + __builtin_copysignf(0.5f, scaled)));
        }
    }
}

// --- super-blocks of 256 -----------------------------------------------------------------------------------------------

// The largest of eight, divided, in float16.
static float head_scale(const float* scales) {
    float largest = scales[0];
    for (int i = 1; i < 8; ++i) largest = scales[i] > largest ? scales[i] : largest;
    return f16_to_f32(f32_to_f16(largest / 63.0f));
}

// Eight scales and eight minimums of 6 bits in twelve bytes.
static void put_six_bits(const int32_t* scales, const int32_t* minimums, uint8_t* out) {
    for (int i = 0; i < 4; ++i) {
        out[i] = static_cast<uint8_t>(scales[i] | scales[i + 4] >> 4 << 6);
        out[i + 4] = static_cast<uint8_t>(minimums[i] | minimums[i + 4] >> 4 << 6);
        out[i + 8] = static_cast<uint8_t>((scales[i + 4] & 15) | (minimums[i + 4] & 15) << 4);
    }
}

static void weigh_by_size(ScaleSearch<32>& search) {
    alignas(64) float mean[16];
    f_store(mean, f_div(folded<32>([&](int i) { return Sums<1>{{f_mul(search.x(i), search.x(i))}}; }).s[0],
                        f_set(32.0f)));
    for (float& lane : mean) lane = __builtin_sqrtf(lane);
    for (int i = 0; i < 32; ++i) f_store(search.weights[i], f_add(f_load(mean), f_abs(search.x(i))));
}

// Q4_K and Q5_K: 16 sub-blocks, of two super-blocks.
template <class Block>
static void quantize_super(ScaleSearch<32>& search, int top, int blocks, Block* out) {
    weigh_by_size(search);
    search.affine(top, false, true);
    alignas(64) float scales[16], minimums[16], head[16], head_minimum[16];
    f_store(scales, search.scale);
    f_store(minimums, f_sub(f_set(0.0f), search.minimum));
    for (int lane = 0; lane < 16; ++lane) {
        head[lane] = head_scale(scales + lane / 8 * 8);
        head_minimum[lane] = head_scale(minimums + lane / 8 * 8);
    }
    const F32x16 d = f_load(head), m = f_load(head_minimum), d_divisor = as_divisor(d), m_divisor = as_divisor(m);
    const F32x16 small = nearest(f_div(f_load(scales), d_divisor), 0.0f, 63.0f);
    const F32x16 small_minimum = nearest(f_div(f_load(minimums), m_divisor), 0.0f, 63.0f);
    const auto moved = [](F32x16 x, float by) { return f_min(f_max(f_add(x, f_set(by)), f_set(0.0f)), f_set(63.0f)); };
    const auto highest = static_cast<float>(top);
    search.start();
    for (float by : kNudges)
        for (float by_minimum : kNudges)
            search.consider(f_mul(d, moved(small, by)), f_sub(f_set(0.0f), f_mul(m, moved(small_minimum, by_minimum))), 0.0f,
                            highest);
    int32_t six[16], six_minimums[16];
    i_store(six, to_i32(nearest(f_div(search.scale, d_divisor), 0.0f, 63.0f)));
    i_store(six_minimums, to_i32(nearest(f_div(f_sub(f_set(0.0f), search.minimum), m_divisor), 0.0f, 63.0f)));
    uint8_t steps[32][16];
    search.steps(0.0f, highest, 0.0f, steps);
    for (int block = 0; block < blocks; ++block) {
        const int first = 8 * block;
        Block& b = out[block];
        b.d = f32_to_f16(head[first]);
        b.dmin = f32_to_f16(head_minimum[first]);
        put_six_bits(six + first, six_minimums + first, b.scales);
        for (int i = 0; i < 32; ++i) {
            const uint8_t* of_blocks = steps[i] + first;
            for (int pair = 0; pair < 4; ++pair)
                b.qs[32 * pair + i] = static_cast<uint8_t>((of_blocks[2 * pair] & 15) | (of_blocks[2 * pair + 1] & 15) << 4);
            if constexpr (requires { b.qh; }) {
                unsigned bits = 0;
                for (int sub = 0; sub < 8; ++sub) bits |= static_cast<unsigned>(of_blocks[sub] >> 4) << sub;
                b.qh[i] = static_cast<uint8_t>(bits);
            }
        }
    }
}

static void quantize_q6_k(ScaleSearch<16>& search, BlockQ6_K& out) {
    for (int i = 0; i < 16; ++i) f_store(search.weights[i], f_mul(search.x(i), search.x(i)));
    search.symmetric(32);
    alignas(64) float scales[16];
    f_store(scales, search.scale);
    float largest = scales[0];
    for (float scale : scales) largest = __builtin_fabsf(scale) > __builtin_fabsf(largest) ? scale : largest;
    out.d = f32_to_f16(largest / -128.0f);
    const F32x16 d = f_set(f16_to_f32(out.d)), small = nearest(f_div(search.scale, as_divisor(d)), -128.0f, 127.0f);
    int32_t small_scales[16];
    i_store(small_scales, to_i32(small));
    for (int i = 0; i < 16; ++i) out.scales[i] = static_cast<int8_t>(small_scales[i]);
    search.scale = f_mul(d, small);
    search.minimum = f_set(0.0f);
    uint8_t steps[16][16];  // column, sub-block
    search.steps(-32.0f, 31.0f, 32.0f, steps);
    for (int half = 0; half < 2; ++half)
        for (int i = 0; i < 32; ++i) {
            const uint8_t* of_blocks = steps[i % 16] + 8 * half + i / 16;  // columns i, i + 32, i + 64, i + 96 are 2 apart
            const unsigned q[4] = {of_blocks[0], of_blocks[2], of_blocks[4], of_blocks[6]};
            out.ql[64 * half + i] = static_cast<uint8_t>((q[0] & 15) | (q[2] & 15) << 4);
            out.ql[64 * half + 32 + i] = static_cast<uint8_t>((q[1] & 15) | (q[3] & 15) << 4);
            out.qh[32 * half + i] = static_cast<uint8_t>(q[0] >> 4 | q[1] >> 4 << 2 | q[2] >> 4 << 4 | q[3] >> 4 << 6);
        }
}

template <int size, class Block, class Quantize>
static void in_sixteens(const float* values, int64_t blocks, int blocks_at_once, Block* out, Quantize quantize) {
    ScaleSearch<size> search;
    const int of_a_block = 16 / blocks_at_once;  // lanes
    for (int64_t first = 0; first < blocks; first += blocks_at_once) {
        const int now = static_cast<int>(blocks - first < blocks_at_once ? blocks - first : blocks_at_once);
        search.read(values + first * of_a_block * size, now * of_a_block);
        quantize(search, now, out + first);
    }
}

static void quantize_blocks(TensorType type, const float* values, int64_t blocks, uint8_t* bytes) {
    using Search = ScaleSearch<32>;
    switch (type) {
        case TensorType::Q5_0:
            return in_sixteens<32>(values, blocks, 16, reinterpret_cast<BlockQ5_0*>(bytes),
                                   [](Search& s, int n, BlockQ5_0* out) { quantize_unbiased(s, 16, n, out); });
        case TensorType::Q4_1:
            return in_sixteens<32>(values, blocks, 16, reinterpret_cast<BlockQ4_1*>(bytes),
                                   [](Search& s, int n, BlockQ4_1* out) { quantize_affine(s, 15, n, out); });
        case TensorType::Q5_1:
            return in_sixteens<32>(values, blocks, 16, reinterpret_cast<BlockQ5_1*>(bytes),
                                   [](Search& s, int n, BlockQ5_1* out) { quantize_affine(s, 31, n, out); });
        case TensorType::Q4_K:
            return in_sixteens<32>(values, blocks, 2, reinterpret_cast<BlockQ4_K*>(bytes),
                                   [](Search& s, int n, BlockQ4_K* out) { quantize_super(s, 15, n, out); });
        case TensorType::Q5_K:
            return in_sixteens<32>(values, blocks, 2, reinterpret_cast<BlockQ5_K*>(bytes),
                                   [](Search& s, int n, BlockQ5_K* out) { quantize_super(s, 31, n, out); });
        case TensorType::Q6_K:
            return in_sixteens<16>(values, blocks, 1, reinterpret_cast<BlockQ6_K*>(bytes),
                                   [](ScaleSearch<16>& s, int, BlockQ6_K* out) { quantize_q6_k(s, *out); });
        default: return quantize_q8_0(values, blocks, reinterpret_cast<BlockQ8_0*>(bytes));
    }
}

}  // namespace TS_ISA
}  // namespace twostroke
