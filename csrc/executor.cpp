#include "executor.h"

#include <algorithm>
#include <chrono>
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

int Executor::add_matrix(TensorType type, int64_t rows, int64_t cols, int codebook) {
    const size_t group_bytes = packed_group_bytes(type, cols);
    const size_t bytes = group_bytes * static_cast<size_t>((rows + kLanes - 1) / kLanes);
    const int8_t* entries = codebook < 0 ? nullptr : at(codebooks_, codebook).data();
    matrices_.push_back({type, rows, cols, weights_.take(bytes), group_bytes, entries});
    weight_bytes_ += bytes;
    return static_cast<int>(matrices_.size()) - 1;
}

void Executor::pack(const std::vector<SourceRows>& sources) {
    constexpr int64_t kTaskBytes = 128 * 1024;
    struct Groups {
        const SourceRows* source;
        int64_t begin, end;
    };
    std::vector<Groups> tasks;
    for (const SourceRows& source : sources) {
        const auto group_bytes = static_cast<int64_t>(at(matrices_, source.matrix).group_bytes);
        const int64_t groups = (source.count + kLanes - 1) / kLanes, step = std::max<int64_t>(1, kTaskBytes / group_bytes);
        for (int64_t begin = 0; begin < groups; begin += step) tasks.push_back({&source, begin, std::min(begin + step, groups)});
    }
    threads_.run_stages(1, [&](int thread) {
        ThreadPool::Place place{thread};
        threads_.stage(place, static_cast<int64_t>(tasks.size()), [&](int64_t i) {
            const auto [source, begin, end] = tasks[static_cast<size_t>(i)];
            const PackedMatrix& m = at(matrices_, source->matrix);
            for (int64_t group = begin; group < end; ++group) {
                auto* packed = const_cast<uint8_t*>(m.data) + static_cast<size_t>(source->first / kLanes + group) * m.group_bytes;
                pack_group(m.type, source->data, source->count, m.cols, group, packed);  // of weights_
            }
        });
    });
}

int Executor::add_vector(const float* data, int64_t size) {
    vectors_.emplace_back(data, data + size);
    weight_bytes_ += static_cast<size_t>(size) * sizeof(float);
    return static_cast<int>(vectors_.size()) - 1;
}

int Executor::add_rope(const double* inverse_frequencies, int64_t size, bool interleaved, double magnitude) {
    ropes_.push_back({{inverse_frequencies, inverse_frequencies + size}, interleaved, magnitude, 0});
    return static_cast<int>(ropes_.size()) - 1;
}

int Executor::add_value(int64_t dim, int64_t offset, bool of_outputs) {
    int64_t& dims = of_outputs ? output_dims_ : token_dims_;
    dims = std::max(dims, offset + dim);
    values_.push_back({dim, offset, of_outputs});
    return static_cast<int>(values_.size()) - 1;
}

void Executor::add_embed(int out, int matrix) {
    num_token_ids_ = std::min(num_token_ids_, at(matrices_, matrix).rows);
    token_ops_.emplace_back(EmbedOp{out, matrix});
}

void Executor::add_normalize(int out, int x, NormIds norm, int64_t dim) {
    ops_writing(out).emplace_back(NormalizeOp{out, x, norm, dim});
}

void Executor::add_linear(std::vector<int> outs, int x, std::vector<int> matrices, std::vector<int> biases, NormIds norm,
                          int residual, std::optional<Elementwise> gate) {
    auto tasks = tasks_of(gate ? std::vector<int>{matrices[0]} : matrices);
    auto panels = panels_of(matrices_, matrices, gate.has_value());
    auto& ops = ops_writing(outs[0]);
    ops.emplace_back(LinearOp{std::move(outs), std::move(matrices), std::move(biases), x, norm, residual, gate,
                              std::move(tasks), std::move(panels)});
}

void Executor::add_rope_op(int out, int x, int head_dim, int rope) {
    token_ops_.emplace_back(RopeOp{out, x, head_dim, rope});
}

void Executor::add_attention(int out, int q, int k, int v, int num_heads, int num_kv_heads, int head_dim, float scale,
                             float soft_cap, int sinks, int64_t window, int group, int rope) {
    const KvLayout layout{config_.kv_type, head_dim, (head_dim + 15) / 16 * 16, num_kv_heads};
    size_t& bytes = pool_bytes_[static_cast<size_t>(group)];
    // A block holds its tokens of every layer of the group, so that a short answer touches few pages of a large pool.
    token_ops_.emplace_back(
        AttentionOp{out, q, k, v, num_heads, group, rope, scale, soft_cap, sinks, window, layout, bytes, 0});
    bytes += layout.block_bytes();
}

void Executor::add_elementwise(Elementwise kind, int out, int a, int b, float constant) {
    ops_writing(out).emplace_back(ElementwiseOp{kind, out, a, b, constant});
}

void Executor::add_experts(ExpertsSpec spec) {
    auto& ops = ops_writing(spec.out);
    ops.emplace_back(ExpertsOp{std::move(spec), std::make_shared<std::vector<ExpertsPlan>>(1)});
}

void Executor::add_reorder(int out, int x, std::vector<int32_t> order) {
    weight_bytes_ += order.size() * sizeof(int32_t);
    ops_writing(out).emplace_back(ReorderOp{out, x, std::move(order)});
}

void Executor::add_output_rows(int out, int x) { output_ops_.emplace_back(OutputRowsOp{out, x}); }

size_t Executor::packed_bytes(const PackedMatrix& matrix) {
    return matrix.group_bytes * static_cast<size_t>((matrix.rows + kLanes - 1) / kLanes);
}

// Tasks of a linear: each thread's share, first half of it in one piece, then smaller pieces that even out who is late.
Executor::LinearTasks Executor::tasks_of(const std::vector<int>& matrices) const {
    constexpr double kPieces[] = {0.5, 0.25, 0.125, 0.125};
    double total = 0.0;
    for (int id : matrices) total += static_cast<double>(packed_bytes(at(matrices_, id)));
    std::vector<double> ends;  // of the pieces, in bytes over all matrices taken as one
    for (int thread = 0; thread < config_.num_threads; ++thread)
        for (const double piece : kPieces)
            ends.push_back((ends.empty() ? 0.0 : ends.back()) + total * piece / config_.num_threads);
    LinearTasks tasks{{}, {0}};
    double before = 0.0;
    size_t piece = 0;
    for (size_t i = 0; i < matrices.size(); ++i) {
        const PackedMatrix& m = at(matrices_, matrices[i]);
        const int64_t groups = (m.rows + kLanes - 1) / kLanes;
        for (int64_t group = 0; group < groups;) {
            while (piece + 1 < ends.size() && ends[piece] <= before + 0.5 * static_cast<double>(m.group_bytes)) ++piece;
            const double fits = (ends[piece] - before) / static_cast<double>(m.group_bytes);
            const int64_t last = piece + 1 == ends.size() ? groups : std::min(groups, group + std::max<int64_t>(1, std::llround(fits)));
            while (tasks.first_of.size() <= piece / std::size(kPieces)) tasks.first_of.push_back(static_cast<int64_t>(tasks.all.size()));
            tasks.all.push_back({i, group, last});
            before += static_cast<double>(m.group_bytes) * static_cast<double>(last - group);
            group = last;
        }
    }
    while (tasks.first_of.size() <= static_cast<size_t>(config_.num_threads)) tasks.first_of.push_back(static_cast<int64_t>(tasks.all.size()));
    return tasks;
}

// The linear that comes after each of `ops`; `then` are the ops that run afterwards.
std::vector<const Executor::LinearOp*> Executor::linears_after(const std::vector<Op>& ops, const std::vector<Op>& then) {
    const LinearOp* next = nullptr;
    for (auto op = then.rbegin(); op != then.rend(); ++op)
        if (auto* linear = std::get_if<LinearOp>(&*op)) next = linear;
    std::vector<const LinearOp*> result(ops.size());
    for (size_t i = ops.size(); i-- > 0;) {
        result[i] = next;
        if (auto* linear = std::get_if<LinearOp>(&ops[i])) next = linear;
    }
    return result;
}

void Executor::finish(int logits) {
    logits_ = logits;
    const int64_t rows = std::max(config_.max_rows, kOutputTile);
    int64_t elements = 0, brains = 0, rotated = 0, heads = 1, inner = 0, outer = 0;  // most that any op needs
    bool plain = false;
    const auto reads = [&](int matrix, int64_t num_rows) {
        const int64_t cols = (at(matrices_, matrix).cols + 31) / 32 * 32;
        elements = std::max(elements, num_rows * cols);
        brains = std::max(brains, (num_rows + kBrainRest) * brain_stride(cols));
        row_elements_ = std::max(row_elements_, (cols + 511) / 512 * 512);  // so that each part of a row is aligned
        plain |= is_float(at(matrices_, matrix).type);
    };
    for (auto* ops : {&token_ops_, &output_ops_})
        for (auto& op : *ops) {
            if (auto* linear = std::get_if<LinearOp>(&op))
                for (int id : linear->matrices) reads(id, rows);
            if (auto* experts = std::get_if<ExpertsOp>(&op)) {
                const int64_t pairs = rows * experts->spec.top_k;
                for (const auto* ids : {&experts->spec.gates, &experts->spec.ups, &experts->spec.downs})
                    for (int id : *ids) reads(id, pairs);
                inner = std::max(inner, pairs * at(matrices_, experts->spec.gates[0]).rows);
                outer = std::max(outer, pairs * at(matrices_, experts->spec.downs[0]).rows);
            }
            if (auto* a = std::get_if<AttentionOp>(&op)) {
                rotated = std::max<int64_t>(rotated, (a->num_heads + a->layout.num_kv_heads) * a->layout.head_dim);
                state_floats_ = std::max<int64_t>(state_floats_, kStateHeader + a->layout.padded_dim);
                heads = std::max<int64_t>(heads, a->num_heads);
                size_t plan = 0;
                for (; plan < plans_.size(); ++plan) {
                    const AttentionOp& b = *plans_[plan].like;
                    if (b.num_heads == a->num_heads && b.layout.num_kv_heads == a->layout.num_kv_heads &&
                        b.window == a->window)
                        break;
                }
                a->plan = static_cast<int>(plan);
                if (plan == plans_.size()) plans_.push_back({a, {}, {}, {}});
            }
        }
    const int64_t ranges = (config_.max_context + kKeyRange - 1) / kKeyRange;
    max_states_ = ranges > 1 ? 4 * config_.num_threads * heads * ranges : 0;
    row_at_ = static_cast<size_t>(kMaxQueries * kKeyRange + 2 * kMaxQueries * state_floats_) * sizeof(float);
    const int64_t row_bytes = row_elements_ * 2 + row_elements_ / 32 * 4 + row_elements_ / 16 * 4 + (plain ? row_elements_ * 4 : 0);
    panel_at_ = (row_at_ + static_cast<size_t>(row_bytes) + 63) / 64 * 64;
    thread_bytes_ = panel_at_ + kPrefillScratch;

    size_t end = 0;
    const auto reserve = [&](int64_t bytes) {
        const size_t begin = end;
        end += (static_cast<size_t>(bytes) + 63) / 64 * 64;
        return begin;
    };
    next_of_token_ops_ = linears_after(token_ops_, output_ops_);
    next_of_output_ops_ = linears_after(output_ops_, {});
    quads_at_ = reserve(elements * 2);
    scales_at_ = reserve(elements / 32 * 4);
    sums_at_ = reserve(elements / 16 * 4);
    plain_at_ = reserve(plain ? elements * 4 : 0);
    brains_at_ = reserve(brains * 2);  // not read everywhere, but then never touched
    inner_at_ = reserve(inner * 4);
    outer_at_ = reserve(outer * 4);
    rotated_at_ = reserve(rows * rotated * 4);
    for (auto& table : ropes_)
        table.scratch = reserve(2 * rows * static_cast<int64_t>(table.inverse_frequencies.size()) * 4);
    states_at_ = reserve(max_states_ * state_floats_ * 4);
    thread_at_ = reserve(static_cast<int64_t>(thread_bytes_) * config_.num_threads);
    scratch_ = PageBuffer(end);
    arena_ = PageBuffer(static_cast<size_t>(token_dims_ * rows + output_dims_ * kOutputTile) * sizeof(float));
    for (size_t group = 0; group < pool_bytes_.size(); ++group)
        pools_.emplace_back(pool_bytes_[group] * static_cast<size_t>(config_.num_blocks[group]));
}

// The roof of these very pages: memory of one size is not equally fast everywhere, least of all on a virtual machine.
// What a kernel sustains is the median of its passes: the mean of an answer's steps is compared with it, and a single
// pass can be lucky as no answer is.
double Executor::probe_weights(double seconds) {
    using Clock = std::chrono::steady_clock;
    constexpr size_t kPrefetchBytes[] = {0, 4096};
    std::vector<float> sums(static_cast<size_t>(config_.num_threads));
    std::vector<double> passes[2];
    const auto start = Clock::now();
    const auto since = [](Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); };
    for (size_t pass = 0; pass < 6 || since(start) < seconds; ++pass) {
        const auto begin = Clock::now();
        threads_.run([&](int thread) {
            for (const auto& [data, bytes] : weights_.stretches()) {
                const Part part = part_of(static_cast<int64_t>(bytes), thread, config_.num_threads);
                sums[static_cast<size_t>(thread)] += kernels_.probe_read(
                    data + part.begin, static_cast<size_t>(part.end - part.begin), kPrefetchBytes[pass % 2]);
            }
        });
        passes[pass % 2].push_back(since(begin));
    }
    for (auto& times : passes) std::sort(times.begin(), times.end());
    volatile float kept = sums[0];
    (void)kept;
    return static_cast<double>(weights_.total()) /
           std::min(passes[0][passes[0].size() / 2], passes[1][passes[1].size() / 2]);
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

}  // namespace twostroke
