"""Quantisations that are not run, and damaged quantised linears: each refused by its name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.weights.hf_directory import Tensor
from tests.weights.quantized_directory import AWQ, GPTQ, ROWS, Linear, compressed, gptq, read, write

from twostroke.errors import ModelFileError, TwostrokeError, UnsupportedModelError

# a configuration that is not run -> a pattern of the message
REFUSED: dict[str, tuple[Any, str]] = {
    "another method": (
        {"quant_method": "bitsandbytes"},
        r"method 'bitsandbytes' is not supported; these are: gptq, awq",
    ),
    "no method": ({"bits": 4}, r"method 'None' is not supported"),
    "a long name": ({"quant_method": "x" * 99}, r"method 'x{40}' is not supported"),
    "an object as method": ({"quant_method": {}}, r"method '\{\}' is not supported"),
    "three bits": ({**GPTQ, "bits": 3}, r"gptq with bits '3' is not supported, only 4"),
    "marlin": ({**GPTQ, "checkpoint_format": "marlin"}, r"gptq with checkpoint_format 'marlin' is not supported"),
    "overrides": ({**GPTQ, "dynamic": {"+:x": {}}}, r"gptq with dynamic "),
    "gemv": ({**AWQ, "version": "gemv"}, r"awq with version 'gemv' is not supported"),
    "no zeros": ({**AWQ, "zero_point": False}, r"awq with zero_point 'False'"),
    "e5m2": ({"quant_method": "fp8", "fmt": "e5m2"}, r"fp8 with fmt 'e5m2' is not supported"),
    "eight bits, zeros": (compressed(8, symmetric=False), r"pack-quantized with symmetric 'False' is not supported"),
    "integers for everything": (compressed(8, "int-quantized"), r"compressed-tensors with format 'int-quantized'"),
    "nvfp4": (compressed(4, "nvfp4-pack-quantized"), r"format 'nvfp4-pack-quantized' is not supported"),
    "sparse": ({**compressed(), "sparsity_config": {"format": "sparse-24"}}, r"with sparsity_config"),
    "rotated": ({**compressed(), "transform_config": {"config_groups": {"x": 1}}}, r"with transform_config"),
    "two schemes": (
        {**compressed(), "config_groups": {"a": {"weights": {"num_bits": 4}}, "b": {"weights": {"num_bits": 8}}}},
        r"config_groups that differ",
    ),
}
MALFORMED: dict[str, tuple[Any, str]] = {
    "a string": ("gptq", r"quantization_config is not an object"),
    "group of 0": ({**GPTQ, "group_size": 0}, r"group_size is '0'"),
    "group a string": ({**GPTQ, "group_size": "128"}, r"group_size is '128'"),
    "no groups": ({"quant_method": "compressed-tensors"}, r"config_groups is missing"),
    "block of one": ({"quant_method": "fp8", "weight_block_size": [128]}, r"the block of weights is '\[128\]'"),
    "block of 0": ({"quant_method": "fp8", "weight_block_size": [0, 128]}, r"the block of weights is"),
}


@pytest.mark.parametrize("kind", [*REFUSED, *MALFORMED])
def test_other_quantisations_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    config, message = (REFUSED | MALFORMED)[kind]
    write(tmp_path, gptq(Linear(128, 128)), config)
    expected = UnsupportedModelError if kind in REFUSED else ModelFileError
    with pytest.raises(expected, match=rf"config\.json: .*{message}"):
        read(tmp_path)


# what is wrong with a part of a GPTQ linear -> (the part, its tensor or None, a pattern of the message)
PARTS: dict[str, tuple[str, Tensor | None, str]] = {
    "scales missing": ("scales", None, r"tensor 'model\.proj\.scales' is missing"),
    "zeros missing": ("qzeros", None, r"tensor 'model\.proj\.qzeros' is missing"),
    "scales of another shape": (
        "scales",
        np.zeros((1, ROWS), np.float16),
        r"scales' has shape \[1, 16\], not \[2, 16\]",
    ),
    "zeros of another shape": ("qzeros", np.zeros((2, 3), np.int32), r"qzeros' has shape \[2, 3\], not \[2, 2\]"),
    "index too short": ("g_idx", np.zeros(5, np.int32), r"g_idx' has shape \[5\], not \[256\]"),
    "index out of range": ("g_idx", np.full(256, -7, np.int32), r"g_idx' does not give 128 inputs to each group"),
    "scales as integers": ("scales", np.zeros((2, ROWS), np.int32), r"scales' has dtype I32, not F16 or BF16 or F32"),
    "float32 scales": ("scales", np.zeros((2, ROWS), np.float32), r"with F32 scales are not supported for G4 weights"),
    "words as bytes": ("qweight", np.zeros((32, ROWS), np.uint8), r"qweight' has dtype U8"),
    "one dimension": ("qweight", np.zeros(32, np.int32), r"qweight' has shape \[32\], not two dimensions"),
    "nothing": ("qweight", np.zeros((0, ROWS), np.int32), r"qweight' has shape \[0, 16\], not two dimensions"),
    "not quantised": ("qweight", None, r"tensor 'model\.proj\.weight' is missing"),
}


@pytest.mark.parametrize("kind", PARTS)
def test_a_damaged_linear_is_named(tmp_path: Path, kind: str) -> None:
    name, tensor, message = PARTS[kind]
    tensors = gptq(Linear(256, 128))
    if tensor is None:
        del tensors[name]
    else:
        tensors[name] = tensor
    write(tmp_path, tensors, GPTQ)
    with pytest.raises(TwostrokeError, match=message):
        read(tmp_path)


def test_rows_that_no_type_holds(tmp_path: Path) -> None:
    write(tmp_path, gptq(Linear(80, 16)), {**GPTQ, "group_size": 16})
    with pytest.raises(UnsupportedModelError, match=r"model\.proj: groups of 16 in rows of 80 with F16 scales are not"):
        read(tmp_path)
