#include "executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "dispatch.h"
#include "pack.h"

namespace twostroke {

Executor::Executor(const ExecutorConfig& config)
    : config_(config), kernels_(kernels_for(config.isa)), threads_(config.num_threads),
      pool_bytes_(config.num_blocks.size(), 0), samplers_(static_cast<size_t>(config.num_threads), Sampler(kernels_)) {}

int Executor::add_codebook(const int8_t* entries, int64_t size) {
    codebooks_.emplace_back(entries, entries + size);
    return static_cast<int>(codebooks_.size()) - 1;
}

int Executor::add_matrix(TensorType type, int64_t rows, int64_t cols, const uint8_t* data, int codebook) {
    const size_t group_bytes = packed_group_bytes(type, cols);
    const int64_t groups = (rows + kLanes - 1) / kLanes;
    const size_t bytes = group_bytes * static_cast<size_t>(groups);
    uint8_t* packed = weights_.take(bytes);
    const int64_t num_parts = std::min<int64_t>(groups, 8 * threads_.size());
    threads_.run_stages(1, [&](int) {
        int stage = 0;
        threads_.stage(stage, num_parts, [&](int64_t i) {
            const Part part = part_of(groups, static_cast<int>(i), static_cast<int>(num_parts));
            for (int64_t group = part.begin; group < part.end; ++group)
                pack_group(type, data, rows, cols, group, packed + static_cast<size_t>(group) * group_bytes);
        });
    });
    weight_bytes_ += bytes;
    const int8_t* entries = codebook < 0 ? nullptr : codebooks_[static_cast<size_t>(codebook)].data();
    matrices_.push_back({type, rows, cols, packed, group_bytes, entries});
    return static_cast<int>(matrices_.size()) - 1;
}

int Executor::add_vector(const float* data, int64_t size) {
    vectors_.emplace_back(data, data + size);
    weight_bytes_ += static_cast<size_t>(size) * sizeof(float);
    return static_cast<int>(vectors_.size()) - 1;
}

int Executor::add_rope(const double* inverse_frequencies, int64_t size, bool interleaved) {
    ropes_.push_back({{inverse_frequencies, inverse_frequencies + size}, interleaved, 0});
    return static_cast<int>(ropes_.size()) - 1;
}

int Executor::add_value(int64_t dim, int64_t offset, bool of_outputs) {
    int64_t& dims = of_outputs ? output_dims_ : token_dims_;
    dims = std::max(dims, offset + dim);
    values_.push_back({dim, offset, of_outputs});
    return static_cast<int>(values_.size()) - 1;
}

void Executor::add_embed(int out, int matrix) {
    num_token_ids_ = std::min(num_token_ids_, matrices_[static_cast<size_t>(matrix)].rows);
    token_ops_.emplace_back(EmbedOp{out, matrix});
}

void Executor::add_rms_norm(int out, int x, int weight, float eps) {
    auto& ops = values_[static_cast<size_t>(out)].of_outputs ? output_ops_ : token_ops_;
    ops.emplace_back(RmsNormOp{out, x, weight, eps});
}

void Executor::add_linear(std::vector<int> outs, int x, std::vector<int> matrices, std::vector<int> biases, int norm,
                          float eps, int residual, bool gated) {
    auto& ops = values_[static_cast<size_t>(outs[0])].of_outputs ? output_ops_ : token_ops_;
    auto tasks = tasks_of(gated ? std::vector<int>{matrices[0]} : matrices);
    ops.emplace_back(LinearOp{std::move(outs), std::move(matrices), std::move(biases), x, norm, eps, residual, gated,
                              std::move(tasks)});
}

void Executor::add_rope_op(int out, int x, int head_dim, int rope) {
    token_ops_.emplace_back(RopeOp{out, x, head_dim, rope});
}

void Executor::add_attention(int out, int q, int k, int v, int num_heads, int num_kv_heads, int head_dim, float scale,
                             int64_t window, int group, int rope) {
    const KvLayout layout{config_.kv_type, head_dim, (head_dim + 15) / 16 * 16, num_kv_heads};
    size_t& bytes = pool_bytes_[static_cast<size_t>(group)];
    // The pool of a group is layer after layer; the offset is in blocks' bytes until finish() knows the block count.
    token_ops_.emplace_back(
        AttentionOp{out, q, k, v, num_heads, group, rope, scale, window, layout, bytes, 0});
    bytes += layout.block_bytes();
}

void Executor::add_add(int out, int left, int right) {
    auto& ops = values_[static_cast<size_t>(out)].of_outputs ? output_ops_ : token_ops_;
    ops.emplace_back(AddOp{out, left, right});
}

void Executor::add_swiglu(int out, int gate, int up) {
    auto& ops = values_[static_cast<size_t>(out)].of_outputs ? output_ops_ : token_ops_;
    ops.emplace_back(SwigluOp{out, gate, up});
}

void Executor::add_output_rows(int out, int x) { output_ops_.emplace_back(OutputRowsOp{out, x}); }

size_t Executor::packed_bytes(const PackedMatrix& matrix) {
    return matrix.group_bytes * static_cast<size_t>((matrix.rows + kLanes - 1) / kLanes);
}

// Tasks of a linear: first half of every thread's share in one piece, then ever smaller pieces that even out who is late.
std::vector<Executor::LinearTask> Executor::tasks_of(const std::vector<int>& matrices) const {
    constexpr double kPieces[] = {0.5, 0.25, 0.125, 0.125};
    double total = 0.0;
    for (int id : matrices) total += static_cast<double>(packed_bytes(matrices_[static_cast<size_t>(id)]));
    std::vector<double> ends;  // of the pieces, in bytes over all matrices taken as one
    for (const double piece : kPieces)
        for (int thread = 0; thread < config_.num_threads; ++thread)
            ends.push_back((ends.empty() ? 0.0 : ends.back()) + total * piece / config_.num_threads);
    std::vector<LinearTask> tasks;
    double before = 0.0;
    size_t piece = 0;
    for (size_t i = 0; i < matrices.size(); ++i) {
        const PackedMatrix& m = matrices_[static_cast<size_t>(matrices[i])];
        const int64_t groups = (m.rows + kLanes - 1) / kLanes;
        for (int64_t group = 0; group < groups;) {
            while (piece + 1 < ends.size() && ends[piece] <= before + 0.5 * static_cast<double>(m.group_bytes)) ++piece;
            const double fits = (ends[piece] - before) / static_cast<double>(m.group_bytes);
            const int64_t last = piece + 1 == ends.size() ? groups : std::min(groups, group + std::max<int64_t>(1, std::llround(fits)));
            tasks.push_back({i, group, last});
            before += static_cast<double>(m.group_bytes) * static_cast<double>(last - group);
            group = last;
        }
    }
    return tasks;
}

void Executor::finish(int logits) {
    logits_ = logits;
    const int64_t rows = std::max(config_.max_rows, kOutputTile);
    int64_t cols = 0, rotated = 0, heads = 1;
    bool plain = false;
    for (auto* ops : {&token_ops_, &output_ops_})
        for (auto& op : *ops) {
            if (auto* linear = std::get_if<LinearOp>(&op))
                for (int id : linear->matrices) {
                    cols = std::max(cols, matrices_[static_cast<size_t>(id)].cols);
                    plain |= is_float(matrices_[static_cast<size_t>(id)].type);
                }
            if (auto* a = std::get_if<AttentionOp>(&op)) {
                rotated = std::max<int64_t>(rotated, (a->num_heads + a->layout.num_kv_heads) * a->layout.head_dim);
                state_floats_ = std::max<int64_t>(state_floats_, kStateHeader + a->layout.padded_dim);
                heads = std::max<int64_t>(heads, a->num_heads);
                a->pool_offset *= static_cast<size_t>(config_.num_blocks[static_cast<size_t>(a->group)]);
                size_t plan = 0;
                for (; plan < plans_.size(); ++plan) {
                    const AttentionOp& b = *plans_[plan].like;
                    if (b.num_heads == a->num_heads && b.layout.num_kv_heads == a->layout.num_kv_heads &&
                        b.window == a->window)
                        break;
                }
                a->plan = static_cast<int>(plan);
                if (plan == plans_.size()) plans_.push_back({a, {}, {}});
            }
        }
    cols = (cols + 31) / 32 * 32;
    const int64_t ranges = (config_.max_context + kKeyRange - 1) / kKeyRange;
    max_states_ = ranges > 1 ? 4 * config_.num_threads * heads * ranges : 0;
    thread_bytes_ = static_cast<size_t>(kMaxQueries * kKeyRange + 2 * kMaxQueries * state_floats_) * sizeof(float);

    size_t at = 0;
    const auto reserve = [&](int64_t bytes) {
        const size_t begin = at;
        at += (static_cast<size_t>(bytes) + 63) / 64 * 64;
        return begin;
    };
    quads_at_ = reserve(rows * cols * 2);
    scales_at_ = reserve(rows * cols / 32 * 4);
    sums_at_ = reserve(rows * cols / 16 * 4);
    plain_at_ = reserve(plain ? rows * cols * 4 : 0);
    rotated_at_ = reserve(rows * rotated * 4);
    for (auto& table : ropes_)
        table.scratch = reserve(2 * rows * static_cast<int64_t>(table.inverse_frequencies.size()) * 4);
    states_at_ = reserve(max_states_ * state_floats_ * 4);
    thread_at_ = reserve(static_cast<int64_t>(thread_bytes_) * config_.num_threads);
    scratch_ = PageBuffer(at);
    arena_ = PageBuffer(static_cast<size_t>(token_dims_ * rows + output_dims_ * kOutputTile) * sizeof(float));
    for (size_t group = 0; group < pool_bytes_.size(); ++group)
        pools_.emplace_back(pool_bytes_[group] * static_cast<size_t>(config_.num_blocks[group]));
}

void Executor::poison() {
    for (auto* buffer : {&arena_, &scratch_}) std::memset(buffer->as(), 0xff, buffer->bytes());
    for (auto& pool : pools_) std::memset(pool.as(), 0xff, pool.bytes());
}

size_t Executor::kv_bytes() const {
    size_t bytes = 0;
    for (const auto& pool : pools_) bytes += pool.bytes();
    return bytes;
}

float* Executor::value(int id) const {
    const ValueInfo& v = values_[static_cast<size_t>(id)];
    const int64_t rows = std::max(config_.max_rows, kOutputTile);
    return arena_.as<float>() + (v.of_outputs ? token_dims_ * rows + v.offset * kOutputTile : v.offset * rows);
}

int64_t Executor::rows_of(int id, const Work& work) const {
    return values_[static_cast<size_t>(id)].of_outputs ? work.tile_rows : work.input->num_rows;
}

QuantRows Executor::quant_rows(int64_t cols) const {
    return {scratch_.as<uint8_t>(quads_at_), scratch_.as<float>(scales_at_), scratch_.as<int32_t>(sums_at_), cols};
}

const float* Executor::rope_cos(const RopeTable& table, int64_t row) const {
    return scratch_.as<float>(table.scratch) + 2 * row * static_cast<int64_t>(table.inverse_frequencies.size());
}

const float* Executor::rope_sin(const RopeTable& table, int64_t row) const {
    return rope_cos(table, row) + table.inverse_frequencies.size();
}

void Executor::prepare(const StepInput& input) {
    positions_.clear();
    chunk_of_row_.clear();
    output_rows_.clear();
    chunk_of_output_.clear();
    for (size_t c = 0; c < input.chunks.size(); ++c) {
        const StepChunk& chunk = input.chunks[c];
        for (int64_t i = 0; i < chunk.length; ++i) {
            positions_.push_back(chunk.start + i);
            chunk_of_row_.push_back(static_cast<int>(c));
        }
        for (int64_t i = chunk.length - chunk.num_outputs; i < chunk.length; ++i) {
            output_rows_.push_back(chunk.row + i);
            chunk_of_output_.push_back(static_cast<int>(c));
        }
    }
    for (auto& plan : plans_) plan_attention(input, plan);
}

void Executor::step(const StepInput& input, const StepOutput& output, int value) {
    constexpr int kStagesAnOp = 3;
    prepare(input);
    const int64_t tiles = (input.num_outputs + kOutputTile - 1) / kOutputTile;
    const auto num_stages = 1 + kStagesAnOp * static_cast<int64_t>(token_ops_.size()) +
                            tiles * (1 + kStagesAnOp * static_cast<int64_t>(output_ops_.size()));
    threads_.run_stages(static_cast<int>(num_stages), [&](int thread) { run_thread(thread, input, output, value); });
}

void Executor::run_thread(int thread, const StepInput& input, const StepOutput& output, int value) {
    Work work{&input, &output, value, 0, 0, 0};
    for_rows(work, input.num_rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) fill_rope_tables(row);
    });
    const auto run_op = [&](const Op& op) { std::visit([&](const auto& o) { run(thread, o, work); }, op); };
    for (const auto& op : token_ops_) run_op(op);
    for (; work.tile_begin < input.num_outputs; work.tile_begin += kOutputTile) {
        work.tile_rows = std::min(kOutputTile, input.num_outputs - work.tile_begin);
        for (const auto& op : output_ops_) run_op(op);
        threads_.stage(work.stage, work.tile_rows, [&](int64_t i) { sample_row(thread, work, i); });
    }
}

void Executor::fill_rope_tables(int64_t row) {
    for (const auto& table : ropes_) {
        const int64_t half = static_cast<int64_t>(table.inverse_frequencies.size());
        float* cos = scratch_.as<float>(table.scratch) + 2 * row * half;
        for (int64_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(positions_[static_cast<size_t>(row)]) *
                                 table.inverse_frequencies[static_cast<size_t>(i)];
            cos[i] = static_cast<float>(std::cos(angle));
            cos[half + i] = static_cast<float>(std::sin(angle));
        }
    }
}

void Executor::run(int, const EmbedOp& op, Work& work) {
    const PackedMatrix& m = matrices_[static_cast<size_t>(op.matrix)];
    for_rows(work, work.input->num_rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
            kernels_.unpack_row(m, work.input->token_ids[row], value(op.out) + row * m.cols);
    });
}

void Executor::run(int, const RmsNormOp& op, Work& work) {
    const int64_t dim = values_[static_cast<size_t>(op.x)].dim;
    const float* weight = vectors_[static_cast<size_t>(op.weight)].data();
    for_rows(work, rows_of(op.x, work), [&](int64_t begin, int64_t end) {
        kernels_.rms_norm({value(op.x), weight, value(op.out), dim, dim, dim, op.eps, begin, end});
    });
}

void Executor::run(int, const LinearOp& op, Work& work) {
    const int64_t rows = rows_of(op.x, work), cols = values_[static_cast<size_t>(op.x)].dim;
    bool plain = false, quantized = false;
    for (int id : op.matrices) {
        (is_float(matrices_[static_cast<size_t>(id)].type) ? plain : quantized) = true;
    }
    QuantRows quant = quant_rows(cols);
    if (!quantized) quant.quads = nullptr;
    float* floats = plain ? scratch_.as<float>(plain_at_) : nullptr;
    const float* norm = op.norm < 0 ? nullptr : vectors_[static_cast<size_t>(op.norm)].data();
    for_rows(work, rows, [&](int64_t begin, int64_t end) {
        kernels_.quantize_rows({value(op.x), cols, cols, norm, op.eps, quant, floats, begin, end});
    });
    threads_.stage(work.stage, static_cast<int64_t>(op.tasks.size()), [&](int64_t task) {
        const auto [i, begin, end] = op.tasks[static_cast<size_t>(task)];
        LinearArgs a{};
        a.matrix = &matrices_[static_cast<size_t>(op.matrices[i])];
        a.up = op.gated ? &matrices_[static_cast<size_t>(op.matrices[1])] : nullptr;
        a.quant = quant;
        a.plain = floats;
        a.bias = op.biases[i] < 0 ? nullptr : vectors_[static_cast<size_t>(op.biases[i])].data();
        a.out_stride = values_[static_cast<size_t>(op.outs[i])].dim;
        a.residual = op.residual < 0 ? nullptr : value(op.residual);
        a.residual_stride = a.out_stride;
        a.out = value(op.outs[i]);
        a.num_rows = rows;
        a.group_begin = begin;
        a.group_end = end;
        kernels_.linear(a);
    });
}

void Executor::run(int, const RopeOp& op, Work& work) {
    const RopeTable& table = ropes_[static_cast<size_t>(op.rope)];
    const int64_t dim = values_[static_cast<size_t>(op.x)].dim;
    for_rows(work, work.input->num_rows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row)
            kernels_.rope({value(op.x) + row * dim, value(op.out) + row * dim, rope_cos(table, row),
                           rope_sin(table, row), static_cast<int>(dim / op.head_dim), op.head_dim,
                           2 * static_cast<int>(table.inverse_frequencies.size()), table.interleaved});
    });
}

void Executor::run(int, const AddOp& op, Work& work) {
    const int64_t dim = values_[static_cast<size_t>(op.out)].dim;
    for_rows(work, rows_of(op.out, work), [&](int64_t begin, int64_t end) {
        kernels_.add(value(op.left) + begin * dim, value(op.right) + begin * dim, value(op.out) + begin * dim,
                     (end - begin) * dim);
    });
}

void Executor::run(int, const SwigluOp& op, Work& work) {
    const int64_t dim = values_[static_cast<size_t>(op.out)].dim;
    for_rows(work, rows_of(op.out, work), [&](int64_t begin, int64_t end) {
        kernels_.swiglu(value(op.gate) + begin * dim, value(op.up) + begin * dim, value(op.out) + begin * dim,
                        (end - begin) * dim);
    });
}

void Executor::run(int, const OutputRowsOp& op, Work& work) {
    const int64_t dim = values_[static_cast<size_t>(op.x)].dim;
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
        const int64_t dim = values_[static_cast<size_t>(work.value)].dim;
        std::memcpy(work.output->value + index * dim, value(work.value) + i * dim,
                    static_cast<size_t>(dim) * sizeof(float));
    }
    SamplingParams params = chunk.sampling;
    params.target = chunk.targets ? chunk.targets[in_chunk] : -1;
    params.output_index += in_chunk;
    params.history_length = std::min(params.history_length, positions_[static_cast<size_t>(row)] + 1);
    const int64_t vocab = values_[static_cast<size_t>(logits_)].dim;
    const auto sampled = samplers_[static_cast<size_t>(thread)].sample(
        value(logits_) + i * vocab, vocab, params, work.output->top_ids + index * work.output->max_top,
        work.output->top_logprobs + index * work.output->max_top);
    work.output->token_ids[index] = sampled.token;
    work.output->logprobs[index] = sampled.logprob;
}

}  // namespace twostroke
