// One row of logits becomes a token: penalties and bias, mask, temperature, top-k, top-p, min-p, draw; log-probabilities.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ops.h"

namespace twostroke {

struct SamplingParams {
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k, choice, num_logprobs, output_index, num_prompt_tokens;
    uint64_t seed;
    const int32_t* history;  // tokens so far, the prompt's first; read where penalties are on
    int64_t history_length;
    const int32_t* bias_ids;
    const double* bias_values;
    int64_t num_biases;
    const uint32_t* mask;  // bit t % 32 of word t / 32: token t may be drawn; null: all may
    int32_t target;  // -1: sample
};

struct SampledToken {
    int32_t token;  // -1 where the logits are not finite, or the mask leaves none
    float logprob;  // NaN where not asked for
};

class Sampler {
  public:
    explicit Sampler(const Kernels& kernels) : kernels_(kernels) {}

    // Changes `logits` (vocab_size). Writes the `num_logprobs` most likely tokens to top_ids and top_logprobs.
    SampledToken sample(float* logits, int64_t vocab_size, const SamplingParams& params, int32_t* top_ids,
                        float* top_logprobs);

  private:
    using Candidate = std::pair<float, int32_t>;  // logit, token

    void adjust(float* logits, int64_t vocab_size, const SamplingParams& params);
    int32_t draw(const float* logits, int64_t vocab_size, const SamplingParams& params);
    int32_t draw_from_all(const float* logits, int64_t vocab_size, double temperature, float largest, double uniform);
    static void apply_mask(float* logits, int64_t vocab_size, const uint32_t* mask);
    void rank(const float* logits, int64_t vocab_size, int64_t count);
    void find(const float* logits, int64_t vocab_size, double bound);

    const Kernels& kernels_;
    std::vector<Candidate> candidates_;
    std::vector<double> weights_;
    std::vector<std::pair<int32_t, float>> raw_;  // logits before adjustment
};

// A number in [0, 1) from (seed, choice, output index) alone.
double counter_uniform(uint64_t seed, uint64_t choice, uint64_t output_index);

}  // namespace twostroke
