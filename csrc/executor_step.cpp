// The executor at work: one step, op after op, each in stages of tasks.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "executor.h"

namespace twostroke {

float* Executor::value(int id) const {
    const ValueInfo& v = at(values_, id);
    const int64_t rows = std::max(config_.max_rows, kOutputTile);
    return arena_.as<float>() + (v.of_outputs ? token_dims_ * rows + v.offset * kOutputTile : v.offset * rows);
}

int64_t Executor::rows_of(int id, const Work& work) const {
    return at(values_, id).of_outputs ? work.tile_rows : work.input->num_rows;
}

QuantRows Executor::quant_rows(int64_t cols, int64_t row) const {
    const int64_t first = row * cols;
    return {scratch_.as<uint8_t>(quads_at_) + first * 2, scratch_.as<float>(scales_at_) + first / 32,
            scratch_.as<float>(sums_at_) + first / 16, cols};
}

QuantRows Executor::row_of(int thread, int64_t cols) const {
    uint8_t* quads = scratch_of(thread) + row_at_;
    auto* scales = reinterpret_cast<float*>(quads + 2 * row_elements_);
    return {quads, scales, scales + row_elements_ / 32, cols};
}

float* Executor::plain_row_of(int thread) const {
    return reinterpret_cast<float*>(scratch_of(thread) + row_at_ + 2 * row_elements_ + row_elements_ / 32 * 4 +
                                    row_elements_ / 16 * 4);
}

const float* Executor::rope_cos(const RopeTable& table, int64_t row) const {
    return scratch_.as<float>(table.scratch) + 2 * row * static_cast<int64_t>(table.inverse_frequencies.size());
}

const float* Executor::rope_sin(const RopeTable& table, int64_t row) const {
    return rope_cos(table, row) + table.inverse_frequencies.size();
}

void Executor::prepare(const StepInput& input) {
    positions_.clear();
    prompts_.clear();
    generated_.clear();
    is_prompt_.clear();
    chunk_of_row_.clear();
    output_rows_.clear();
    chunk_of_output_.clear();
    for (size_t c = 0; c < input.chunks.size(); ++c) {
        const StepChunk& chunk = input.chunks[c];
        auto& stretches = chunk.is_prompt && kernels_.linear_prefill ? prompts_ : generated_;
        if (stretches.empty() || stretches.back().row + stretches.back().num_rows < chunk.row) stretches.push_back({chunk.row, 0});
        stretches.back().num_rows += chunk.length;
        is_prompt_.resize(is_prompt_.size() + static_cast<size_t>(chunk.length), &stretches == &prompts_);
        for (int64_t i = 0; i < chunk.length; ++i) {
            positions_.push_back(chunk.start + i);
            chunk_of_row_.push_back(static_cast<int>(c));
        }
        for (int64_t i = chunk.length - chunk.num_outputs; i < chunk.length; ++i) {
            output_rows_.push_back(chunk.row + i);
            chunk_of_output_.push_back(static_cast<int>(c));
        }
    }
    for (auto& plan : plans_) {
        plan_attention(input, plan);
        const auto items = static_cast<int64_t>(plan.units.size()) * plan.like->layout.num_kv_heads;
        plan.first_of.clear();
        for (int thread = 0; thread <= threads_.size(); ++thread) plan.first_of.push_back(items * thread / threads_.size());
    }
    const auto tiles = static_cast<size_t>(input.num_outputs + kOutputTile - 1) / kOutputTile;
    for (auto& op : output_ops_)
        if (auto* experts = std::get_if<ExpertsOp>(&op)) experts->plans->resize(std::max(tiles, experts->plans->size()));
}

void Executor::begin(StepInput input, const StepOutput& output, int value) {
    constexpr int kStagesAnOp = 6;  // at most: of experts
    end_running();
    input_ = std::move(input);
    output_ = output;
    prepare(input_);
    const int64_t tiles = (input_.num_outputs + kOutputTile - 1) / kOutputTile;
    const auto num_stages = 1 + kStagesAnOp * static_cast<int64_t>(token_ops_.size()) +
                            tiles * (1 + kStagesAnOp * static_cast<int64_t>(output_ops_.size()));
    work_ = [this, value](int thread) {
        run_thread(thread, input_, output_, value);
        const auto ran = std::chrono::steady_clock::now() - begun_;
        int64_t none = 0;
        ran_ns_.compare_exchange_strong(none, std::chrono::nanoseconds(ran).count());
    };
    ran_ns_ = 0;
    begun_ = std::chrono::steady_clock::now();
    threads_.begin_stages(static_cast<int>(num_stages), work_);
    is_running_ = true;
}

void Executor::end_running() {
    if (!is_running_) return;
    if (threads_.size() == 1) begun_ = std::chrono::steady_clock::now();  // nobody was at it before
    threads_.finish_stages();
    *output_.seconds = static_cast<double>(ran_ns_.load()) * 1e-9;
    is_running_ = false;
}

void Executor::end(const double* seconds) {
    if (output_.seconds == seconds) end_running();
}

Executor::~Executor() {
    if (threads_.has_workers()) end_running();
}

void Executor::run_thread(int thread, const StepInput& input, const StepOutput& output, int value) {
    const bool decodes = input.num_rows == static_cast<int64_t>(input.chunks.size());
    Work work{&input, &output, value, {thread}, 0, 0, decodes, {}, {}};
    for_rows(work, input.num_rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) fill_rope_tables(row);
    });
    run_ops(token_ops_, next_of_token_ops_, work);
    for (; work.tile_begin < input.num_outputs; work.tile_begin += kOutputTile) {
        work.tile_rows = std::min(kOutputTile, input.num_outputs - work.tile_begin);
        run_ops(output_ops_, next_of_output_ops_, work);
        threads_.stage(work.place, work.tile_rows, [&](int64_t i) { sample_row(thread, work, i); });
    }
}

void Executor::run_ops(const std::vector<Op>& ops, const std::vector<const LinearOp*>& next, Work& work) {
    for (size_t i = 0; i < ops.size(); ++i) {
        work.ahead = ahead_of(next[i], work.place.thread);
        std::visit([&](const auto& op) { run(op, work); }, ops[i]);
    }
}

// The start of the thread's first task: half of its cache at most, which holds what it works with too.
Executor::Ahead Executor::ahead_of(const LinearOp* next, int thread) const {
    constexpr int64_t kBytes = 256 * 1024;
    Ahead ahead;
    if (!next || at(next->tasks.first_of, thread) == at(next->tasks.first_of, thread + 1)) return ahead;
    const LinearTask& task = next->tasks.all[static_cast<size_t>(at(next->tasks.first_of, thread))];
    for (int i = 0; i < (next->gate ? 2 : 1); ++i) {
        const PackedMatrix& m = at(matrices_, next->matrices[task.matrix + static_cast<size_t>(i)]);
        const uint8_t* data = m.data + static_cast<size_t>(task.begin) * m.group_bytes;
        const auto bytes = static_cast<int64_t>(m.group_bytes) * (task.end - task.begin);
        ahead.stretches[i] = {data, data + std::min(bytes, kBytes / (next->gate ? 2 : 1))};
    }
    return ahead;
}

void Executor::fill_rope_tables(int64_t row) {
    for (const auto& table : ropes_) {
        const int64_t half = static_cast<int64_t>(table.inverse_frequencies.size());
        float* cos = scratch_.as<float>(table.scratch) + 2 * row * half;
        for (int64_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(positions_[static_cast<size_t>(row)]) *
                                 table.inverse_frequencies[static_cast<size_t>(i)];
            cos[i] = static_cast<float>(std::cos(angle) * table.magnitude);
            cos[half + i] = static_cast<float>(std::sin(angle) * table.magnitude);
        }
    }
}

void Executor::run(const EmbedOp& op, Work& work) {
    const PackedMatrix& m = at(matrices_, op.matrix);
    for_rows(work, work.input->num_rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
            kernels_.unpack_row(m, work.input->token_ids[row], value(op.out) + row * m.cols);
    });
}

void Executor::run(const NormalizeOp& op, Work& work) {
    const int64_t parts = at(values_, op.x).dim / op.dim;  // of a row, each normalised by itself
    for_rows(work, rows_of(op.x, work), [&](int64_t begin, int64_t end) {
        kernels_.normalize({value(op.x), value(op.out), op.dim, norm_of(op.norm), begin * parts, end * parts});
    });
}

LinearArgs Executor::args_of(const LinearOp& op, size_t matrix, QuantRows quant, const float* plain) const {
    LinearArgs a{};
    a.matrix = &at(matrices_, op.matrices[matrix]);
    a.up = op.gate ? &at(matrices_, op.matrices[1]) : nullptr;
    a.gate = op.gate.value_or(Elementwise::Add);
    a.quant = quant;
    a.plain = plain;
    a.bias = vector(op.biases[matrix]);
    a.out_stride = at(values_, op.outs[matrix]).dim;
    a.residual = op.residual < 0 ? nullptr : value(op.residual);
    a.residual_stride = a.out_stride;
    a.out = value(op.outs[matrix]);
    return a;
}

void Executor::run(const LinearOp& op, Work& work) {
    if (!prompts_.empty() && !op.panels.empty() && !at(values_, op.x).of_outputs) return run_prompts(op, work);
    const int64_t rows = rows_of(op.x, work), cols = at(values_, op.x).dim;
    bool plain = false, quantized = false;
    for (int id : op.matrices) {
        (is_float(at(matrices_, id).type) ? plain : quantized) = true;
    }
    // One row is made ready by every thread for itself: that takes less time than to wait for each other.
    const bool alone = rows == 1;
    QuantRows quant = alone ? row_of(work.place.thread, cols) : quant_rows(cols);
    if (!quantized) quant.quads = nullptr;
    float* floats = !plain ? nullptr : alone ? plain_row_of(work.place.thread) : scratch_.as<float>(plain_at_);
    const auto make_ready = [&](int64_t begin, int64_t end) {
        kernels_.quantize_rows({value(op.x), cols, cols, norm_of(op.norm), quant, floats, begin, end});
    };
    bool ready = !alone;
    if (!alone) for_rows(work, rows, make_ready);
    const auto multiply = [&](int64_t task) {
        if (!ready) make_ready(0, 1);  // not before a task is taken: after the last of them x may be written anew
        ready = true;
        const auto [i, begin, end] = op.tasks.all[static_cast<size_t>(task)];
        LinearArgs a = args_of(op, i, quant, floats);
        a.num_rows = rows;
        a.group_begin = begin;
        a.group_end = end;
        kernels_.linear(a);
    };
    threads_.stage_of_own(work.place, op.tasks.first_of.data(), multiply, work.ahead);
}

void Executor::run(const RopeOp& op, Work& work) {
    const RopeTable& table = ropes_[static_cast<size_t>(op.rope)];
    const int64_t dim = at(values_, op.x).dim;
    for_rows(work, work.input->num_rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
            kernels_.rope({value(op.x) + row * dim, value(op.out) + row * dim, rope_cos(table, row),
                           rope_sin(table, row), static_cast<int>(dim / op.head_dim), op.head_dim,
                           2 * static_cast<int>(table.inverse_frequencies.size()), table.interleaved});
    });
}

void Executor::run(const ElementwiseOp& op, Work& work) {
    const float* b = op.b < 0 ? nullptr : value(op.b);
    for_rows(work, rows_of(op.out, work), [&](int64_t begin, int64_t end) {
        kernels_.elementwise({op.kind, value(op.a), b, value(op.out), op.constant, at(values_, op.out).dim, begin, end});
    });
}

void Executor::run(const ReorderOp& op, Work& work) {
    const int64_t in_dim = at(values_, op.x).dim, out_dim = at(values_, op.out).dim;
    for_rows(work, rows_of(op.x, work), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const float* x = value(op.x) + row * in_dim;
            float* out = value(op.out) + row * out_dim;
            for (int64_t i = 0; i < out_dim; ++i) out[i] = x[op.order[static_cast<size_t>(i)]];
        }
    });
}

void Executor::run(const OutputRowsOp& op, Work& work) {
    const int64_t dim = at(values_, op.x).dim;
    for_rows(work, work.tile_rows, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const int64_t row = output_rows_[static_cast<size_t>(work.tile_begin + i)];
            std::memcpy(value(op.out) + i * dim, value(op.x) + row * dim, static_cast<size_t>(dim) * sizeof(float));
        }
    });
}

// Row `i` of the output tile in work: what was asked for of it, and its token.
void Executor::sample_row(int thread, const Work& work, int64_t i) {
    const int64_t index = work.tile_begin + i;
    const int chunk_index = chunk_of_output_[static_cast<size_t>(index)];
    const StepChunk& chunk = work.input->chunks[static_cast<size_t>(chunk_index)];
    const int64_t row = output_rows_[static_cast<size_t>(index)];
    const int64_t in_chunk = row - chunk.row - (chunk.length - chunk.num_outputs);
    if (work.value >= 0) {
        const int64_t dim = at(values_, work.value).dim;
        std::memcpy(work.output->value + index * dim, value(work.value) + i * dim,
                    static_cast<size_t>(dim) * sizeof(float));
    }
    SamplingParams params = chunk.sampling;
    params.target = chunk.targets ? chunk.targets[in_chunk] : -1;
    params.output_index += in_chunk;
    params.history_length = std::min(params.history_length, positions_[static_cast<size_t>(row)] + 1);
    const int64_t vocab = at(values_, logits_).dim;
    const auto sampled = samplers_[static_cast<size_t>(thread)].sample(
        value(logits_) + i * vocab, vocab, params, work.output->top_ids + index * work.output->max_top,
        work.output->top_logprobs + index * work.output->max_top);
    work.output->token_ids[index] = sampled.token;
    work.output->logprobs[index] = sampled.logprob;
}

}  // namespace twostroke
