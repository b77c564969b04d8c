#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace twostroke {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// splitmix64 (Steele et al. 2014)
uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Higher logit first; of equal ones the lower token.
bool likelier(const std::pair<float, int32_t>& a, const std::pair<float, int32_t>& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// 1 / temperature as a float that is neither zero nor infinite: either, times a difference of logits, could be NaN.
float inverse(double temperature) {
    using Float = std::numeric_limits<float>;
    return static_cast<float>(std::clamp<double>(1.0 / temperature, Float::min(), Float::max()));
}

}  // namespace

double counter_uniform(uint64_t seed, uint64_t choice, uint64_t output_index) {
    const uint64_t bits = mix(mix(mix(seed) ^ choice) ^ output_index);
    return static_cast<double>(bits >> 11) * 0x1p-53;
}

SampledToken Sampler::sample(float* logits, int64_t vocab_size, const SamplingParams& params, int32_t* top_ids,
                             float* top_logprobs) {
    const int64_t likeliest = kernels_.argmax(logits, vocab_size);
    if (likeliest < 0 || !std::isfinite(logits[likeliest])) return {-1, kNan};
    const float largest = logits[likeliest];
    float log_sum = kNan;
    if (params.num_logprobs >= 0 || params.target >= 0) {
        log_sum = largest + std::log(kernels_.sum_exp(logits, vocab_size, largest, 1.0f));
        if (params.num_logprobs > 0) {
            rank(logits, vocab_size, params.num_logprobs);
            for (size_t i = 0; i < candidates_.size(); ++i) {
                top_ids[i] = candidates_[i].second;
                top_logprobs[i] = candidates_[i].first - log_sum;
            }
        }
    }
    if (params.target >= 0) return {params.target, logits[params.target] - log_sum};
    raw_.clear();
    adjust(logits, vocab_size, params);
    if (params.mask != nullptr) apply_mask(logits, vocab_size, params.mask);
    const int32_t token = draw(logits, vocab_size, params);
    const auto changed = std::find_if(raw_.begin(), raw_.end(), [&](const auto& logit) { return logit.first == token; });
    const float raw = token < 0 ? kNan : changed != raw_.end() ? changed->second : logits[token];
    return {token, raw - log_sum};
}

// Repetition penalty (Keskar et al. 2019) over all tokens so far; presence and frequency over generated ones.
void Sampler::adjust(float* logits, int64_t vocab_size, const SamplingParams& params) {
    std::unordered_map<int32_t, int64_t> generated;  // every token so far: how often it was generated
    if (params.history != nullptr)
        for (int64_t i = 0; i < params.history_length; ++i) generated[params.history[i]] += i >= params.num_prompt_tokens;
    for (const auto& [id, count] : generated) {
        if (id < 0 || id >= vocab_size) continue;
        double logit = logits[id];
        raw_.emplace_back(id, logits[id]);
        logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
        if (count > 0) logit -= params.presence_penalty + params.frequency_penalty * static_cast<double>(count);
        logits[id] = static_cast<float>(logit);
    }
    for (int64_t i = 0; i < params.num_biases; ++i) {
        const int32_t id = params.bias_ids[i];
        if (generated.find(id) == generated.end()) raw_.emplace_back(id, logits[id]);
        logits[id] = static_cast<float>(logits[id] + params.bias_values[i]);
    }
}

// What may not be drawn becomes -infinity, whose weight is exactly 0; words of which all may cost one test.
void Sampler::apply_mask(float* logits, int64_t vocab_size, const uint32_t* mask) {
    for (int64_t first = 0; first < vocab_size; first += 32) {
        const uint32_t word = mask[first / 32];
        if (word == ~0u) continue;
        const int64_t count = std::min<int64_t>(32, vocab_size - first);
        for (int64_t i = 0; i < count; ++i)
            if (!(word >> i & 1u)) logits[first + i] = -std::numeric_limits<float>::infinity();
    }
}

// The `count` most likely tokens, in order, into candidates_.
void Sampler::rank(const float* logits, int64_t vocab_size, int64_t count) {
    candidates_.clear();
    for (int64_t i = 0; i < vocab_size; ++i) {
        const Candidate c{logits[i], static_cast<int32_t>(i)};
        if (static_cast<int64_t>(candidates_.size()) < count) {
            candidates_.push_back(c);
            std::push_heap(candidates_.begin(), candidates_.end(), likelier);
        } else if (likelier(c, candidates_.front())) {
            std::pop_heap(candidates_.begin(), candidates_.end(), likelier);
            candidates_.back() = c;
            std::push_heap(candidates_.begin(), candidates_.end(), likelier);
        }
    }
    std::sort_heap(candidates_.begin(), candidates_.end(), likelier);
}

// Tokens whose logits are `bound` at least, into candidates_. Most stretches have none, which a sum without branches tells.
void Sampler::find(const float* logits, int64_t vocab_size, double bound) {
    constexpr int64_t kStretch = 64;
    const float nearly = std::nextafter(static_cast<float>(bound), -std::numeric_limits<float>::infinity());
    candidates_.clear();
    for (int64_t begin = 0; begin < vocab_size; begin += kStretch) {
        const int64_t end = std::min(begin + kStretch, vocab_size);
        int32_t found = 0;
        for (int64_t i = begin; i < end; ++i) found += logits[i] >= nearly;
        if (found == 0) continue;
        for (int64_t i = begin; i < end; ++i)
            if (logits[i] >= bound) candidates_.emplace_back(logits[i], static_cast<int32_t>(i));
    }
}

int32_t Sampler::draw(const float* logits, int64_t vocab_size, const SamplingParams& params) {
    const int64_t best = kernels_.argmax(logits, vocab_size);
    if (best < 0 || !std::isfinite(logits[best])) return -1;  // a bias took them out of range
    const float largest = logits[best];
    const double temperature = params.temperature;
    if (temperature == 0.0 || params.top_k == 1) return static_cast<int32_t>(best);
    const double uniform = counter_uniform(params.seed, static_cast<uint64_t>(params.choice),
                                           static_cast<uint64_t>(params.output_index));
    const bool top_k = params.top_k > 0 && params.top_k < vocab_size;
    if (!top_k && params.top_p >= 1.0 && params.min_p <= 0.0)
        return draw_from_all(logits, vocab_size, temperature, largest, uniform);

    const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - largest) / temperature); };
    double total = 0.0;
    if (top_k) {
        rank(logits, vocab_size, params.top_k);
        for (const auto& c : candidates_) total += weight(c.first);
    } else {
        // Tokens so unlikely that all of them together lie outside the nucleus, or below min_p, need no sorting.
        total = kernels_.sum_exp(logits, vocab_size, largest, inverse(temperature));
        const double least = std::max(0.5 * (1.0 - params.top_p) * total / static_cast<double>(vocab_size),
                                      0.5 * params.min_p);
        find(logits, vocab_size, largest + temperature * std::log(least));  // at least that weight
    }
    weights_.clear();
    double kept = 0.0;
    const double enough = params.top_p < 1.0 ? params.top_p * total : std::numeric_limits<double>::infinity();
    // The shortest run of likeliest tokens that reaches top_p, above min_p: of a heap, whose rest is never put in order.
    // They gather at its back, the likeliest last.
    auto rest = candidates_.end();
    const auto unlikelier = [](const Candidate& a, const Candidate& b) { return likelier(b, a); };
    std::make_heap(candidates_.begin(), rest, unlikelier);
    while (rest != candidates_.begin()) {
        const double w = weight(candidates_.front().first);
        if (!weights_.empty() && (kept >= enough || w < params.min_p || w == 0.0)) break;
        std::pop_heap(candidates_.begin(), rest--, unlikelier);
        weights_.push_back(w);
        kept += w;
    }
    double left = uniform * kept;
    for (size_t i = 0; i < weights_.size(); ++i) {
        left -= weights_[i];
        if (left < 0.0) return candidates_[candidates_.size() - 1 - i].second;
    }
    return candidates_[candidates_.size() - weights_.size()].second;
}

// Inverse of the cumulative distribution in token order: the stretch by sums, the token within it one by one.
int32_t Sampler::draw_from_all(const float* logits, int64_t vocab_size, double temperature, float largest,
                               double uniform) {
    constexpr int64_t kStretch = 512;
    const float scale = inverse(temperature);
    weights_.clear();
    double total = 0.0;
    for (int64_t at = 0; at < vocab_size; at += kStretch) {
        weights_.push_back(kernels_.sum_exp(logits + at, std::min(kStretch, vocab_size - at), largest, scale));
        total += weights_.back();
    }
    double left = uniform * total;
    size_t stretch = 0;
    while (stretch + 1 < weights_.size() && left >= weights_[stretch]) left -= weights_[stretch++];
    const int64_t begin = static_cast<int64_t>(stretch) * kStretch, end = std::min(begin + kStretch, vocab_size);
    int64_t last = -1;
    for (int64_t i = begin; i < end; ++i) {
        const double w = std::exp((static_cast<double>(logits[i]) - largest) / temperature);
        if (w > 0.0) last = i;
        left -= w;
        if (left < 0.0) return static_cast<int32_t>(i);
    }
    return static_cast<int32_t>(last >= 0 ? last : kernels_.argmax(logits, vocab_size));
}

}  // namespace twostroke
