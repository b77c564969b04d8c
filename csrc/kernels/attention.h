// Attention over paged keys and values. Keys lie (head_dim, 16) in a block, so that a vector holds one element of 16
// keys and a score needs no horizontal sum; values lie (16, padded_dim).
//
// Keys are taken in absolute ranges of 256. A range's maximum, sum and weighted values depend only on the query and
// on those keys; ranges are merged in order. So neither threads nor chunk borders nor neighbours change a bit.
namespace twostroke {
namespace TS_ISA {

// How each type of cache is read and written. `Scales` are what the elements from `i` on of a block's 16 keys or values
// are multiplied by, of a key a vector, of a value a number a token; nothing where elements are floats.
struct NoScales {};

template <class T>
struct FloatElement {
    using Scales = NoScales;
    static constexpr int kBytes = sizeof(T);
    TS_INLINE Scales key_scales(const uint8_t*, const KvLayout&, int) { return {}; }
    TS_INLINE Scales value_scales(const uint8_t*, const KvLayout&, int) { return {}; }
    TS_INLINE F32x16 key(const uint8_t* keys, int i, const Scales&) { return load(keys, i * kBlockTokens); }
    TS_INLINE F32x16 value(const uint8_t* values, int at, int, const Scales&) { return load(values, at); }

    TS_INLINE F32x16 load(const uint8_t* p, int at) { return load_floats(reinterpret_cast<const T*>(p) + at); }
    static void store_kv(const StoreKvArgs& a);
};

TS_INLINE void store_floats(float* p, F32x16 x) { f_store(p, x); }
TS_INLINE void store_floats(Half* p, F32x16 x) { f_store_f16(&p->bits, x); }
TS_INLINE void store_floats(Brain* p, F32x16 x) {
    float lanes[16];
    f_store(lanes, x);
    for (int i = 0; i < 16; ++i) p[i].bits = f32_to_bf16(lanes[i]);
}

template <class T>
void FloatElement<T>::store_kv(const StoreKvArgs& a) {
    auto* keys = reinterpret_cast<T*>(a.head);
    auto* values = reinterpret_cast<T*>(a.head + a.layout.key_bytes()) + a.slot * a.layout.padded_dim;
    for (int i = 0; i < a.layout.head_dim; i += 16) {
        const int n = a.layout.head_dim - i < 16 ? a.layout.head_dim - i : 16;
        T lanes[16];
        store_floats(lanes, f_load_n(a.k + i, n));
        for (int j = 0; j < n; ++j) keys[(i + j) * kBlockTokens + a.slot] = lanes[j];
        store_floats(values + i, f_load_n(a.v + i, n));
    }
}

// Signed bytes with a scale for every 32 elements of a key or value: GGML's Q8_0, but that the scale that bytes are made
// with is the float16 which they are read with.
struct ElementQ8_0 {
    struct Scales {
        alignas(64) float of[kBlockTokens];
    };
    static constexpr int kBytes = 1;
    TS_INLINE Scales scales(const uint8_t* elements, int dim, int i) {
        Scales s;
        const auto* halves = reinterpret_cast<const uint16_t*>(elements + dim * kBlockTokens);
        f_store(s.of, f_load_f16(halves + i / kKvGroup * kBlockTokens));
        return s;
    }
    TS_INLINE Scales key_scales(const uint8_t* keys, const KvLayout& l, int i) { return scales(keys, l.head_dim, i); }
    TS_INLINE Scales value_scales(const uint8_t* values, const KvLayout& l, int i) { return scales(values, l.padded_dim, i); }
    TS_INLINE F32x16 key(const uint8_t* keys, int i, const Scales& s) { return f_mul(load(keys, i * kBlockTokens), f_load(s.of)); }
    TS_INLINE F32x16 value(const uint8_t* values, int at, int token, const Scales& s) {
        return f_mul(load(values, at), f_set(s.of[token]));
    }

    TS_INLINE F32x16 load(const uint8_t* p, int at) { return to_f32(i_load_i8(reinterpret_cast<const int8_t*>(p) + at)); }

    // One vector into bytes `step` apart, and its scales 16 apart; `n` of its elements are there.
    TS_INLINE void store(const float* x, int n, uint8_t* bytes, int step, uint16_t* scales) {
        for (int i = 0; i < n; i += kKvGroup, scales += kBlockTokens) {
            const F32x16 low = f_load_n(x + i, n - i), high = f_load_n(x + i + 16, n - i - 16);
            const float largest = f_hmax(f_max(f_abs(low), f_abs(high)));
            const float invalid = f_sum(f_add(f_sub(low, low), f_sub(high, high)));  // 0, or NaN, which a maximum would lose
            uint16_t half[16];
            f_store_f16(half, f_set(invalid != 0.0f ? invalid : largest / 127.0f));
            *scales = half[0];
            const float scale = f16_to_f32(half[0]), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
            int32_t q[kKvGroup];
            i_store(q, to_i32(f_mul(low, f_set(inverse))));
            i_store(q + 16, to_i32(f_mul(high, f_set(inverse))));
            for (int j = 0; j < kKvGroup && i + j < n; ++j) {
                const int32_t bounded = q[j] > 127 ? 127 : q[j] < -127 ? -127 : q[j];
                bytes[(i + j) * step] = static_cast<uint8_t>(static_cast<int8_t>(bounded));
            }
        }
    }

    static void store_kv(const StoreKvArgs& a) {
        const int head_dim = a.layout.head_dim, padded_dim = a.layout.padded_dim;
        uint8_t* values = a.head + a.layout.key_bytes();
        store(a.k, head_dim, a.head + a.slot, kBlockTokens, reinterpret_cast<uint16_t*>(a.head + head_dim * kBlockTokens) + a.slot);
        store(a.v, head_dim, values + a.slot * padded_dim, 1, reinterpret_cast<uint16_t*>(values + padded_dim * kBlockTokens) + a.slot);
        for (int i = head_dim; i < padded_dim; ++i) values[a.slot * padded_dim + i] = 0;
    }
};

static void store_kv(const StoreKvArgs& a) {
    switch (a.layout.type) {
        case KvType::F32: return FloatElement<float>::store_kv(a);
        case KvType::F16: return FloatElement<Half>::store_kv(a);
        case KvType::BF16: return FloatElement<Brain>::store_kv(a);
        case KvType::Q8_0: return ElementQ8_0::store_kv(a);
    }
}

TS_INLINE const uint8_t* head_at(const AttentionArgs& a, int key) {
    return a.pool + static_cast<size_t>(a.blocks[key / kBlockTokens]) * a.block_stride;
}

// Running sums that fit this instruction set's registers beside what feeds them; more queries leave less for the rest.
#if defined(__AVX512F__)
constexpr int kSums = 24;
#else
constexpr int kSums = 6;
#endif

// Scores of B blocks of 16 keys from `key` on, Q queries: scale * q . k, -infinity where a key is not visible. Several
// blocks at once only keep more sums in flight; each score is summed in the order of elements.
template <class E, int Q, int B>
TS_INLINE void score_blocks(const AttentionArgs& a, int key) {
    const uint8_t* keys[B];
    for (int b = 0; b < B; ++b) keys[b] = head_at(a, key + b * kBlockTokens);
    const size_t values_at = a.layout.key_bytes();
    F32x16 sums[B][Q];
    for (int b = 0; b < B; ++b)
        for (int q = 0; q < Q; ++q) sums[b][q] = f_set(0.0f);
    for (int begin = 0; begin < a.layout.head_dim; begin += kKvGroup) {
        const int end = begin + kKvGroup < a.layout.head_dim ? begin + kKvGroup : a.layout.head_dim;
        typename E::Scales scales[B];
        for (int b = 0; b < B; ++b) scales[b] = E::key_scales(keys[b], a.layout, begin);
        for (int i = begin; i < end; ++i) {
            F32x16 k[B];
            for (int b = 0; b < B; ++b) {
                k[b] = E::key(keys[b], i, scales[b]);
                prefetch_l2(keys[b] + values_at + i * kBlockTokens * E::kBytes);
            }
            for (int q = 0; q < Q; ++q) {
                const F32x16 x = f_set(a.q[q][i]);
                for (int b = 0; b < B; ++b) sums[b][q] = f_fma(x, k[b], sums[b][q]);
            }
        }
    }
    const F32x16 scale = f_set(a.scale), cap = f_set(a.soft_cap), hidden = f_set(-__builtin_inff());
    for (int b = 0; b < B; ++b) {
        const int first = key + b * kBlockTokens;
        for (int q = 0; q < Q; ++q) {
            F32x16 s = f_mul(sums[b][q], scale);
            if (a.soft_cap != 0.0f) s = f_mul(cap, f_tanh(f_div(s, cap)));
            s = f_keep(s, a.visible[q] - first, hidden);
            if (first < a.first[q]) {
                alignas(64) float lanes[16];
                f_store(lanes, s);
                for (int i = 0; i < 16 && first + i < a.first[q]; ++i) lanes[i] = -__builtin_inff();
                s = f_load(lanes);
            }
            f_store(a.scores + q * kKeyRange + (first - a.key_begin), s);
        }
    }
}

// scores (Q, kKeyRange)
template <class E, int Q>
static void score_range(const AttentionArgs& a) {
    constexpr int kBlocks = kSums / Q >= 4 ? 4 : kSums / Q >= 2 ? 2 : 1;
    int key = a.key_begin;
    for (; key + kBlocks * kBlockTokens <= a.key_end; key += kBlocks * kBlockTokens) score_blocks<E, Q, kBlocks>(a, key);
    for (; key < a.key_end; key += kBlockTokens) score_blocks<E, Q, 1>(a, key);
}

// Scores become weights e^(s - max); the state takes maximum and sum.
TS_INLINE void soften(float* scores, int count, float* state) {
    F32x16 largest = f_set(-__builtin_inff());
    for (int i = 0; i < count; i += 16) largest = f_max(f_load(scores + i), largest);
    const float maximum = f_hmax(largest);
    F32x16 sum = f_set(0.0f);
    for (int i = 0; i < count; i += 16) {
        const F32x16 weight = f_exp(f_sub(f_load(scores + i), f_set(maximum)));
        f_store(scores + i, weight);
        sum = f_add(sum, weight);
    }
    state[0] = maximum;
    state[1] = f_sum(sum);
}

// acc = sum over keys up to `end` of weight * value, elements 16 * D from `i` on of all queries, in the order of keys.
template <class E, int Q, int D>
TS_INLINE void gather_elements(const AttentionArgs& a, int i, int end) {
    F32x16 acc[D][Q];
    for (int d = 0; d < D; ++d)
        for (int q = 0; q < Q; ++q) acc[d][q] = f_set(0.0f);
    for (int key = a.key_begin; key < end; key += kBlockTokens) {
        const uint8_t* values = head_at(a, key) + a.layout.key_bytes();
        const int count = end - key < kBlockTokens ? end - key : kBlockTokens;
        const int ahead = key - a.key_begin + a.next_begin;
        const uint8_t* next = ahead < a.next_end ? head_at(a, ahead) : values;
        const float* weights = a.scores + (key - a.key_begin);
        typename E::Scales scales[D];
        for (int d = 0; d < D; ++d) scales[d] = E::value_scales(values, a.layout, i + 16 * d);
        for (int j = 0; j < count; ++j) {
            F32x16 v[D];
            for (int d = 0; d < D; ++d) {
                const int at = j * a.layout.padded_dim + i + 16 * d;
                v[d] = E::value(values, at, j, scales[d]);
                prefetch_l2(next + at * E::kBytes);
            }
            for (int q = 0; q < Q; ++q) {
                const F32x16 weight = f_set(weights[q * kKeyRange + j]);
                for (int d = 0; d < D; ++d) acc[d][q] = f_fma(weight, v[d], acc[d][q]);
            }
        }
    }
    for (int d = 0; d < D; ++d)
        for (int q = 0; q < Q; ++q) f_store(a.state[q] + kStateHeader + i + 16 * d, acc[d][q]);
}

template <class E, int Q>
static void gather_values(const AttentionArgs& a) {
    constexpr int kElements = kSums / Q >= 4 ? 4 : kSums / Q >= 2 ? 2 : 1;
    int end = 0;
    for (int q = 0; q < Q; ++q) end = a.visible[q] > end ? a.visible[q] : end;
    end = end < a.key_end ? end : a.key_end;
    int i = 0;
    for (; i + 16 * kElements <= a.layout.padded_dim; i += 16 * kElements) gather_elements<E, Q, kElements>(a, i, end);
    for (; i < a.layout.padded_dim; i += 16) gather_elements<E, Q, 1>(a, i, end);
}

template <class E, int Q>
static void attend_queries(const AttentionArgs& a) {
    score_range<E, Q>(a);
    const int count = (a.key_end - a.key_begin + kBlockTokens - 1) / kBlockTokens * kBlockTokens;
    for (int q = 0; q < Q; ++q) soften(a.scores + q * kKeyRange, count, a.state[q]);
    gather_values<E, Q>(a);
}

template <class E>
static void attend_as(const AttentionArgs& a) {
    switch (a.num_queries) {
        case 1: return attend_queries<E, 1>(a);
        case 2: return attend_queries<E, 2>(a);
        case 3: return attend_queries<E, 3>(a);
        case 4: return attend_queries<E, 4>(a);
        case 5: return attend_queries<E, 5>(a);
        case 6: return attend_queries<E, 6>(a);
        case 7: return attend_queries<E, 7>(a);
        case 8: return attend_queries<E, 8>(a);
    }
}

static void attend(const AttentionArgs& a) {
    switch (a.layout.type) {
        case KvType::F32: return attend_as<FloatElement<float>>(a);
        case KvType::F16: return attend_as<FloatElement<Half>>(a);
        case KvType::BF16: return attend_as<FloatElement<Brain>>(a);
        case KvType::Q8_0: return attend_as<ElementQ8_0>(a);
    }
}

static void merge(float* total, const float* part, int padded_dim) {
    const float maximum = total[0] > part[0] ? total[0] : part[0];
    const float keep = exp_one(total[0] - maximum), take = exp_one(part[0] - maximum);
    total[0] = maximum;
    total[1] = __builtin_fmaf(total[1], keep, part[1] * take);
    const F32x16 keep16 = f_set(keep), take16 = f_set(take);
    for (int i = kStateHeader; i < kStateHeader + padded_dim; i += 16)
        f_store(total + i, f_fma(f_load(total + i), keep16, f_mul(f_load(part + i), take16)));
}

static void finish(float* out, const float* total, int head_dim) {
    const F32x16 sum = f_set(total[1]);
    for (int i = 0; i < head_dim; i += 16)
        f_store_n(out + i, f_div(f_load(total + kStateHeader + i), sum), head_dim - i);
}

}  // namespace TS_ISA
}  // namespace twostroke
