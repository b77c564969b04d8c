// A lowered program: packed weights, the arena its values live in, the KV pools, and steps.
// Who calls: one thread at a time. Numbers in a step are checked by the caller (bindings.cpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "memory.h"
#include "ops.h"
#include "sampler.h"
#include "threads.h"

namespace twostroke {

constexpr int64_t kOutputTile = 32;  // output rows whose logits exist at once

struct ExecutorConfig {
    std::string isa;
    int num_threads;
    int64_t max_rows, max_context;
    KvType kv_type;
    std::vector<int64_t> num_blocks;  // one a cache group
};

// One stretch of a request in a step; rows of all chunks lie one after another.
struct StepChunk {
    int64_t row, start, length, num_outputs;
    std::vector<const int32_t*> blocks;  // block table, one a cache group
    SamplingParams sampling;
    const int32_t* targets;  // (num_outputs), or null
    bool is_prompt;
};

struct StepInput {
    const int32_t* token_ids;
    int64_t num_rows, num_outputs;
    std::vector<StepChunk> chunks;
};

struct StepOutput {
    int32_t* token_ids;  // (num_outputs)
    float* logprobs;  // (num_outputs)
    int32_t* top_ids;  // (num_outputs, max_top)
    float* top_logprobs;
    int64_t max_top;
    float* value;  // (num_outputs, dim of the value asked for), or null
    double* seconds;  // that the step took
};

// Ids of a norm's vectors; weight -1: no norm.
struct NormIds {
    int weight = -1, bias = -1;
    float eps = 0.0f;
    bool layer = false;
};

// A mixture of experts: each row goes to the `top_k` experts of largest router logit.
struct ExpertsSpec {
    int out, x, router;
    std::vector<int> gates, ups, downs;  // one matrix an expert
    int gate_bias, up_bias, down_bias;  // vectors (num_experts, rows), or -1
    int64_t top_k;
    bool of_all;  // an expert's share is its softmax over all logits, not over the chosen ones
    float scale;  // of shares
    Elementwise gate;
};

class Executor {
  public:
    explicit Executor(const ExecutorConfig& config);
    ~Executor();

    // Weights and tables; each returns an id.
    int add_matrix(TensorType type, int64_t rows, int64_t cols, int codebook);
    // Rows [first, first + count) of a matrix that was added; `first` is a multiple of 16, `count` too but at the end.
    struct SourceRows {
        int matrix;
        int64_t first, count;
        const uint8_t* data;
    };
    void pack(const std::vector<SourceRows>& sources);
    int add_codebook(const int8_t* entries, int64_t size);  // for add_matrix; -1 there means none
    int add_vector(const float* data, int64_t size);
    // Cosines and sines are multiplied by `magnitude`.
    int add_rope(const double* inverse_frequencies, int64_t size, bool interleaved, double magnitude);
    // A value of `dim` floats a row at `offset` floats a row of the arena of its kind of rows.
    int add_value(int64_t dim, int64_t offset, bool of_outputs);

    // Ops, in the order they run. Ids of -1 mean "none".
    void add_embed(int out, int matrix);
    // Each `dim` elements of a row by themselves.
    void add_normalize(int out, int x, NormIds norm, int64_t dim);
    // With a gate, two matrices and one output.
    void add_linear(std::vector<int> outs, int x, std::vector<int> matrices, std::vector<int> biases, NormIds norm,
                    int residual, std::optional<Elementwise> gate);
    void add_rope_op(int out, int x, int head_dim, int rope);
    void add_attention(int out, int q, int k, int v, int num_heads, int num_kv_heads, int head_dim, float scale,
                       float soft_cap, int sinks, int64_t window, int group, int rope);
    void add_elementwise(Elementwise kind, int out, int a, int b, float constant);
    void add_experts(ExpertsSpec spec);
    // Element i of a row is element order[i] of the input's; all are within the input.
    void add_reorder(int out, int x, std::vector<int32_t> order);
    void add_output_rows(int out, int x);

    // After the last op: allocates arena, scratch and KV pools. `logits` is sampled from.
    void finish(int logits);

    // Starts to run every op on the batch and to sample. `value` is a value id copied to output.value. Workers are at it
    // at once, the caller's thread from end() on. All that input and output point to must stay as it is until then. A
    // step that nobody has ended is ended first.
    void begin(StepInput input, const StepOutput& output, int value);
    bool has_workers() const { return threads_.has_workers(); }  // false in a fork
    // Returns once the step with this `output.seconds` is done; at once where it is not the one in work.
    void end(const double* seconds);

    // Bytes per second of reading all packed weights, as decode does, by the best of several kernels in about `seconds`.
    double probe_weights(double seconds);

    // Block `block` of a cache group, all its layers, to and from `block_bytes(group)` bytes. Between steps.
    size_t block_bytes(int group) const { return at(pool_bytes_, group); }
    void export_block(int group, int64_t block, uint8_t* out) const;
    void import_block(int group, int64_t block, const uint8_t* data);

    // For tests: fills arena, scratch and pools with NaN, so that a value read before it is written shows.
    void poison();

    const ExecutorConfig& config() const { return config_; }
    int64_t dim_of(int value) const { return at(values_, value).dim; }
    int64_t vocab_size() const { return values_[static_cast<size_t>(logits_)].dim; }
    int64_t num_token_ids() const { return num_token_ids_; }  // rows of the smallest embedding table
    size_t weight_bytes() const { return weight_bytes_; }
    size_t kv_bytes() const;
    size_t scratch_bytes() const { return arena_.bytes() + scratch_.bytes(); }

  private:
    struct ValueInfo {
        int64_t dim, offset;
        bool of_outputs;
    };
    struct RopeTable {
        std::vector<double> inverse_frequencies;
        bool interleaved;
        double magnitude;
        size_t scratch;  // byte offset of cos, then sin, (max_rows, dim / 2) each
    };
    struct EmbedOp { int out, matrix; };
    struct NormalizeOp { int out, x; NormIds norm; int64_t dim; };
    struct LinearTask {  // groups of one of an op's matrices
        size_t matrix;
        int64_t begin, end;
    };
    struct LinearTasks {
        std::vector<LinearTask> all;
        std::vector<int64_t> first_of;  // (threads + 1): each thread's own
    };
    struct Panel {  // groups of one of an op's matrices that prompt rows are multiplied with at a time
        size_t matrix;
        int64_t begin, end;
    };
    struct Stretch {
        int64_t row, num_rows;
    };
    struct LinearOp {
        std::vector<int> outs, matrices, biases;
        int x;
        NormIds norm;
        int residual;
        std::optional<Elementwise> gate;
        LinearTasks tasks;
        std::vector<Panel> panels;
    };
    struct RopeOp { int out, x, head_dim, rope; };
    struct AttentionOp {
        int out, q, k, v, num_heads, group, rope;
        float scale, soft_cap;
        int sinks;
        int64_t window;
        KvLayout layout;
        size_t block_offset;  // in a block of the group, of this layer
        int plan;
    };
    struct ElementwiseOp { Elementwise kind; int out, a, b; float constant; };
    // Pairs of a row and one of its experts, in the order of experts; of each, those of generated rows first.
    struct ExpertsPlan {
        std::vector<int32_t> rows;  // (num_pairs): each pair's row
        std::vector<float> shares;  // (num_pairs)
        std::vector<int32_t> pairs_of_row;  // (num_rows, top_k), experts ascending
        struct Task {
            int32_t expert;
            bool is_prompt;
            int32_t begin, end;  // pairs
            int64_t group_begin, group_end;
        };
        std::vector<Task> inner, outer;  // of the gates and ups, of the downs
    };
    struct ExpertsOp {
        ExpertsSpec spec;
        std::shared_ptr<std::vector<ExpertsPlan>> plans;  // of the step in work; of output rows, one a tile
    };
    struct ReorderOp { int out, x; std::vector<int32_t> order; };
    struct OutputRowsOp { int out, x; };
    using Op = std::variant<EmbedOp, NormalizeOp, LinearOp, RopeOp, AttentionOp, ElementwiseOp, ExpertsOp, ReorderOp,
                            OutputRowsOp>;

    // Rows `row` .. `row + num_rows` of one chunk against key ranges `range_begin` .. `range_end`. Where the ranges of
    // some rows are split over units, each unit's states are kept, from `state` on, and merged in order afterwards.
    struct AttentionUnit {
        int chunk;
        int64_t row, num_rows, range_begin, range_end;
        int64_t state = -1, first_range = 0;
    };
    struct AttentionPlan {
        const AttentionOp* like;  // any op of these heads, layout and window
        std::vector<AttentionUnit> units, merges;
        std::vector<int64_t> first_of;  // (threads + 1): each thread's own pairs of a unit and a KV head
    };
    // What a thread will read next, fetched into its L2 while it waits for others.
    struct Ahead {
        struct Stretch {
            const uint8_t* at = nullptr;
            const uint8_t* end = nullptr;
        };
        Stretch stretches[2];

        void operator()() {
            for (Stretch& s : stretches)
                for (int line = 0; line < 4 && s.at < s.end; ++line, s.at += 64) __builtin_prefetch(s.at, 0, 2);
        }
    };
    struct Work {
        const StepInput* input;
        const StepOutput* output;
        int value;
        ThreadPool::Place place;
        int64_t tile_begin, tile_rows;  // output rows in work
        bool decodes;  // every chunk is one row
        std::vector<Stretch> parts;  // of prompt rows, in the linear in work
        Ahead ahead;
    };

    void run_thread(int thread, const StepInput& input, const StepOutput& output, int value);
    void end_running();
    void run_ops(const std::vector<Op>& ops, const std::vector<const LinearOp*>& next, Work& work);
    Ahead ahead_of(const LinearOp* next, int thread) const;
    void run(const EmbedOp& op, Work& work);
    void run(const NormalizeOp& op, Work& work);
    void run(const LinearOp& op, Work& work);
    void run_prompts(const LinearOp& op, Work& work);
    void make_prompts_ready(const LinearOp& op, int64_t begin, int64_t end) const;
    void split_prompts(int64_t panels, std::vector<Stretch>& parts) const;
    LinearArgs args_of(const LinearOp& op, size_t matrix, QuantRows quant, const float* plain) const;
    static std::vector<Panel> panels_of(const std::vector<PackedMatrix>& matrices, const std::vector<int>& ids, bool gated);
    void run(const RopeOp& op, Work& work);
    void run(const AttentionOp& op, Work& work);
    void run(const ElementwiseOp& op, Work& work);
    void run(const ExpertsOp& op, Work& work);
    void run(const ReorderOp& op, Work& work);
    void run(const OutputRowsOp& op, Work& work);

    uint8_t* block_at(int group, int64_t block) const {
        return at(pools_, group).as(static_cast<size_t>(block) * block_bytes(group));
    }
    void prepare(const StepInput& input);
    void route(const ExpertsSpec& spec, int64_t num_rows, const uint8_t* is_prompt, ExpertsPlan& plan) const;
    std::vector<ExpertsPlan::Task> expert_tasks(const std::vector<int>& matrices, const std::vector<int32_t>& ends) const;
    void run_expert(const ExpertsSpec& spec, const ExpertsPlan::Task& task, bool inner, int thread) const;
    bool have_prefill(std::initializer_list<int> matrices) const;
    void make_pair_ready(const float* x, int64_t pair, bool is_prompt, std::initializer_list<int> readers) const;
    std::vector<Op>& ops_writing(int value) { return at(values_, value).of_outputs ? output_ops_ : token_ops_; }
    void plan_attention(const StepInput& input, AttentionPlan& plan) const;
    int64_t first_key(const AttentionOp& op, int64_t position) const;
    float* state_of(const AttentionOp& op, const AttentionUnit& unit, int64_t range, int64_t row, int head) const;
    void fill_rope_tables(int64_t row);
    void rotate_and_store(const AttentionOp& op, const StepInput& input, int64_t row, int kv_head);
    void attend_unit(int thread, const AttentionOp& op, const AttentionUnit& unit, const StepChunk& chunk, int kv_head);
    void start_state(const AttentionOp& op, int head, float* total) const;
    void merge_unit(int thread, const AttentionOp& op, const AttentionUnit& unit, int head);
    void sample_row(int thread, const Work& work, int64_t index);
    // task(begin, end) over parts of `rows` rows, as one stage.
    template <class Task>
    void for_rows(Work& work, int64_t rows, Task&& task) {
        const int64_t parts = std::min<int64_t>(rows, 4 * threads_.size());
        threads_.stage(
            work.place, parts,
            [&](int64_t i) {
                const Part part = part_of(rows, static_cast<int>(i), static_cast<int>(parts));
                task(part.begin, part.end);
            },
            work.ahead);
    }

    template <class T>
    static const T& at(const std::vector<T>& items, int id) {
        return items[static_cast<size_t>(id)];
    }
    const float* vector(int id, int64_t offset = 0) const { return id < 0 ? nullptr : at(vectors_, id).data() + offset; }
    NormSpec norm_of(const NormIds& n) const { return {vector(n.weight), vector(n.bias), n.eps, n.layer}; }
    float* value(int id) const;
    int64_t rows_of(int id, const Work& work) const;
    QuantRows quant_rows(int64_t cols, int64_t row = 0) const;
    BrainRows brain_rows(int64_t cols) const { return {scratch_.as<uint16_t>(brains_at_), brain_stride(cols)}; }
    QuantRows row_of(int thread, int64_t cols) const;
    float* plain_row_of(int thread) const;
    uint8_t* scratch_of(int thread) const { return scratch_.as(thread_at_ + static_cast<size_t>(thread) * thread_bytes_); }
    const float* rope_cos(const RopeTable& table, int64_t row) const;
    const float* rope_sin(const RopeTable& table, int64_t row) const;
    static size_t packed_bytes(const PackedMatrix& matrix);
    static std::vector<const LinearOp*> linears_after(const std::vector<Op>& ops, const std::vector<Op>& then);
    LinearTasks tasks_of(const std::vector<int>& matrices) const;

    ExecutorConfig config_;
    const Kernels& kernels_;
    ThreadPool threads_;
    std::vector<PackedMatrix> matrices_;
    PageArena weights_;
    std::vector<std::vector<int8_t>> codebooks_;
    std::vector<std::vector<float>> vectors_;
    std::vector<RopeTable> ropes_;
    std::vector<ValueInfo> values_;
    std::vector<Op> token_ops_, output_ops_;
    std::vector<const LinearOp*> next_of_token_ops_, next_of_output_ops_;  // the linear that follows each op, or null
    std::vector<size_t> pool_bytes_;  // bytes of one block over the layers, one a group
    std::vector<PageBuffer> pools_;
    int logits_ = -1;
    size_t weight_bytes_ = 0;
    int64_t num_token_ids_ = std::numeric_limits<int64_t>::max();

    // Arena and scratch, allocated once by finish().
    PageBuffer arena_, scratch_;
    int64_t token_dims_ = 0, output_dims_ = 0;
    size_t quads_at_ = 0, scales_at_ = 0, sums_at_ = 0, plain_at_ = 0, brains_at_ = 0, rotated_at_ = 0, states_at_ = 0, thread_at_ = 0;
    size_t inner_at_ = 0, outer_at_ = 0;  // of experts: (num_pairs, ffn_dim), (num_pairs, dim)
    size_t thread_bytes_ = 0, row_at_ = 0, panel_at_ = 0;  // of a thread's scratch; in it, a row of its own for linears
    int64_t row_elements_ = 0;
    int64_t max_states_ = 0, state_floats_ = 0;

    // Of the step in work.
    bool is_running_ = false;  // begun, and not ended
    StepInput input_;
    StepOutput output_;
    std::function<void(int)> work_;
    std::chrono::steady_clock::time_point begun_;
    std::atomic<int64_t> ran_ns_{0};  // since then, when the first thread had seen all of it done
    std::vector<int64_t> positions_;  // (num_rows)
    std::vector<Stretch> prompts_, generated_;  // rows by phase; all are generated where phases are computed alike
    std::vector<uint8_t> is_prompt_;  // (num_rows), of prompts_
    std::vector<int> chunk_of_row_;
    std::vector<int64_t> output_rows_;  // row of each output
    std::vector<int> chunk_of_output_;
    std::vector<AttentionPlan> plans_;  // shared by attention ops of the same heads, layout and window
    std::vector<Sampler> samplers_;  // one a thread
};

}  // namespace twostroke
