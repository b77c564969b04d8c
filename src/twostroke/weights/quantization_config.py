"""What `quantization_config` of a checkpoint says about its weights, or why it is refused. Owns no tensor.

Five layouts are run from their own numbers: GPTQ and AWQ with 4 bits, compressed-tensors' `pack-quantized` with 4 and 8
bits, FP8 and MXFP4. Sources: the configurations of AutoGPTQ and GPTQModel, AutoAWQ, compressed-tensors, and
transformers' fine-grained FP8 and MXFP4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from twostroke.errors import ModelFileError, UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the quantised linears of a checkpoint are stored.

    `group_size` is the columns of a group, 0 for one a row (or tensor). `zero_shift` is added to stored zeros.
    `rows_of_block` is the rows that share a scale (FP8 in blocks), else 0. `symmetric` weights have no stored zeros.
    """

    layout: Literal["gptq", "awq", "packed", "fp8", "mxfp4"]
    bits: int
    group_size: int
    zero_shift: int = 0
    rows_of_block: int = 0
    symmetric: bool = False
    scale_name: str = "weight_scale"


def read_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """The quantisation in a model's `config.json`; None where its weights are plain.

    Raises UnsupportedModelError, naming the method and the field, for any other; ModelFileError for a malformed one.
    """
    fields = config.get("quantization_config") or config.get("compression_config")
    if not fields:
        return None
    if not isinstance(fields, dict):
        raise ModelFileError("quantization_config is not an object")
    readers = {"gptq": _gptq, "awq": _awq, "compressed-tensors": _compressed, "fp8": _fp8, "mxfp4": _mxfp4}
    method = fields.get("quant_method", "compressed-tensors" if "config_groups" in fields else None)
    if not isinstance(method, str) or method not in readers:
        known = ", ".join(readers)
        raise UnsupportedModelError(f"quantisation method {str(method)[:40]!r} is not supported; these are: {known}")
    return readers[method](_Fields(method, fields))


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of one method, for reading with its name in the message."""

    method: str
    values: Mapping[str, Any]

    def require(self, name: str, *allowed: Any, default: Any = None) -> Any:
        """A field that must have one of some values."""
        value = self.values.get(name, default)
        if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in allowed):
            choices = " or ".join(map(repr, allowed))
            raise UnsupportedModelError(
                f"{self.method} with {name} {str(value)[:60]!r} is not supported, only {choices}"
            )
        return value

    def count(self, name: str, default: int | None = None) -> int:
        """A positive number of columns; -1 and null mean the whole row, and give 0."""
        value = self.values.get(name, default)
        if value in (None, -1):
            return 0
        if type(value) is not int or value < 1:
            raise ModelFileError(f"quantization_config: {name} is {str(value)[:60]!r}")
        return value


def _gptq(fields: _Fields) -> Quantization:
    fields.require("bits", 4)
    version = fields.require("checkpoint_format", "gptq", "gptq_v2", default="gptq")
    fields.require("is_marlin_format", False, default=False)
    fields.require("dynamic", None, {})
    # Version 1 stores zeros less one, modulo 16.
    return Quantization("gptq", 4, fields.count("group_size"), zero_shift=1 if version == "gptq" else 0)


def _awq(fields: _Fields) -> Quantization:
    fields.require("bits", 4, default=fields.values.get("w_bit"))
    fields.require("version", "gemm", "GEMM", default="gemm")
    fields.require("zero_point", True, default=True)
    return Quantization("awq", 4, fields.count("group_size", fields.values.get("q_group_size")))


def _fp8(fields: _Fields) -> Quantization:
    fields.require("fmt", "e4m3", "float8_e4m3fn", default="e4m3")
    fields.require("weight_per_tensor", None, True, False)
    block = fields.values.get("weight_block_size")
    if block is None:
        return Quantization("fp8", 8, 0)
    rows, cols = _block(block)
    return Quantization("fp8", 8, cols, rows_of_block=rows, scale_name="weight_scale_inv")


def _mxfp4(fields: _Fields) -> Quantization:
    return Quantization("mxfp4", 4, 32)


def _compressed(fields: _Fields) -> Quantization:
    for name in ("sparsity_config", "transform_config"):
        fields.require(name, None, {})
    groups = fields.values.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise ModelFileError("quantization_config: config_groups is missing")
    weights = [group.get("weights") if isinstance(group, dict) else None for group in groups.values()]
    first = weights[0]
    if not isinstance(first, dict) or any(row != first for row in weights):
        raise UnsupportedModelError("compressed-tensors with config_groups that differ is not supported")
    layout = fields.require("format", "pack-quantized", "float-quantized", "naive-quantized")
    rows = _Fields(f"compressed-tensors {layout}", first)
    if layout != "pack-quantized":
        rows.require("type", "float")
        rows.require("num_bits", 8)
        strategy = rows.require("strategy", "tensor", "channel", "block")
        block = _block(rows.values.get("block_structure")) if strategy == "block" else (0, 0)
        return Quantization("fp8", 8, block[1], rows_of_block=block[0])
    rows.require("type", "int", default="int")
    bits = rows.require("num_bits", 4, 8)
    symmetric = rows.require("symmetric", True, *([False] if bits == 4 else []), default=True)
    strategy = rows.require("strategy", "group", "channel")
    rows.require("actorder", None, "weight", "static", "group", False)
    return Quantization("packed", bits, rows.count("group_size") if strategy == "group" else 0, symmetric=symmetric)


def _block(value: Any) -> tuple[int, int]:
    if isinstance(value, str):  # older files have "128x128"
        value = [int(part) if part.isdecimal() else 0 for part in value[:40].split("x")]
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and 0 < n < 1 << 31 for n in value):
        raise ModelFileError(f"quantization_config: the block of weights is {str(value)[:60]!r}")
    return value[0], value[1]
