// Python bindings: types, array views and the GIL; no maths. Numbers are checked by the callers in native/.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <optional>

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

// The arrays of one step, as native/executor.py lays them out.
struct StepArrays {
    In<int32_t> token_ids;  // (num_rows)
    In<int64_t> chunks;  // (num_chunks, 3): start, length, num_outputs
    std::vector<In<int32_t>> tables;  // num_chunks * num_groups block tables
    std::vector<std::optional<In<int32_t>>> targets, histories;  // one a chunk
    In<double> sampling;  // (num_chunks, 6)
    In<int64_t> counters;  // (num_chunks, 6)
    std::vector<std::optional<In<int32_t>>> bias_ids;
    std::vector<std::optional<In<double>>> bias_values;
};

StepInput view(const StepArrays& a) {
    StepInput input{a.token_ids.data(), static_cast<int64_t>(a.token_ids.size()), 0, {}};
    const size_t num_chunks = a.chunks.shape(0);
    const size_t num_groups = num_chunks == 0 ? 0 : a.tables.size() / num_chunks;
    int64_t row = 0;
    for (size_t c = 0; c < num_chunks; ++c) {
        const int64_t* shape = a.chunks.data() + 3 * c;
        const double* s = a.sampling.data() + 6 * c;
        const int64_t* n = a.counters.data() + 6 * c;
        StepChunk chunk{row, shape[0], shape[1], shape[2], {}, {}, nullptr};
        for (size_t g = 0; g < num_groups; ++g) chunk.blocks.push_back(a.tables[c * num_groups + g].data());
        chunk.sampling = {s[0], s[1], s[2], s[3], s[4], s[5], n[0], n[1], n[2], n[3], n[4],
                          static_cast<uint64_t>(n[5]), nullptr, 0, nullptr, nullptr, 0, -1};
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
        input.chunks.push_back(std::move(chunk));
        input.num_outputs += shape[2];
        row += shape[1];
    }
    return input;
}

double step(Executor& executor, const StepArrays& arrays, Out<int32_t> token_ids, Out<float> logprobs,
            Out<int32_t> top_ids, Out<float> top_logprobs, int value, std::optional<Out<float>> value_out) {
    const StepInput input = view(arrays);
    const StepOutput output{token_ids.data(), logprobs.data(), top_ids.data(), top_logprobs.data(),
                            static_cast<int64_t>(top_ids.ndim() == 2 ? top_ids.shape(1) : 0),
                            value_out ? value_out->data() : nullptr};
    nb::gil_scoped_release release;
    const auto start = std::chrono::steady_clock::now();
    executor.step(input, output, value);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace
}  // namespace twostroke

NB_MODULE(_core, m) {
    using namespace twostroke;
    m.attr("block_tokens") = kBlockTokens;
    m.def("available_isas", &available_isas);
    m.def("probe_read", &probe_read, "isa"_a, "num_threads"_a, "bytes"_a, "prefetch_bytes"_a, "seconds"_a,
          nb::call_guard<nb::gil_scoped_release>());
    m.def("probe_flops", &probe_flops, "isa"_a, "num_threads"_a, "kind"_a, "seconds"_a,
          nb::call_guard<nb::gil_scoped_release>());

    nb::class_<StepArrays>(m, "StepArrays")
        .def(
            "__init__",
            [](StepArrays* self, In<int32_t> token_ids, In<int64_t> chunks, std::vector<In<int32_t>> tables,
               std::vector<std::optional<In<int32_t>>> targets, std::vector<std::optional<In<int32_t>>> histories,
               In<double> sampling, In<int64_t> counters, std::vector<std::optional<In<int32_t>>> bias_ids,
               std::vector<std::optional<In<double>>> bias_values) {
                new (self) StepArrays{std::move(token_ids), std::move(chunks),   std::move(tables),
                                      std::move(targets),   std::move(histories), std::move(sampling),
                                      std::move(counters),  std::move(bias_ids), std::move(bias_values)};
            },
            "token_ids"_a, "chunks"_a, "tables"_a, nb::arg("targets"), nb::arg("histories"), "sampling"_a, "counters"_a,
            "bias_ids"_a, "bias_values"_a);

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
            [](Executor& self, int type, int64_t rows, int64_t cols, In<uint8_t> data) {
                nb::gil_scoped_release release;
                return self.add_matrix(static_cast<TensorType>(type), rows, cols, data.data());
            },
            "type"_a, "rows"_a, "cols"_a, "data"_a)
        .def("add_vector",
             [](Executor& self, In<float> data) { return self.add_vector(data.data(), static_cast<int64_t>(data.size())); })
        .def(
            "add_rope",
            [](Executor& self, In<double> inverse_frequencies, bool interleaved) {
                return self.add_rope(inverse_frequencies.data(), static_cast<int64_t>(inverse_frequencies.size()),
                                     interleaved);
            },
            "inverse_frequencies"_a, "interleaved"_a)
        .def("add_value", &Executor::add_value, "dim"_a, "offset"_a, "of_outputs"_a)
        .def("add_embed", &Executor::add_embed, "out"_a, "matrix"_a)
        .def("add_rms_norm", &Executor::add_rms_norm, "out"_a, "x"_a, "weight"_a, "eps"_a)
        .def("add_linear", &Executor::add_linear, "outs"_a, "x"_a, "matrices"_a, "biases"_a, "norm"_a, "eps"_a,
             "residual"_a, "gated"_a)
        .def("add_rope_op", &Executor::add_rope_op, "out"_a, "x"_a, "head_dim"_a, "rope"_a)
        .def("add_attention", &Executor::add_attention, "out"_a, "q"_a, "k"_a, "v"_a, "num_heads"_a, "num_kv_heads"_a,
             "head_dim"_a, "scale"_a, "window"_a, "group"_a, "rope"_a)
        .def("add_add", &Executor::add_add, "out"_a, "left"_a, "right"_a)
        .def("add_swiglu", &Executor::add_swiglu, "out"_a, "gate"_a, "up"_a)
        .def("add_output_rows", &Executor::add_output_rows, "out"_a, "x"_a)
        .def("finish", &Executor::finish, "logits"_a)
        .def("poison", &Executor::poison)
        .def("step", &step, "arrays"_a, "token_ids"_a, "logprobs"_a, "top_ids"_a, "top_logprobs"_a, "value"_a,
             nb::arg("value_out") = nb::none())
        .def_prop_ro("weight_bytes", &Executor::weight_bytes)
        .def_prop_ro("kv_bytes", &Executor::kv_bytes)
        .def_prop_ro("scratch_bytes", &Executor::scratch_bytes);
}
