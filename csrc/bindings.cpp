// Python bindings: types, array views, checks of every number that comes in, and the GIL; no maths.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <utility>

#include "dispatch.h"
#include "executor.h"
#include "probe.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace twostroke {
namespace {

template <class T>
using In = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <class T>
using Out = nb::ndarray<T, nb::c_contig, nb::device::cpu>;

// weight, bias, eps, layer
using Norm = std::tuple<int, int, float, bool>;
NormIds norm_ids(const Norm& norm) {
    return {std::get<0>(norm), std::get<1>(norm), std::get<2>(norm), std::get<3>(norm)};
}

// A step that was begun with arrays that go away: it is ended before them.
struct Running {
    Executor* executor = nullptr;
    double seconds = 0.0;
    Running() = default;
    Running(Running&& other) noexcept : executor(std::exchange(other.executor, nullptr)) {}  // before it was begun
    ~Running() {
        if (executor && executor->has_workers()) executor->end(&seconds);
    }
};

// The arrays of one step, as native/executor.py lays them out.
struct StepArrays {
    In<int32_t> token_ids;  // (num_rows)
    In<int64_t> chunks;  // (num_chunks, 4): start, length, num_outputs, 1 of a prompt
    std::vector<In<int32_t>> tables;  // num_chunks * num_groups block tables
    std::vector<std::optional<In<int32_t>>> targets, histories;  // one a chunk
    In<double> sampling;  // (num_chunks, 6)
    In<int64_t> counters;  // (num_chunks, 6)
    std::vector<std::optional<In<int32_t>>> bias_ids;
    std::vector<std::optional<In<double>>> bias_values;
    std::vector<std::optional<In<uint32_t>>> masks;
    // From begin() on.
    std::vector<Out<int32_t>> ids;  // token_ids (num_outputs), top_ids (num_outputs, max_top)
    std::vector<Out<float>> floats;  // logprobs, top_logprobs, and the value where one was asked for
    Running running;
};

void require(bool condition, const std::string& what) {
    if (!condition) throw std::invalid_argument(what);
}

void require_range(const char* what, const int32_t* values, size_t count, int64_t low, int64_t end) {
    for (size_t i = 0; i < count; ++i)
        require(values[i] >= low && values[i] < end, std::string(what) + " " + std::to_string(values[i]) +
                                                         " outside " + std::to_string(low) + ".." + std::to_string(end - 1));
}

// Every number that the core uses as a size or an index. A correct engine never sends a wrong one.
void check(const StepArrays& a, const Executor& executor) {
    const ExecutorConfig& config = executor.config();
    const int64_t vocab_size = executor.vocab_size();
    const size_t num_chunks = a.chunks.shape(0), num_groups = config.num_blocks.size();
    const auto num_rows = static_cast<int64_t>(a.token_ids.size());
    require(num_rows > 0 && num_rows <= config.max_rows,
            "a step of " + std::to_string(num_rows) + " tokens; at least 1, at most " + std::to_string(config.max_rows));
    require_range("token id", a.token_ids.data(), a.token_ids.size(), 0, executor.num_token_ids());
    require(a.tables.size() == num_chunks * num_groups, "a step needs one block table a chunk and cache group");
    require(a.chunks.size() == 4 * num_chunks && a.sampling.size() == 6 * num_chunks && a.counters.size() == 6 * num_chunks &&
                a.targets.size() == num_chunks && a.histories.size() == num_chunks && a.bias_ids.size() == num_chunks &&
                a.bias_values.size() == num_chunks && a.masks.size() == num_chunks,
            "a step's arrays are of different lengths");
    int64_t rows = 0;
    for (size_t c = 0; c < num_chunks; ++c) {
        const int64_t start = a.chunks.data()[4 * c], length = a.chunks.data()[4 * c + 1];
        const int64_t num_outputs = a.chunks.data()[4 * c + 2];
        require(start >= 0 && length > 0 && length <= num_rows && start <= config.max_context - length,
                "chunk of " + std::to_string(length) + " tokens at " + std::to_string(start) + " in a context of " +
                    std::to_string(config.max_context));
        require(num_outputs >= 0 && num_outputs <= length,
                std::to_string(num_outputs) + " outputs of a chunk of " + std::to_string(length) + " tokens");
        for (size_t g = 0; g < num_groups; ++g) {
            const auto& table = a.tables[c * num_groups + g];
            const int64_t used = (start + length + kBlockTokens - 1) / kBlockTokens;
            require(static_cast<int64_t>(table.size()) >= used, std::to_string(table.size()) +
                                                                    " blocks cannot hold " + std::to_string(start + length) + " tokens");
            require_range("block id", table.data(), static_cast<size_t>(used), 0, config.num_blocks[g]);
        }
        if (a.targets[c]) {
            require(static_cast<int64_t>(a.targets[c]->size()) == num_outputs,
                    std::to_string(a.targets[c]->size()) + " targets for " + std::to_string(num_outputs) + " outputs");
            require_range("target", a.targets[c]->data(), a.targets[c]->size(), -1, vocab_size);
        }
        require(a.bias_ids[c].has_value() == a.bias_values[c].has_value() &&
                    (!a.bias_ids[c] || a.bias_ids[c]->size() == a.bias_values[c]->size()),
                "logit biases need one value a token");
        if (a.bias_ids[c]) require_range("logit bias of token", a.bias_ids[c]->data(), a.bias_ids[c]->size(), 0, vocab_size);
        require(!a.masks[c] || static_cast<int64_t>(a.masks[c]->size()) == (vocab_size + 31) / 32,
                "a mask needs one bit for each of " + std::to_string(vocab_size) + " tokens");
        const double* s = a.sampling.data() + 6 * c;
        const bool has_penalties = s[3] != 1.0 || s[4] != 0.0 || s[5] != 0.0;
        require(!has_penalties || (a.histories[c] && static_cast<int64_t>(a.histories[c]->size()) == start + length),
                "penalties need the history of all " + std::to_string(start + length) + " tokens");
        const int64_t num_logprobs = a.counters.data()[6 * c + 2];
        require(num_logprobs >= -1 && num_logprobs <= vocab_size,
                std::to_string(num_logprobs) + " log-probabilities of a vocabulary of " + std::to_string(vocab_size));
        rows += length;
    }
    require(rows == num_rows, std::to_string(num_rows) + " token ids for chunks of " + std::to_string(rows));
}

StepInput view(const StepArrays& a) {
    StepInput input{a.token_ids.data(), static_cast<int64_t>(a.token_ids.size()), 0, {}};
    const size_t num_chunks = a.chunks.shape(0);
    const size_t num_groups = num_chunks == 0 ? 0 : a.tables.size() / num_chunks;
    int64_t row = 0;
    for (size_t c = 0; c < num_chunks; ++c) {
        const int64_t* shape = a.chunks.data() + 4 * c;
        const double* s = a.sampling.data() + 6 * c;
        const int64_t* n = a.counters.data() + 6 * c;
        StepChunk chunk{row, shape[0], shape[1], shape[2], {}, {}, nullptr, shape[3] != 0};
        for (size_t g = 0; g < num_groups; ++g) chunk.blocks.push_back(a.tables[c * num_groups + g].data());
        chunk.sampling = {s[0], s[1], s[2], s[3], s[4], s[5], n[0], n[1], n[2], n[3], n[4],
                          static_cast<uint64_t>(n[5]), nullptr, 0, nullptr, nullptr, 0, nullptr, -1};
        if (a.targets[c]) chunk.targets = a.targets[c]->data();
        if (a.histories[c]) {
            chunk.sampling.history = a.histories[c]->data();
            chunk.sampling.history_length = static_cast<int64_t>(a.histories[c]->size());
        }
        if (a.bias_ids[c]) {
            chunk.sampling.bias_ids = a.bias_ids[c]->data();
            chunk.sampling.bias_values = a.bias_values[c]->data();
            chunk.sampling.num_biases = static_cast<int64_t>(a.bias_ids[c]->size());
        }
        if (a.masks[c]) chunk.sampling.mask = a.masks[c]->data();
        input.chunks.push_back(std::move(chunk));
        input.num_outputs += shape[2];
        row += shape[1];
    }
    return input;
}

// The blocks that hold the same tokens, one a cache group, against bytes for all of them.
void check_blocks(const Executor& executor, const std::vector<int64_t>& block_ids, size_t num_bytes) {
    const auto& num_blocks = executor.config().num_blocks;
    require(block_ids.size() == num_blocks.size(), std::to_string(block_ids.size()) + " blocks for " +
                                                       std::to_string(num_blocks.size()) + " cache groups");
    size_t bytes = 0;
    for (size_t group = 0; group < block_ids.size(); ++group) {
        require(block_ids[group] >= 0 && block_ids[group] < num_blocks[group],
                "block " + std::to_string(block_ids[group]) + " of a pool of " + std::to_string(num_blocks[group]));
        bytes += executor.block_bytes(static_cast<int>(group));
    }
    require(num_bytes == bytes, std::to_string(num_bytes) + " bytes for blocks of " + std::to_string(bytes));
}

void export_blocks(const Executor& executor, const std::vector<int64_t>& block_ids, Out<uint8_t> out) {
    check_blocks(executor, block_ids, out.size());
    size_t done = 0;
    for (int group = 0; group < static_cast<int>(block_ids.size()); ++group) {
        executor.export_block(group, block_ids[static_cast<size_t>(group)], out.data() + done);
        done += executor.block_bytes(group);
    }
}

void import_blocks(Executor& executor, const std::vector<int64_t>& block_ids, In<uint8_t> data) {
    check_blocks(executor, block_ids, data.size());
    size_t done = 0;
    for (int group = 0; group < static_cast<int>(block_ids.size()); ++group) {
        executor.import_block(group, block_ids[static_cast<size_t>(group)], data.data() + done);
        done += executor.block_bytes(group);
    }
}

// Workers are at the step from here on, the caller's thread in end(). Takes no longer than laying it out, so the GIL is
// kept: who lets it go may wait for it.
void begin(Executor& executor, StepArrays& arrays, Out<int32_t> token_ids, Out<float> logprobs, Out<int32_t> top_ids,
           Out<float> top_logprobs, int value, std::optional<Out<float>> value_out) {
    executor.end(&arrays.running.seconds);
    const StepOutput output{token_ids.data(), logprobs.data(), top_ids.data(), top_logprobs.data(),
                            static_cast<int64_t>(top_ids.ndim() == 2 ? top_ids.shape(1) : 0),
                            value_out ? value_out->data() : nullptr, &arrays.running.seconds};
    arrays.ids = {std::move(token_ids), std::move(top_ids)};
    arrays.floats = {std::move(logprobs), std::move(top_logprobs)};
    if (value_out) arrays.floats.push_back(std::move(*value_out));
    executor.begin(view(arrays), output, value);
    arrays.running.executor = &executor;
}

// Returns the seconds that the step took in the core. As often as one likes, once it was begun.
double end(Executor& executor, StepArrays& arrays) {
    nb::gil_scoped_release release;
    executor.end(&arrays.running.seconds);
    return arrays.running.seconds;
}

// Packs whole blocks of a file's type. The caller has checked that values are finite and within the type's range.
void quantize(const std::string& isa, int type, In<float> values, Out<uint8_t> blocks) {
    const auto kind = static_cast<TensorType>(type);
    const auto count = static_cast<int64_t>(values.size()) / columns_per_block(kind);
    require(count * columns_per_block(kind) == static_cast<int64_t>(values.size()) &&
                static_cast<size_t>(count) * bytes_per_block(kind) == blocks.size(),
            std::to_string(values.size()) + " values do not fill " + std::to_string(blocks.size()) + " bytes of blocks");
    const Kernels& kernels = kernels_for(isa);
    nb::gil_scoped_release release;
    kernels.quantize_blocks(kind, values.data(), count, blocks.data());
}

}  // namespace
}  // namespace twostroke

NB_MODULE(_core, m) {
    using namespace twostroke;
    m.attr("block_tokens") = kBlockTokens;
    m.attr("ADD") = static_cast<int>(Elementwise::Add);
    m.attr("GATE_SILU") = static_cast<int>(Elementwise::GateSilu);
    m.attr("GATE_GELU") = static_cast<int>(Elementwise::GateGelu);
    m.attr("GATE_GELU_TANH") = static_cast<int>(Elementwise::GateGeluTanh);
    m.attr("GATE_SWIGLU_OAI") = static_cast<int>(Elementwise::GateSwigluOai);
    m.attr("SILU") = static_cast<int>(Elementwise::Silu);
    m.attr("GELU") = static_cast<int>(Elementwise::Gelu);
    m.attr("GELU_TANH") = static_cast<int>(Elementwise::GeluTanh);
    m.attr("SQUARED_RELU") = static_cast<int>(Elementwise::SquaredRelu);
    m.attr("SCALE") = static_cast<int>(Elementwise::Scale);
    m.attr("SOFT_CAP") = static_cast<int>(Elementwise::SoftCap);
    m.attr("SIGMOID_GATE") = static_cast<int>(Elementwise::SigmoidGate);
    m.def("available_isas", &available_isas);
    m.def("emulate_amx", &emulate_amx);
    m.def("probe_read", &probe_read, "isa"_a, "num_threads"_a, "num_bytes"_a, "prefetch_bytes"_a, "seconds"_a,
          nb::call_guard<nb::gil_scoped_release>());
    m.def("probe_flops", &probe_flops, "isa"_a, "num_threads"_a, "kind"_a, "seconds"_a,
          nb::call_guard<nb::gil_scoped_release>());

    m.def("quantize", &quantize, "isa"_a, "tensor_type"_a, "values"_a, "blocks"_a);

    nb::class_<StepArrays>(m, "StepArrays");

    nb::class_<Executor>(m, "Executor")
        .def(
            "__init__",
            [](Executor* self, std::string isa, int num_threads, int64_t max_rows, int64_t max_context, int kv_type,
               std::vector<int64_t> num_blocks) {
                new (self) Executor({std::move(isa), num_threads, max_rows, max_context,
                                     static_cast<KvType>(kv_type), std::move(num_blocks)});
            },
            "isa"_a, "num_threads"_a, "max_rows"_a, "max_context"_a, "kv_type"_a, "num_blocks"_a)
        .def(
            "add_matrix",
            [](Executor& self, int type, int64_t rows, int64_t cols, int codebook) {
                return self.add_matrix(static_cast<TensorType>(type), rows, cols, codebook);
            },
            "tensor_type"_a, "rows"_a, "cols"_a, "codebook"_a)
        .def(
            "pack",
            [](Executor& self, const std::vector<std::tuple<int, int64_t, int64_t, In<uint8_t>>>& sources) {
                std::vector<Executor::SourceRows> rows;
                for (const auto& [matrix, first, count, data] : sources) rows.push_back({matrix, first, count, data.data()});
                nb::gil_scoped_release release;
                self.pack(rows);
            },
            "sources"_a)
        .def("add_codebook",
             [](Executor& self, In<int8_t> entries) {
                 return self.add_codebook(entries.data(), static_cast<int64_t>(entries.size()));
             })
        .def("add_vector",
             [](Executor& self, In<float> data) { return self.add_vector(data.data(), static_cast<int64_t>(data.size())); })
        .def(
            "add_rope",
            [](Executor& self, In<double> inverse_frequencies, bool interleaved, double magnitude) {
                return self.add_rope(inverse_frequencies.data(), static_cast<int64_t>(inverse_frequencies.size()),
                                     interleaved, magnitude);
            },
            "inverse_frequencies"_a, "interleaved"_a, "magnitude"_a)
        .def("add_value", &Executor::add_value, "dim"_a, "offset"_a, "of_outputs"_a)
        .def("add_embed", &Executor::add_embed, "out"_a, "matrix"_a)
        .def(
            "add_normalize",
            [](Executor& self, int out, int x, const Norm& norm, int64_t dim) {
                self.add_normalize(out, x, norm_ids(norm), dim);
            },
            "out"_a, "x"_a, "norm"_a, "dim"_a)
        .def(
            "add_linear",
            [](Executor& self, std::vector<int> outs, int x, std::vector<int> matrices, std::vector<int> biases,
               const Norm& norm, int residual, int gate) {
                self.add_linear(std::move(outs), x, std::move(matrices), std::move(biases), norm_ids(norm), residual,
                                gate < 0 ? std::nullopt : std::optional(static_cast<Elementwise>(gate)));
            },
            "outs"_a, "x"_a, "matrices"_a, "biases"_a, "norm"_a, "residual"_a, "gate"_a)
        .def("add_rope_op", &Executor::add_rope_op, "out"_a, "x"_a, "head_dim"_a, "rope"_a)
        .def("add_attention", &Executor::add_attention, "out"_a, "q"_a, "k"_a, "v"_a, "num_heads"_a, "num_kv_heads"_a,
             "head_dim"_a, "scale"_a, "soft_cap"_a, "sinks"_a, "window"_a, "group"_a, "rope"_a)
        .def(
            "add_elementwise",
            [](Executor& self, int kind, int out, int a, int b, float constant) {
                self.add_elementwise(static_cast<Elementwise>(kind), out, a, b, constant);
            },
            "kind"_a, "out"_a, "a"_a, "b"_a, "constant"_a)
        .def(
            "add_experts",
            [](Executor& self, int out, int x, int router, std::vector<int> gates, std::vector<int> ups,
               std::vector<int> downs, std::tuple<int, int, int> biases, int64_t top_k, bool of_all, float scale,
               int gate) {
                const auto [gate_bias, up_bias, down_bias] = biases;
                self.add_experts({out, x, router, std::move(gates), std::move(ups), std::move(downs), gate_bias,
                                  up_bias, down_bias, top_k, of_all, scale, static_cast<Elementwise>(gate)});
            },
            "out"_a, "x"_a, "router"_a, "gates"_a, "ups"_a, "downs"_a, "biases"_a, "top_k"_a, "of_all"_a, "scale"_a,
            "gate"_a)
        .def(
            "add_reorder",
            [](Executor& self, int out, int x, In<int32_t> order) {
                require(static_cast<int64_t>(order.size()) == self.dim_of(out),
                        std::to_string(order.size()) + " places for " + std::to_string(self.dim_of(out)) + " elements");
                require_range("place", order.data(), order.size(), 0, self.dim_of(x));
                self.add_reorder(out, x, std::vector<int32_t>(order.data(), order.data() + order.size()));
            },
            "out"_a, "x"_a, "order"_a)
        .def("add_output_rows", &Executor::add_output_rows, "out"_a, "x"_a)
        .def("finish", &Executor::finish, "logits"_a)
        .def("probe_weights", &Executor::probe_weights, "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("poison", &Executor::poison)
        .def(
            "lay_out",
            [](const Executor& self, In<int32_t> token_ids, In<int64_t> chunks, std::vector<In<int32_t>> tables,
               std::vector<std::optional<In<int32_t>>> targets, std::vector<std::optional<In<int32_t>>> histories,
               In<double> sampling, In<int64_t> counters, std::vector<std::optional<In<int32_t>>> bias_ids,
               std::vector<std::optional<In<double>>> bias_values, std::vector<std::optional<In<uint32_t>>> masks) {
                StepArrays arrays{std::move(token_ids), std::move(chunks),   std::move(tables),
                                  std::move(targets),   std::move(histories), std::move(sampling),
                                  std::move(counters),  std::move(bias_ids), std::move(bias_values), std::move(masks)};
                check(arrays, self);
                return arrays;
            },
            "token_ids"_a, "chunks"_a, "tables"_a, "targets"_a, "histories"_a, "sampling"_a, "counters"_a, "bias_ids"_a,
            "bias_values"_a, "masks"_a)
        .def("begin", &begin, "arrays"_a, "token_ids"_a, "logprobs"_a, "top_ids"_a, "top_logprobs"_a, "value"_a,
             nb::arg("value_out") = nb::none(), nb::keep_alive<2, 1>())
        .def("end", &end, "arrays"_a)
        .def("export_blocks", &export_blocks, "block_ids"_a, "out"_a)
        .def("import_blocks", &import_blocks, "block_ids"_a, "data"_a)
        .def_prop_ro("block_bytes",
                     [](const Executor& self) {
                         size_t bytes = 0;
                         for (int group = 0; group < static_cast<int>(self.config().num_blocks.size()); ++group)
                             bytes += self.block_bytes(group);
                         return bytes;
                     })
        .def_prop_ro("weight_bytes", &Executor::weight_bytes)
        .def_prop_ro("kv_bytes", &Executor::kv_bytes)
        .def_prop_ro("scratch_bytes", &Executor::scratch_bytes);
}
