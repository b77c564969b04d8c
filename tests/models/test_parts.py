"""Parts of stored tensors: views where they are one stretch, exact bytes of every type, misfits by name."""

from pathlib import Path

import gguf
import numpy as np
import pytest

from twostroke.errors import ModelFileError, UnsupportedModelError
from twostroke.models.part import Part
from twostroke.models.parts import PartSource
from twostroke.weights.dequantize import dequantize
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

ROWS, COLS = 12, 64


@pytest.fixture(params=["F32", "F16", "Q8_0", "Q4_0"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> GGUFFile:
    """A file with a matrix "m" (12, 64) of a type, a vector "v" (12,), and three matrices "e" (3, 4, 64)."""
    kind = TensorType[request.param]
    rng = np.random.default_rng(0)
    arrays = {"m": rng.standard_normal((ROWS, COLS)), "e": rng.standard_normal((3, 4, COLS))}
    packed = {
        name: gguf.quants.quantize(array.astype(np.float32), gguf.GGMLQuantizationType(int(kind)))
        for name, array in arrays.items()
    }
    data = {name: np.ascontiguousarray(array).reshape(-1).view(np.uint8) for name, array in packed.items()}
    data["v"] = np.arange(ROWS, dtype=np.float32).view(np.uint8)
    tensors = {name: (kind, array.shape) for name, array in arrays.items()} | {"v": (TensorType.F32, (ROWS,))}
    path = tmp_path / "model.gguf"
    write_gguf(path, {"general.architecture": "llama"}, tensors, data.__getitem__)
    return GGUFFile.open(path)


def values(source: GGUFFile | PartSource, name: str) -> np.ndarray:
    info = source.info(name)
    assert source.data(name).nbytes == info.num_bytes
    return dequantize(source.data(name), info.type, info.shape)


def test_parts_are_the_rows_they_name(stored: GGUFFile) -> None:
    parts = {
        "rows 3 to 8": Part("m", (5, COLS), (ROWS,), (slice(3, 8),)),
        "second of each head": Part("m", (4, COLS), (2, 3, 2), (slice(None), 1)),
        "odd rows of each expert": Part("e", (3, 2, COLS), (3, 2, 2), (slice(None), slice(None), 1)),
        "elements": Part("v", (4,), (2, 3, 2), (slice(None), 1), vectors=True),
        "the vector as a row": Part("v", (1, ROWS), (1,)),
    }
    with PartSource(stored, parts) as source:
        m, e = values(stored, "m"), values(stored, "e")
        np.testing.assert_array_equal(values(source, "rows 3 to 8"), m[3:8])
        np.testing.assert_array_equal(values(source, "second of each head"), m[[2, 3, 8, 9]])
        np.testing.assert_array_equal(values(source, "odd rows of each expert"), e[:, 1::2])
        np.testing.assert_array_equal(values(source, "elements"), [2, 3, 8, 9])
        np.testing.assert_array_equal(values(source, "the vector as a row"), np.arange(ROWS)[None])
        assert np.shares_memory(source.data("rows 3 to 8"), stored.data("m"))  # not copied
        assert set(source.names) == set(parts)
        source.release("rows 3 to 8")
        np.testing.assert_array_equal(values(source, "rows 3 to 8"), m[3:8])
        assert source.input_orders == {}


def test_whole_tensors_stay_beside_parts(stored: GGUFFile) -> None:
    with PartSource(stored, {"head": Part("m", (1, COLS), (ROWS,), (slice(0, 1),))}) as source:
        assert set(source.names) == {"head", "v", "e"}
        np.testing.assert_array_equal(values(source, "v"), np.arange(ROWS))
        assert (source.path, source.num_bytes) == (stored.path, stored.num_bytes)


def test_transposing_needs_single_values(stored: GGUFFile) -> None:
    part = {"t": Part("e", (3, COLS, 4), (3, COLS), transposed=True)}
    if stored.info("e").type.block_size > 1:
        with pytest.raises(UnsupportedModelError, match=r"'e' of type Q\d_0 cannot be transposed"):
            PartSource(stored, part)
    else:
        np.testing.assert_array_equal(values(PartSource(stored, part), "t"), values(stored, "e").swapaxes(1, 2))
    stored.close()


@pytest.mark.parametrize(
    "part",
    [
        Part("m", (5, COLS), (ROWS + 1,), (slice(0, 5),)),
        Part("m", (6, COLS), (ROWS,), (slice(0, 5),)),
        Part("m", (5, COLS - 32), (ROWS,), (slice(0, 5),)),
        Part("v", (5,), (ROWS + 1,), (slice(0, 5),), vectors=True),
        Part("nothing", (5, COLS), (ROWS,), (slice(0, 5),)),
    ],
    ids=["more rows stored", "more rows asked for", "other columns", "a longer vector", "no such tensor"],
)
def test_misfits_are_named(stored: GGUFFile, part: Part) -> None:
    with pytest.raises(ModelFileError, match=f"tensor '{part.tensor}'"):
        PartSource(stored, {"part": part})
    stored.close()
