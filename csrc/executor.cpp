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
    PageBuffer buffer(group_bytes * static_cast<size_t>(groups));
    threads_.run([&](int thread) {
        const Part part = part_of(groups, thread, threads_.size());
        for (int64_t group = part.begin; group < part.end; ++group)
            pack_group(type, data, rows, cols, group, buffer.as(static_cast<size_t>(group) * group_bytes));
    });
    weight_bytes_ += buffer.bytes();
    const int8_t* entries = codebook < 0 ? nullptr : codebooks_[static_cast<size_t>(codebook)].data();
    matrices_.push_back({type, rows, cols, buffer.as(), group_bytes, entries});
    buffers_.push_back(std::move(buffer));
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
    auto parts = partition(gated ? std::vector<int>{matrices[0]} : matrices);
    ops.emplace_back(LinearOp{std::move(outs), std::move(matrices), std::move(biases), x, norm, eps, residual, gated,
                              std::move(parts)});
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
        AttentionOp{out, q, k, v, num_heads, group, rope, scale, window, layout, bytes, num_attention_++, 0});
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

// Matrix groups for each thread, balanced by bytes over all matrices of a linear taken as one.
std::vector<std::vector<Part>> Executor::partition(const std::vector<int>& matrices) const {
    size_t total = 0;
    for (int id : matrices) total += buffers_[static_cast<size_t>(id)].bytes();
    const int count = config_.num_threads;
    std::vector<std::vector<Part>> parts(static_cast<size_t>(count));
    for (int thread = 0; thread < count; ++thread) {
        size_t before = 0;
        const size_t from = total * static_cast<size_t>(thread) / static_cast<size_t>(count);
        const size_t to = total * static_cast<size_t>(thread + 1) / static_cast<size_t>(count);
        for (int id : matrices) {
            const PackedMatrix& m = matrices_[static_cast<size_t>(id)];
            const size_t bytes = buffers_[static_cast<size_t>(id)].bytes();
            const auto group_at = [&](size_t at) {
                const size_t inside = std::clamp(at, before, before + bytes) - before;
                return static_cast<int64_t>((inside + m.group_bytes / 2) / m.group_bytes);
            };
            parts[static_cast<size_t>(thread)].push_back({group_at(from), group_at(to)});
            before += bytes;
        }
    }
    return parts;
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
    next_unit_ = std::make_unique<std::atomic<int64_t>[]>(static_cast<size_t>(num_attention_) + 1);
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
    for (int i = 0; i < num_attention_; ++i) next_unit_[static_cast<size_t>(i)].store(0, std::memory_order_relaxed);
}

void Executor::step(const StepInput& input, const StepOutput& output, int value) {
    prepare(input);
    threads_.run([&](int thread) { run_thread(thread, input, output, value); });
}

void Executor::run_thread(int thread, const StepInput& input, const StepOutput& output, int value) {
    Work work{&input, &output, value, 0, 0};
    fill_rope_tables(thread, input);
    threads_.barrier();
    for (const auto& op : token_ops_) run_op(thread, op, work);
    for (; work.tile_begin < input.num_outputs; work.tile_begin += kOutputTile) {
        work.tile_rows = std::min(kOutputTile, input.num_outputs - work.tile_begin);
        for (const auto& op : output_ops_) run_op(thread, op, work);
        sample_tile(thread, work);
        threads_.barrier();
    }
}

void Executor::run_op(int thread, const Op& op, const Work& work) {
    std::visit([&](const auto& o) { run(thread, o, work); }, op);
    threads_.barrier();
}

void Executor::fill_rope_tables(int thread, const StepInput& input) {
    const Part part = part_of(input.num_rows, thread, threads_.size());
    for (const auto& table : ropes_) {
        const int64_t half = static_cast<int64_t>(table.inverse_frequencies.size());
        for (int64_t row = part.begin; row < part.end; ++row) {
            float* cos = scratch_.as<float>(table.scratch) + 2 * row * half;
            for (int64_t i = 0; i < half; ++i) {
                const double angle = static_cast<double>(positions_[static_cast<size_t>(row)]) *
                                     table.inverse_frequencies[static_cast<size_t>(i)];
                cos[i] = static_cast<float>(std::cos(angle));
                cos[half + i] = static_cast<float>(std::sin(angle));
            }
        }
    }
}

void Executor::run(int thread, const EmbedOp& op, const Work& work) {
    const PackedMatrix& m = matrices_[static_cast<size_t>(op.matrix)];
    const Part part = part_of(work.input->num_rows, thread, threads_.size());
    for (int64_t row = part.begin; row < part.end; ++row)
        kernels_.unpack_row(m, work.input->token_ids[row], value(op.out) + row * m.cols);
}

void Executor::run(int thread, const RmsNormOp& op, const Work& work) {
    const int64_t dim = values_[static_cast<size_t>(op.x)].dim;
    const Part part = part_of(rows_of(op.x, work), thread, threads_.size());
    kernels_.rms_norm({value(op.x), vectors_[static_cast<size_t>(op.weight)].data(), value(op.out), dim, dim, dim,
                       op.eps, part.begin, part.end});
}

void Executor::run(int thread, const LinearOp& op, const Work& work) {
    const int64_t rows = rows_of(op.x, work), cols = values_[static_cast<size_t>(op.x)].dim;
    bool plain = false, quantized = false;
    for (int id : op.matrices) {
        (is_float(matrices_[static_cast<size_t>(id)].type) ? plain : quantized) = true;
    }
    QuantRows quant = quant_rows(cols);
    if (!quantized) quant.quads = nullptr;
    float* floats = plain ? scratch_.as<float>(plain_at_) : nullptr;
    const float* norm = op.norm < 0 ? nullptr : vectors_[static_cast<size_t>(op.norm)].data();
    const Part part = part_of(rows, thread, threads_.size());
    kernels_.quantize_rows({value(op.x), cols, cols, norm, op.eps, quant, floats, part.begin, part.end});
    threads_.barrier();
    for (size_t i = 0; i < op.outs.size(); ++i) {
        const Part groups = op.parts[static_cast<size_t>(thread)][i];
        if (groups.begin == groups.end) continue;
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
        a.group_begin = groups.begin;
        a.group_end = groups.end;
        kernels_.linear(a);
    }
}

void Executor::run(int thread, const RopeOp& op, const Work& work) {
    const RopeTable& table = ropes_[static_cast<size_t>(op.rope)];
    const int64_t dim = values_[static_cast<size_t>(op.x)].dim;
    const Part part = part_of(work.input->num_rows, thread, threads_.size());
    for (int64_t row = part.begin; row < part.end; ++row) {
        kernels_.rope({value(op.x) + row * dim, value(op.out) + row * dim, rope_cos(table, row), rope_sin(table, row),
                       static_cast<int>(dim / op.head_dim), op.head_dim,
                       2 * static_cast<int>(table.inverse_frequencies.size()), table.interleaved});
    }
}

void Executor::run(int thread, const AddOp& op, const Work& work) {
    const int64_t size = rows_of(op.out, work) * values_[static_cast<size_t>(op.out)].dim;
    const Part part = part_of(size, thread, threads_.size());
    kernels_.add(value(op.left) + part.begin, value(op.right) + part.begin, value(op.out) + part.begin,
                 part.end - part.begin);
}

void Executor::run(int thread, const SwigluOp& op, const Work& work) {
    const int64_t size = rows_of(op.out, work) * values_[static_cast<size_t>(op.out)].dim;
    const Part part = part_of(size, thread, threads_.size());
    kernels_.swiglu(value(op.gate) + part.begin, value(op.up) + part.begin, value(op.out) + part.begin,
                    part.end - part.begin);
}

void Executor::run(int thread, const OutputRowsOp& op, const Work& work) {
    const int64_t dim = values_[static_cast<size_t>(op.x)].dim;
    const Part part = part_of(work.tile_rows, thread, threads_.size());
    for (int64_t i = part.begin; i < part.end; ++i) {
        const int64_t row = output_rows_[static_cast<size_t>(work.tile_begin + i)];
        std::memcpy(value(op.out) + i * dim, value(op.x) + row * dim, static_cast<size_t>(dim) * sizeof(float));
    }
}

void Executor::sample_tile(int thread, const Work& work) {
    const Part part = part_of(work.tile_rows, thread, threads_.size());
    for (int64_t i = part.begin; i < part.end; ++i) {
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
}

}  // namespace twostroke
