"""Hugging Face model directories made by hand, byte by byte, so that they can also be wrong. Owns test data only."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# NumPy dtype -> safetensors dtype; BF16 and FP8 are given as (dtype, bits)
_NAMES = {"f4": "F32", "f2": "F16", "f8": "F64", "i4": "I32", "i8": "I64", "u1": "U8", "i1": "I8", "i2": "I16"}

Tensor = npt.NDArray[Any] | tuple[str, npt.NDArray[Any]]


def safetensors_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """A sound file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    body = b""
    for name, tensor in tensors.items():
        dtype, values = tensor if isinstance(tensor, tuple) else (_NAMES[tensor.dtype.str[1:]], tensor)
        header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [len(body), len(body) + values.nbytes],
        }
        body += np.ascontiguousarray(values).tobytes()
    return raw_file(json.dumps(header), body)


def raw_file(header: str | bytes, body: bytes = b"") -> bytes:
    """A length, a header (padded to a multiple of 8), a body; nothing is checked."""
    text = header.encode() if isinstance(header, str) else header
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def write_directory(
    path: Path,
    shards: Mapping[str, Mapping[str, Tensor]],
    config: Mapping[str, Any] | None = None,
    index: Mapping[str, str] | None = None,
) -> Path:
    """`config.json`, the files of `shards`, and where there are several an index, unless `index` is given."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({"model_type": "llama", **(config or {})}))
    for file, tensors in shards.items():
        (path / file).write_bytes(safetensors_bytes(tensors))
    weight_map = index or {name: file for file, tensors in shards.items() for name in tensors}
    if len(shards) > 1 or index:
        text = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map})
        (path / "model.safetensors.index.json").write_text(text)
    return path


def bf16(values: npt.ArrayLike) -> tuple[str, npt.NDArray[np.uint16]]:
    """Values cut (not rounded) to BF16."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16
    return "BF16", bits.astype(np.uint16)
