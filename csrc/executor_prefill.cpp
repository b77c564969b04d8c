// Linears of steps with prompt rows, on instruction sets that multiply those in bfloat16. Generated rows of the same step
// are multiplied by each panel too, while its weights are in cache, in the numerics of generated rows.
#include <algorithm>

#include "executor.h"

namespace twostroke {

// None where no matrix, or not both of a gate and its up, are multiplied in bfloat16.
std::vector<Executor::Panel> Executor::panels_of(const std::vector<PackedMatrix>& matrices, const std::vector<int>& ids, bool gated) {
    std::vector<Panel> panels;
    const auto count = std::count_if(ids.begin(), ids.end(), [&](int id) { return has_prefill(at(matrices, id).type); });
    if (count < (gated ? 2 : 1)) return panels;
    const int64_t together = gated ? kPrefillGroups / 2 : kPrefillGroups;
    for (size_t i = 0; i < (gated ? 1 : ids.size()); ++i) {
        const int64_t groups = (at(matrices, ids[i]).rows + kLanes - 1) / kLanes;
        for (int64_t group = 0; group < groups; group += together) panels.push_back({i, group, std::min(group + together, groups)});
    }
    return panels;
}

// Parts of prompt rows that tasks are made of: as many as keep all threads busy, but not so few rows that expanding
// the weights for each part takes longer than multiplying, nor more than a kernel takes.
void Executor::split_prompts(int64_t panels, std::vector<Stretch>& parts) const {
    constexpr int64_t kFewRows = 128;
    const int64_t wanted = (4 * threads_.size() + panels - 1) / panels;
    parts.clear();
    for (const Stretch& s : prompts_) {
        const int64_t least = (s.num_rows + kPrefillRows - 1) / kPrefillRows;
        const int64_t count = std::max(least, std::min(wanted, s.num_rows / kFewRows));
        for (int64_t i = 0; i < count; ++i) {
            const Part part = part_of(s.num_rows, static_cast<int>(i), static_cast<int>(count));
            parts.push_back({s.row + part.begin, part.end - part.begin});
        }
    }
}

// What the op's matrices read of rows `begin` .. `end`.
void Executor::make_prompts_ready(const LinearOp& op, int64_t begin, int64_t end) const {
    const int64_t cols = at(values_, op.x).dim;
    bool brain = false, prompt_floats = false, plain = false, quantized = false;
    for (int id : op.matrices) {
        const TensorType type = at(matrices_, id).type;
        (has_prefill(type) ? brain : prompt_floats) = true;
        (is_float(type) ? plain : quantized) = true;
    }
    float* floats = scratch_.as<float>(plain_at_);
    const auto overlap = [&](const Stretch& s) { return Part{std::max(begin, s.row), std::min(end, s.row + s.num_rows)}; };
    for (const Stretch& s : prompts_) {
        const Part rows = overlap(s);
        if (brain) kernels_.round_rows({value(op.x), cols, cols, norm_of(op.norm), brain_rows(cols), rows.begin, rows.end});
        if (prompt_floats) kernels_.quantize_rows({value(op.x), cols, cols, norm_of(op.norm), {}, floats, rows.begin, rows.end});
    }
    QuantRows quant = quant_rows(cols);
    if (!quantized) quant.quads = nullptr;
    for (const Stretch& s : generated_) {
        const Part rows = overlap(s);
        kernels_.quantize_rows({value(op.x), cols, cols, norm_of(op.norm), quant, plain ? floats : nullptr, rows.begin, rows.end});
    }
}

void Executor::run_prompts(const LinearOp& op, Work& work) {
    const int64_t cols = at(values_, op.x).dim;
    for_rows(work, work.input->num_rows, [&](int64_t begin, int64_t end) { make_prompts_ready(op, begin, end); });
    split_prompts(static_cast<int64_t>(op.panels.size()), work.parts);
    const auto num_parts = static_cast<int64_t>(work.parts.size());
    const auto multiply = [&](int64_t task) {
        const Panel& panel = op.panels[static_cast<size_t>(task / num_parts)];
        LinearArgs a = args_of(op, panel.matrix, quant_rows(cols), scratch_.as<float>(plain_at_));
        a.brain = brain_rows(cols);
        a.scratch = scratch_of(work.place.thread) + panel_at_;
        a.group_begin = panel.begin;
        a.group_end = panel.end;
        if (task % num_parts == 0)
            for (const Stretch& s : generated_) kernels_.linear(of_rows(a, s.row, s.num_rows));
        const Stretch& part = work.parts[static_cast<size_t>(task % num_parts)];
        (has_prefill(a.matrix->type) ? kernels_.linear_prefill : kernels_.linear)(of_rows(a, part.row, part.num_rows));
    };
    threads_.stage(work.place, static_cast<int64_t>(op.panels.size()) * num_parts, multiply, work.ahead);
}

}  // namespace twostroke
