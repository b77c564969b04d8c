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
    TS_INLINE T store(float x) { return x; }
};
struct ElementF16 {
    using T = uint16_t;
    TS_INLINE F32x16 load(const T* p) { return f_load_f16(p); }
    TS_INLINE T store(float x) { return f32_to_f16_saturated(x); }
};
struct ElementBF16 {
    using T = uint16_t;
    TS_INLINE F32x16 load(const T* p) { return f_load_bf16(p); }
    TS_INLINE T store(float x) { return f32_to_bf16(x); }
};

template <class E>
static void store_kv_as(const StoreKvArgs& a) {
    auto* keys = reinterpret_cast<typename E::T*>(a.head);
    auto* values = reinterpret_cast<typename E::T*>(a.head + a.layout.key_bytes()) + a.slot * a.layout.padded_dim;
    for (int i = 0; i < a.layout.head_dim; ++i) {
        keys[i * kBlockTokens + a.slot] = E::store(a.k[i]);
        values[i] = E::store(a.v[i]);
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

// scores (Q, kKeyRange): scale * q . k, -infinity where a key is not visible.
template <class E, int Q>
static void score_range(const AttentionArgs& a) {
    const F32x16 scale = f_set(a.scale), hidden = f_set(-__builtin_inff());
    for (int key = a.key_begin; key < a.key_end; key += kBlockTokens) {
        const auto* keys = reinterpret_cast<const typename E::T*>(head_at(a, key));
        F32x16 sums[Q];
        for (int q = 0; q < Q; ++q) sums[q] = f_set(0.0f);
        for (int i = 0; i < a.layout.head_dim; ++i) {
            const F32x16 k = E::load(keys + i * kBlockTokens);
            for (int q = 0; q < Q; ++q) sums[q] = f_fma(f_set(a.q[q][i]), k, sums[q]);
        }
        for (int q = 0; q < Q; ++q) {
            F32x16 s = f_mul(sums[q], scale);
            if (a.soft_cap != 0.0f) s = f_mul(f_set(a.soft_cap), f_tanh(f_div(s, f_set(a.soft_cap))));
            s = f_keep(s, a.visible[q] - key, hidden);
            if (key < a.first[q]) {
                alignas(64) float lanes[16];
                f_store(lanes, s);
                for (int i = 0; i < 16 && key + i < a.first[q]; ++i) lanes[i] = -__builtin_inff();
                s = f_load(lanes);
            }
            f_store(a.scores + q * kKeyRange + (key - a.key_begin), s);
        }
    }
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

// acc = sum over visible keys of weight * value, 16 elements of all queries at a time.
template <class E, int Q>
static void gather_values(const AttentionArgs& a) {
    int end = 0;
    for (int q = 0; q < Q; ++q) end = a.visible[q] > end ? a.visible[q] : end;
    end = end < a.key_end ? end : a.key_end;
    for (int i = 0; i < a.layout.padded_dim; i += 16) {
        F32x16 acc[Q];
        for (int q = 0; q < Q; ++q) acc[q] = f_set(0.0f);
        for (int key = a.key_begin; key < end; key += kBlockTokens) {
            const auto* values = reinterpret_cast<const typename E::T*>(head_at(a, key) + a.layout.key_bytes()) + i;
            const int count = end - key < kBlockTokens ? end - key : kBlockTokens;
            const float* weights = a.scores + (key - a.key_begin);
            for (int j = 0; j < count; ++j) {
                const F32x16 v = E::load(values + j * a.layout.padded_dim);
                for (int q = 0; q < Q; ++q) acc[q] = f_fma(f_set(weights[q * kKeyRange + j]), v, acc[q]);
            }
        }
        for (int q = 0; q < Q; ++q) f_store(a.state[q] + kStateHeader + i, acc[q]);
    }
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
