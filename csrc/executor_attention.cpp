// The executor's attention: which thread attends which rows to which keys, and the merging of split ranges.
#include <algorithm>
#include <limits>

#include "executor.h"

namespace twostroke {

int64_t Executor::first_key(const AttentionOp& op, int64_t position) const {
    return op.window > 0 ? std::max<int64_t>(0, position + 1 - op.window) : 0;
}

// Units of work for one kind of attention. Rows of a chunk go together while their queries fit one kernel call. Where
// that leaves threads idle, as in decode over a long context, the key ranges of a unit are split too.
void Executor::plan_attention(const StepInput& input, AttentionPlan& plan) const {
    const AttentionOp& op = *plan.like;
    const int64_t heads_a_group = op.num_heads / op.layout.num_kv_heads;
    const int64_t tile = std::max<int64_t>(1, kMaxQueries / heads_a_group);
    plan.units.clear();
    plan.merges.clear();
    int64_t states = 0, most_ranges = 0;
    for (size_t c = 0; c < input.chunks.size(); ++c) {
        const StepChunk& chunk = input.chunks[c];
        for (int64_t i = 0; i < chunk.length; i += tile) {
            const int64_t rows = std::min(tile, chunk.length - i);
            const int64_t first = first_key(op, chunk.start + i) / kKeyRange;
            const int64_t end = (chunk.start + i + rows - 1) / kKeyRange + 1;
            plan.units.push_back({static_cast<int>(c), chunk.row + i, rows, first, end});
            states += rows * op.num_heads * (end - first);
            most_ranges = std::max(most_ranges, end - first);
        }
    }
    const auto items = static_cast<int64_t>(plan.units.size()) * op.layout.num_kv_heads;
    const int64_t wanted = 8 * threads_.size();
    if (most_ranges < 2 || items >= wanted || states > max_states_) return;
    const int64_t pieces = (wanted + items - 1) / items;
    std::vector<AttentionUnit> whole;
    whole.swap(plan.units);
    int64_t next = 0;
    for (AttentionUnit unit : whole) {
        const int64_t begin = unit.range_begin, ranges = unit.range_end - begin, count = std::min(pieces, ranges);
        if (count < 2) {
            plan.units.push_back(unit);
            continue;
        }
        unit.state = next;
        unit.first_range = begin;
        next += unit.num_rows * op.num_heads * ranges;
        plan.merges.push_back(unit);
        for (int64_t piece = 0; piece < count; ++piece) {
            unit.range_begin = begin + ranges * piece / count;
            unit.range_end = begin + ranges * (piece + 1) / count;
            plan.units.push_back(unit);
        }
    }
}

float* Executor::state_of(const AttentionOp& op, const AttentionUnit& unit, int64_t range, int64_t row, int head) const {
    const int64_t index = unit.state + ((range - unit.first_range) * unit.num_rows + row) * op.num_heads + head;
    return scratch_.as<float>(states_at_) + index * state_floats_;
}

void Executor::run(const AttentionOp& op, Work& work) {
    const AttentionPlan& plan = plans_[static_cast<size_t>(op.plan)];
    const int kv_heads = op.layout.num_kv_heads;
    // Where every row is of another request and no unit is split, a head's keys are stored by who attends to them.
    const bool at_once = work.decodes && plan.merges.empty();
    if (!at_once)
        for_rows(work, work.input->num_rows, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row)
                for (int head = 0; head < kv_heads; ++head) rotate_and_store(op, *work.input, row, head);
        });
    const auto attend = [&](int64_t item) {
        const AttentionUnit& unit = plan.units[static_cast<size_t>(item / kv_heads)];
        const int head = static_cast<int>(item % kv_heads);
        if (at_once) rotate_and_store(op, *work.input, unit.row, head);
        attend_unit(work.place.thread, op, unit, work.input->chunks[static_cast<size_t>(unit.chunk)], head);
    };
    threads_.stage_of_own(work.place, plan.first_of.data(), attend, work.ahead);
    if (plan.merges.empty()) return;
    const auto merge = [&](int64_t item) {
        merge_unit(work.place.thread, op, plan.merges[static_cast<size_t>(item / op.num_heads)],
                   static_cast<int>(item % op.num_heads));
    };
    threads_.stage(work.place, static_cast<int64_t>(plan.merges.size()) * op.num_heads, merge, work.ahead);
}

// One KV head of a row: its queries are rotated into scratch and its key into the cache; the value goes there as it is.
void Executor::rotate_and_store(const AttentionOp& op, const StepInput& input, int64_t row, int kv_head) {
    const int head_dim = op.layout.head_dim, kv_heads = op.layout.num_kv_heads, group = op.num_heads / kv_heads;
    const int64_t q_dim = op.num_heads * head_dim, kv_dim = kv_heads * head_dim;
    const int64_t q_at = static_cast<int64_t>(kv_head) * group * head_dim, kv_at = static_cast<int64_t>(kv_head) * head_dim;
    const float* k = value(op.k) + row * kv_dim + kv_at;
    if (op.rope >= 0) {
        const RopeTable& table = ropes_[static_cast<size_t>(op.rope)];
        float* rotated = scratch_.as<float>(rotated_at_) + row * (q_dim + kv_dim);
        RopeArgs a{value(op.q) + row * q_dim + q_at, rotated + q_at, rope_cos(table, row), rope_sin(table, row), group,
                   head_dim, 2 * static_cast<int>(table.inverse_frequencies.size()), table.interleaved};
        kernels_.rope(a);
        a.x = k;
        a.out = rotated + q_dim + kv_at;
        a.num_heads = 1;
        kernels_.rope(a);
        k = a.out;
    }
    const int64_t position = positions_[static_cast<size_t>(row)];
    const StepChunk& chunk = input.chunks[static_cast<size_t>(chunk_of_row_[static_cast<size_t>(row)])];
    uint8_t* at = block_at(op.group, chunk.blocks[static_cast<size_t>(op.group)][position / kBlockTokens]) + op.block_offset;
    kernels_.store_kv({k, value(op.v) + row * kv_dim + kv_at, at + static_cast<size_t>(kv_head) * op.layout.head_bytes(),
                       static_cast<int>(position % kBlockTokens), op.layout});
}

// Nothing seen yet; or a sink, a score that takes no value.
void Executor::start_state(const AttentionOp& op, int head, float* total) const {
    std::fill_n(total, state_floats_, 0.0f);
    total[0] = op.sinks < 0 ? -std::numeric_limits<float>::infinity() : vector(op.sinks)[head];
    total[1] = op.sinks < 0 ? 0.0f : 1.0f;
}

// One KV head of a unit: its queries, up to 8 at a time, over the unit's ranges in order.
void Executor::attend_unit(int thread, const AttentionOp& op, const AttentionUnit& unit, const StepChunk& chunk,
                           int kv_head) {
    const int head_dim = op.layout.head_dim, group = op.num_heads / op.layout.num_kv_heads;
    const int64_t q_dim = op.num_heads * head_dim;
    auto* scratch = reinterpret_cast<float*>(scratch_of(thread));
    float* parts = scratch + kMaxQueries * kKeyRange;
    float* totals = parts + kMaxQueries * state_floats_;
    AttentionArgs a{};
    a.blocks = chunk.blocks[static_cast<size_t>(op.group)];
    a.pool = pools_[static_cast<size_t>(op.group)].as(op.block_offset + static_cast<size_t>(kv_head) * op.layout.head_bytes());
    a.block_stride = block_bytes(op.group);
    a.layout = op.layout;
    a.scale = op.scale;
    a.soft_cap = op.soft_cap;
    a.scores = scratch;
    const int64_t queries = unit.num_rows * group;
    for (int64_t begin = 0; begin < queries; begin += kMaxQueries) {
        a.num_queries = static_cast<int>(std::min<int64_t>(kMaxQueries, queries - begin));
        int last = 0;
        for (int i = 0; i < a.num_queries; ++i) {
            const int64_t row = unit.row + (begin + i) / group, position = positions_[static_cast<size_t>(row)];
            const int64_t head = kv_head * group + (begin + i) % group;
            a.q[i] = op.rope < 0 ? value(op.q) + row * q_dim + head * head_dim
                                 : scratch_.as<float>(rotated_at_) +
                                       row * (q_dim + op.layout.num_kv_heads * head_dim) + head * head_dim;
            a.first[i] = static_cast<int>(first_key(op, position));
            a.visible[i] = static_cast<int>(position) + 1;
            last = std::max(last, a.visible[i]);
            float* total = totals + i * state_floats_;
            start_state(op, static_cast<int>(head), total);
        }
        for (int64_t range = unit.range_begin; range < unit.range_end; ++range) {
            a.key_begin = static_cast<int>(range * kKeyRange);
            a.key_end = std::min(a.key_begin + kKeyRange, last);
            a.next_begin = a.key_begin + kKeyRange;
            a.next_end = range + 1 < unit.range_end ? std::min(a.next_begin + kKeyRange, last) : a.next_begin;
            for (int i = 0; i < a.num_queries; ++i)
                a.state[i] = unit.state < 0 ? parts + i * state_floats_
                                            : state_of(op, unit, range, (begin + i) / group,
                                                       kv_head * group + static_cast<int>((begin + i) % group));
            kernels_.attend(a);
            if (unit.state >= 0) continue;
            for (int i = 0; i < a.num_queries; ++i)
                if (a.first[i] < a.key_end && a.visible[i] > a.key_begin)
                    kernels_.merge(totals + i * state_floats_, parts + i * state_floats_, op.layout.padded_dim);
        }
        if (unit.state >= 0) continue;
        for (int i = 0; i < a.num_queries; ++i) {
            const int64_t row = unit.row + (begin + i) / group, head = kv_head * group + (begin + i) % group;
            kernels_.finish(value(op.out) + row * q_dim + head * head_dim, totals + i * state_floats_, head_dim);
        }
    }
}

void Executor::merge_unit(int thread, const AttentionOp& op, const AttentionUnit& unit, int head) {
    const int64_t q_dim = op.num_heads * op.layout.head_dim;
    auto* total = reinterpret_cast<float*>(scratch_of(thread));
    for (int64_t i = 0; i < unit.num_rows; ++i) {
        const int64_t row = unit.row + i, position = positions_[static_cast<size_t>(row)];
        start_state(op, head, total);
        for (int64_t range = unit.range_begin; range < unit.range_end; ++range)
            if (first_key(op, position) < (range + 1) * kKeyRange && position + 1 > range * kKeyRange)
                kernels_.merge(total, state_of(op, unit, range, i, head), op.layout.padded_dim);
        kernels_.finish(value(op.out) + row * q_dim + head * op.layout.head_dim, total, op.layout.head_dim);
    }
}

}  // namespace twostroke
