// Attention over paged keys and values. Keys lie (head_dim, 16) in a block, so that a vector holds one element of 16
// keys and a score needs no horizontal sum; values lie (16, padded_dim).
//
// Keys are taken in absolute ranges of 256. A range's maximum, sum and weighted values depend only on the query and
// on those keys; ranges are merged in order. So neither threads nor chunk borders nor neighbours change a bit.
namespace twostroke {
namespace TS_ISA {

struct ElementF32 {
    using T = float;
    TS_INLINE F32x16 load(const T* p) { return f_load(p); }
    TS_INLINE void store(T* p, F32x16 x) { f_store(p, x); }
};
struct ElementF16 {
    using T = uint16_t;
    TS_INLINE F32x16 load(const T* p) { return f_load_f16(p); }
    TS_INLINE void store(T* p, F32x16 x) { f_store_f16(p, x); }
};
struct ElementBF16 {
    using T = uint16_t;
    TS_INLINE F32x16 load(const T* p) { return f_load_bf16(p); }
    TS_INLINE void store(T* p, F32x16 x) {
        float lanes[16];
        f_store(lanes, x);
        for (int i = 0; i < 16; ++i) p[i] = f32_to_bf16(lanes[i]);
    }
};

template <class E>
static void store_kv_as(const StoreKvArgs& a) {
    auto* keys = reinterpret_cast<typename E::T*>(a.head);
    auto* values = reinterpret_cast<typename E::T*>(a.head + a.layout.key_bytes()) + a.slot * a.layout.padded_dim;
    for (int i = 0; i < a.layout.head_dim; i += 16) {
        const int n = a.layout.head_dim - i < 16 ? a.layout.head_dim - i : 16;
        typename E::T lanes[16];
        E::store(lanes, f_load_n(a.k + i, n));
        for (int j = 0; j < n; ++j) keys[(i + j) * kBlockTokens + a.slot] = lanes[j];
        E::store(values + i, f_load_n(a.v + i, n));
    }
}

static void store_kv(const StoreKvArgs& a) {
    switch (a.layout.type) {
        case KvType::F32: return store_kv_as<ElementF32>(a);
        case KvType::F16: return store_kv_as<ElementF16>(a);
        case KvType::BF16: return store_kv_as<ElementBF16>(a);
    }
}

TS_INLINE const uint8_t* head_at(const AttentionArgs& a, int key) {
    return a.pool + static_cast<size_t>(a.blocks[key / kBlockTokens]) * a.layout.block_bytes();
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
    const typename E::T* keys[B];
    for (int b = 0; b < B; ++b) keys[b] = reinterpret_cast<const typename E::T*>(head_at(a, key + b * kBlockTokens));
    const size_t values_at = a.layout.key_bytes() / sizeof(typename E::T);
    F32x16 sums[B][Q];
    for (int b = 0; b < B; ++b)
        for (int q = 0; q < Q; ++q) sums[b][q] = f_set(0.0f);
    for (int i = 0; i < a.layout.head_dim; ++i) {
        F32x16 k[B];
        for (int b = 0; b < B; ++b) {
            k[b] = E::load(keys[b] + i * kBlockTokens);
            prefetch_l2(keys[b] + values_at + i * kBlockTokens);
        }
        for (int q = 0; q < Q; ++q) {
            const F32x16 x = f_set(a.q[q][i]);
            for (int b = 0; b < B; ++b) sums[b][q] = f_fma(x, k[b], sums[b][q]);
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
        const auto* values = reinterpret_cast<const typename E::T*>(head_at(a, key) + a.layout.key_bytes()) + i;
        const int count = end - key < kBlockTokens ? end - key : kBlockTokens;
        const int ahead = key - a.key_begin + a.next_begin;
        const auto* next = ahead < a.next_end ? reinterpret_cast<const typename E::T*>(head_at(a, ahead)) + i : values;
        const float* weights = a.scores + (key - a.key_begin);
        for (int j = 0; j < count; ++j) {
            F32x16 v[D];
            for (int d = 0; d < D; ++d) {
                v[d] = E::load(values + j * a.layout.padded_dim + 16 * d);
                prefetch_l2(next + j * a.layout.padded_dim + 16 * d);
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
        case KvType::F32: return attend_as<ElementF32>(a);
        case KvType::F16: return attend_as<ElementF16>(a);
        case KvType::BF16: return attend_as<ElementBF16>(a);
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
