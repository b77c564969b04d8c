"""Files that `write_gguf` writes: read by our reader and by the `gguf` library; nothing left where writing fails."""

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from twostroke.errors import ModelFileError
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

METADATA = {
    "general.architecture": "llama",
    "a.u32": 7,
    "a.i32": -7,
    "a.u64": 1 << 40,
    "a.i64": -(1 << 40),
    "a.f32": 0.5,
    "a.f64": 0.1,
    "a.huge": 1e300,
    "a.inf": float("inf"),
    "a.bool": True,
    "a.u16": np.uint16(3),
    "words": ["", "日本", "a\0b"],
    "none": [],
    "ints": np.array([1, -2], np.int32),
    "floats": np.array([0.25, 1e30], np.float32),
    "flags": np.array([True, False]),
}
TENSORS = {
    "token_embd.weight": (TensorType.Q8_0, (5, 64)),
    "odd.weight": (TensorType.F32, (3,)),
    "blk.0.ffn.weight": (TensorType.Q4_K, (2, 3, 256)),
}
KINDS = {"a.u32": "UINT32", "a.i32": "INT32", "a.u64": "UINT64", "a.i64": "INT64", "a.f32": "FLOAT32"}
KINDS |= {"a.f64": "FLOAT64", "a.huge": "FLOAT64", "a.inf": "FLOAT32", "a.bool": "BOOL", "a.u16": "UINT16"}


def data_of(name: str) -> npt.NDArray[np.uint8]:
    kind, shape = TENSORS[name]
    num_bytes = kind.row_bytes(int(np.prod(shape)))
    return np.random.default_rng(len(name)).integers(0, 256, num_bytes, dtype=np.uint8)


@pytest.mark.parametrize("alignment", [32, 8, 4096])
def test_our_reader_reads_it(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, METADATA, TENSORS, data_of, alignment)
    with GGUFFile.open(path) as file:
        assert file.alignment == alignment
        assert set(file.metadata) - {"general.alignment"} == set(METADATA)
        for key, value in METADATA.items():
            np.testing.assert_array_equal(file.metadata[key], value, strict=isinstance(value, np.ndarray))
        assert {name: (info.type, info.shape) for name, info in file.tensors.items()} == TENSORS
        for name in TENSORS:
            np.testing.assert_array_equal(file.data(name), data_of(name))
    assert path.stat().st_size % alignment == 0
    assert list(tmp_path.iterdir()) == [path]


def test_the_library_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path, METADATA, TENSORS, data_of, 64)
    reader = gguf.GGUFReader(path)
    for key, value in METADATA.items():
        np.testing.assert_array_equal(reader.fields[key].contents() if key != "none" else [], value)
    assert {key: reader.fields[key].types[0].name for key in KINDS} == KINDS
    assert [tensor.name for tensor in reader.tensors] == list(TENSORS)
    for tensor in reader.tensors:
        kind, shape = TENSORS[tensor.name]
        assert (tensor.tensor_type.name, tuple(map(int, reversed(tensor.shape)))) == (kind.name, shape)
        np.testing.assert_array_equal(np.ravel(tensor.data).view(np.uint8), data_of(tensor.name))


def test_a_tensor_of_the_wrong_size_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"as it was")
    with pytest.raises(ValueError, match=r"'odd\.weight' has 11 bytes, not 12"):
        write_gguf(path, {}, TENSORS, lambda name: data_of(name)[: 11 if name == "odd.weight" else None])
    with pytest.raises(ValueError, match=r"'t' of shape \[100\] cannot be Q8_0, of blocks of 32"):
        write_gguf(path, {}, {"t": (TensorType.Q8_0, (100,))}, data_of)
    with pytest.raises(ValueError, match=r"'big': .* more than 64 bits"):
        write_gguf(path, {"big": 1 << 64}, {}, data_of)
    assert path.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent/model\.gguf: No such file or directory"):
        write_gguf(tmp_path / "absent" / "model.gguf", {}, {}, data_of)
