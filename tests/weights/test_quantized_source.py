"""Models quantised as they are read, and written to files: which tensor gets which type, and that others read them."""

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.tiny import write_tiny_gguf

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.weights.dequantize import dequantize
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.quantize import quantize
from twostroke.weights.quantized_source import Fallback, QuantizedSource, write_quantized
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType


def model(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> GGUFFile:
    rng = np.random.default_rng(4)
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    tensors = {name: (TensorType.F32, shape) for name, shape in shapes.items()}
    write_gguf(path, {"general.architecture": "llama"}, tensors, lambda name: values[name].ravel().view(np.uint8))
    return GGUFFile.open(path)


SHAPES = {
    "token_embd.weight": (8, 256),
    "blk.0.attn_q.weight": (4, 256),
    "blk.0.attn_q.bias": (256,),
    "blk.0.attn_norm.weight": (256,),
    "blk.0.ffn_gate_inp.weight": (4, 256),
    "blk.0.ffn_down.weight": (4, 96),
    "blk.0.ffn_up_exps.weight": (2, 4, 256),
    "blk.0.odd.weight": (4, 20),
}


@pytest.mark.parametrize(
    ("kind", "matrix", "down", "embedding"),
    [
        ("Q4_K", "Q4_K", "Q5_0", "Q6_K"),
        ("Q5_K", "Q5_K", "Q5_1", "Q6_K"),
        ("Q6_K", "Q6_K", "Q8_0", "Q6_K"),
        ("Q4_0", "Q4_0", "Q4_0", "Q6_K"),
        ("Q8_0", "Q8_0", "Q8_0", "Q8_0"),
        ("BF16", "BF16", "BF16", "BF16"),
    ],
)
def test_types(tmp_path: Path, kind: str, matrix: str, down: str, embedding: str) -> None:
    with model(tmp_path / "model.gguf", SHAPES) as file:
        quantized = QuantizedSource(file, TensorType[kind])
        source: WeightSource = quantized
        odd = "BF16" if kind == "BF16" else "F16"
        expected = dict.fromkeys(SHAPES, "F32")
        expected |= {"token_embd.weight": embedding, "blk.0.attn_q.weight": matrix, "blk.0.ffn_up_exps.weight": matrix}
        expected |= {"blk.0.ffn_down.weight": down, "blk.0.odd.weight": odd}
        assert {name: source.info(name).type.name for name in source.names} == expected
        fallbacks = [] if down == kind else [Fallback("blk.0.ffn_down.weight", 96, TensorType[down])]
        fallbacks += [] if odd == kind else [Fallback("blk.0.odd.weight", 20, TensorType.F16)]
        assert quantized.fallbacks == fallbacks
        for name in source.names:
            info = source.info(name)
            plain = dequantize(file.data(name), TensorType.F32, info.shape)
            np.testing.assert_array_equal(source.data(name), quantize(plain, info.type))
            source.release(name)


def test_an_output_spares_the_embedding(tmp_path: Path) -> None:
    with model(tmp_path / "model.gguf", {"token_embd.weight": (4, 256), "output.weight": (4, 256)}) as file:
        quantized = QuantizedSource(file, TensorType.Q4_K)
        assert [info.type.name for info in quantized.tensors.values()] == ["Q4_K", "Q6_K"]
        with pytest.raises(ModelFileError, match="tensor 'absent' is missing"):
            quantized.info("absent")


def test_a_written_model_is_read_by_the_library(tmp_path: Path) -> None:
    with GGUFFile.open(write_tiny_gguf(tmp_path / "tiny.gguf", "llama", dim=256, num_layers=1)) as file:
        quantized, seen = QuantizedSource(file, TensorType.Q4_K), []
        path = tmp_path / "quantised.gguf"
        write_quantized(quantized, file.metadata, path, TensorType.Q4_K, lambda info: seen.append(info.name))
        assert seen == list(file.names)
        reader = gguf.GGUFReader(path)
        assert reader.fields["general.file_type"].contents() == 14
        assert reader.fields["tokenizer.ggml.tokens"].contents() == file.metadata["tokenizer.ggml.tokens"]
        for tensor in reader.tensors:
            info = quantized.info(tensor.name)
            theirs = gguf.dequantize(tensor.data, tensor.tensor_type)
            ours = dequantize(quantized.data(tensor.name), info.type, info.shape)
            assert tensor.tensor_type.name == info.type.name
            np.testing.assert_array_equal(theirs.reshape(ours.shape), ours)


def test_what_cannot_be_quantised_is_named(tmp_path: Path) -> None:
    file = model(tmp_path / "model.gguf", {"token_embd.weight": (4, 256)})
    with file, pytest.raises(UnsupportedModelError, match="weights cannot be quantised to IQ2_S"):
        QuantizedSource(file, TensorType.IQ2_S)
    values = np.full((1, 32), np.inf, np.float32)
    path = tmp_path / "infinite.gguf"
    write_gguf(path, {}, {"a.weight": (TensorType.F32, (1, 32))}, lambda name: values.ravel().view(np.uint8))
    with GGUFFile.open(path) as file, pytest.raises(ModelFileError, match=r"tensor 'a\.weight': values that are not"):
        QuantizedSource(file, TensorType.Q8_0).data("a.weight")
