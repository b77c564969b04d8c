// Mixtures of experts: rows are grouped by the experts they go to, so that each expert's weights are read once a step.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "executor.h"

namespace twostroke {

// Each row's experts and shares, and the tasks of the step. Of equal logits the lower expert is chosen; among logits of
// which one is NaN there is no choice, and shares are NaN.
void Executor::route(const ExpertsSpec& spec, int64_t num_rows, const uint8_t* is_prompt, ExpertsPlan& plan) const {
    const auto num_experts = static_cast<int64_t>(spec.gates.size()), top_k = spec.top_k;
    std::vector<int32_t> ids(static_cast<size_t>(num_experts)), chosen(static_cast<size_t>(num_rows * top_k));
    std::vector<int32_t> ends(2 * static_cast<size_t>(num_experts), 0);  // pairs of each expert and phase, then where they end
    std::vector<float> shares(chosen.size());
    for (int64_t row = 0; row < num_rows; ++row) {
        const float* logits = value(spec.router) + row * num_experts;
        std::iota(ids.begin(), ids.end(), 0);
        const bool comparable = std::none_of(logits, logits + num_experts, [](float x) { return std::isnan(x); });
        if (comparable)
            std::partial_sort(ids.begin(), ids.begin() + top_k, ids.end(), [&](int32_t a, int32_t b) {
                return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
            });
        const float largest = comparable ? logits[ids[0]] : std::numeric_limits<float>::quiet_NaN();
        const int64_t counted = spec.of_all ? num_experts : top_k;
        float total = 0.0f;
        for (int64_t i = 0; i < counted; ++i) total += std::exp(logits[ids[static_cast<size_t>(i)]] - largest);
        std::sort(ids.begin(), ids.begin() + top_k);
        for (int64_t i = 0; i < top_k; ++i) {
            const int32_t expert = ids[static_cast<size_t>(i)];
            const auto at = static_cast<size_t>(row * top_k + i);
            chosen[at] = 2 * expert + (is_prompt ? is_prompt[row] : 0);
            shares[at] = std::exp(logits[expert] - largest) / total * spec.scale;
            ++ends[static_cast<size_t>(chosen[at])];
        }
    }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    std::vector<int32_t> next(ends.size(), 0);  // pair that the next row of each gets
    std::copy(ends.begin(), ends.end() - 1, next.begin() + 1);
    plan.rows.resize(chosen.size());
    plan.shares.resize(chosen.size());
    plan.pairs_of_row.resize(chosen.size());
    for (size_t at = 0; at < chosen.size(); ++at) {
        const auto pair = static_cast<size_t>(next[static_cast<size_t>(chosen[at])]++);
        plan.rows[pair] = static_cast<int32_t>(at / static_cast<size_t>(top_k));
        plan.shares[pair] = shares[at];
        plan.pairs_of_row[at] = static_cast<int32_t>(pair);
    }
    plan.inner = expert_tasks(spec.gates, ends);
    plan.outer = expert_tasks(spec.downs, ends);
}

// Groups of the matrices of every expert that has pairs of a phase; where few have, each matrix in several pieces.
std::vector<Executor::ExpertsPlan::Task> Executor::expert_tasks(const std::vector<int>& matrices,
                                                                const std::vector<int32_t>& ends) const {
    const auto begin_of = [&](size_t i) { return i == 0 ? 0 : ends[i - 1]; };
    int64_t touched = 0;
    for (size_t i = 0; i < ends.size(); ++i) touched += ends[i] > begin_of(i);
    const int64_t groups = (at(matrices_, matrices[0]).rows + kLanes - 1) / kLanes;
    const int64_t pieces = std::min(groups, std::max<int64_t>(1, 8 * config_.num_threads / std::max<int64_t>(1, touched)));
    std::vector<ExpertsPlan::Task> tasks;
    for (size_t i = 0; i < ends.size(); ++i) {
        if (ends[i] == begin_of(i)) continue;
        for (int64_t piece = 0; piece < pieces; ++piece) {
            const Part part = part_of(groups, static_cast<int>(piece), static_cast<int>(pieces));
            tasks.push_back({static_cast<int32_t>(i / 2), i % 2 == 1, begin_of(i), ends[i], part.begin, part.end});
        }
    }
    return tasks;
}

bool Executor::have_prefill(std::initializer_list<int> matrices) const {
    return std::all_of(matrices.begin(), matrices.end(), [&](int id) { return has_prefill(at(matrices_, id).type); });
}

// What the linears of a pair read: x (cols), where it is the pair's row.
void Executor::make_pair_ready(const float* x, int64_t pair, bool is_prompt, std::initializer_list<int> readers) const {
    const int64_t cols = at(matrices_, *readers.begin()).cols;
    if (is_prompt && have_prefill(readers)) {
        kernels_.round_rows({x - pair * cols, cols, cols, {}, brain_rows(cols), pair, pair + 1});
        return;
    }
    QuantizeArgs a{x, cols, cols, {}, {}, nullptr, 0, 1};
    for (int id : readers) {
        if (is_float(at(matrices_, id).type)) {
            a.plain = scratch_.as<float>(plain_at_) + pair * cols;
        } else {
            a.quant = quant_rows(cols, pair);
        }
    }
    kernels_.quantize_rows(a);
}

// One task: a gated linear of an expert's rows, or its output.
void Executor::run_expert(const ExpertsSpec& spec, const ExpertsPlan::Task& task, bool inner, int thread) const {
    const auto expert = static_cast<size_t>(task.expert);
    LinearArgs a{};
    a.matrix = &at(matrices_, (inner ? spec.gates : spec.downs)[expert]);
    a.up = inner ? &at(matrices_, spec.ups[expert]) : nullptr;
    a.gate = spec.gate;
    a.bias = vector(inner ? spec.gate_bias : spec.down_bias, task.expert * a.matrix->rows);
    a.up_bias = inner ? vector(spec.up_bias, task.expert * a.matrix->rows) : nullptr;
    a.quant = quant_rows(a.matrix->cols);
    a.plain = scratch_.as<float>(plain_at_);
    a.brain = brain_rows(a.matrix->cols);
    a.scratch = scratch_of(thread) + panel_at_;
    a.out_stride = a.matrix->rows;
    a.out = scratch_.as<float>(inner ? inner_at_ : outer_at_);
    a.group_begin = task.group_begin;
    a.group_end = task.group_end;
    const bool in_brains = task.is_prompt && (inner ? have_prefill({spec.gates[0], spec.ups[0]}) : have_prefill({spec.downs[0]}));
    const int64_t most = in_brains ? kPrefillRows : task.end - task.begin;
    for (int64_t begin = task.begin; begin < task.end; begin += most)
        (in_brains ? kernels_.linear_prefill : kernels_.linear)(of_rows(a, begin, std::min<int64_t>(most, task.end - begin)));
}

void Executor::run(const ExpertsOp& op, Work& work) {
    const ExpertsSpec& spec = op.spec;
    // A thread may come here late, when others are at the next tile: each tile has a plan of its own.
    ExpertsPlan& plan = (*op.plans)[static_cast<size_t>(at(values_, spec.out).of_outputs ? work.tile_begin / kOutputTile : 0)];
    const int64_t rows = rows_of(spec.x, work), dim = at(values_, spec.x).dim, num_pairs = rows * spec.top_k;
    const int64_t ffn_dim = at(matrices_, spec.gates[0]).rows;
    const uint8_t* is_prompt = at(values_, spec.out).of_outputs || prompts_.empty() ? nullptr : is_prompt_.data();
    const auto ready = [&](const float* x, int64_t pair, std::initializer_list<int> readers) {
        make_pair_ready(x, pair, is_prompt && is_prompt[plan.rows[static_cast<size_t>(pair)]], readers);
    };
    threads_.stage(work.place, 1, [&](int64_t) { route(spec, rows, is_prompt, plan); });
    for_rows(work, num_pairs, [&](int64_t begin, int64_t end) {
        for (int64_t pair = begin; pair < end; ++pair)
            ready(value(spec.x) + plan.rows[static_cast<size_t>(pair)] * dim, pair, {spec.gates[0], spec.ups[0]});
    });
    threads_.stage(work.place, static_cast<int64_t>(plan.inner.size()),
                   [&](int64_t i) { run_expert(spec, plan.inner[static_cast<size_t>(i)], true, work.place.thread); });
    for_rows(work, num_pairs, [&](int64_t begin, int64_t end) {
        for (int64_t pair = begin; pair < end; ++pair)
            ready(scratch_.as<float>(inner_at_) + pair * ffn_dim, pair, {spec.downs[0]});
    });
    threads_.stage(work.place, static_cast<int64_t>(plan.outer.size()),
                   [&](int64_t i) { run_expert(spec, plan.outer[static_cast<size_t>(i)], false, work.place.thread); });
    for_rows(work, rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            float* out = value(spec.out) + row * dim;
            std::fill_n(out, dim, 0.0f);
            for (int64_t i = 0; i < spec.top_k; ++i) {
                const auto pair = plan.pairs_of_row[static_cast<size_t>(row * spec.top_k + i)];
                kernels_.accumulate(out, scratch_.as<float>(outer_at_) + pair * dim, plan.shares[static_cast<size_t>(pair)], dim);
            }
        }
    });
}

}  // namespace twostroke
