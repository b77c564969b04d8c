"""The GGUF reader on sound files: every value type, every tensor, against the bytes and the `gguf` library."""

import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.weights.gguf_writer import ARRAY, STRING, GGUFWriter, sound_file

from twostroke.errors import ModelFileError, ModelNotFoundError
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.source import WeightSource
from twostroke.weights.tensor_types import TensorType


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "sound.gguf"
    path.write_bytes(sound_file()[0])
    return path


def test_every_metadata_type(sound: Path) -> None:
    with GGUFFile.open(sound) as file:
        metadata = file.metadata
    assert (file.version, file.alignment, file.num_bytes) == (3, 64, sound.stat().st_size)
    expected = {0: 255, 1: -128, 2: 65535, 3: -2, 4: 7, 5: -7, 6: 0.5, 7: True, 10: 1 << 60, 11: -(1 << 60), 12: 1e300}
    assert {kind: metadata[f"number.{kind}"] for kind in expected} == expected
    assert metadata["number.7"] is True
    assert metadata["words"] == ["", "a", "Ġthe", "日本", "x" * 300]
    assert metadata["zeros"] == ["a\0b", "\0", "é"]
    assert metadata["none"] == []
    np.testing.assert_array_equal(metadata["floats"], np.array([0.25, -1.0], np.float32), strict=True)
    np.testing.assert_array_equal(metadata["flags"], np.array([False, True, True]), strict=True)


def test_tensors_are_views_of_their_bytes(sound: Path) -> None:
    content = sound.read_bytes()
    with GGUFFile.open(sound) as file:
        source: WeightSource = file
        assert list(source.names) == list(file.tensors)
        info = source.info("blk.0.attn_q.weight")
        assert (info.shape, info.type, info.num_bytes, info.num_values) == ((5, 32), TensorType.Q4_1, 100, 160)
        for name, tensor in file.tensors.items():
            data = source.data(name)
            assert data.tobytes() == content[tensor.offset : tensor.offset + tensor.num_bytes]
            assert not data.flags.writeable and not data.flags.owndata
        with pytest.raises(ModelFileError, match=r"sound\.gguf: tensor 'blk\.9' is missing"):
            source.info("blk.9")
    assert data.tobytes() == content[tensor.offset : tensor.offset + tensor.num_bytes]  # views outlive `close`


def test_many_strings_of_all_lengths(tmp_path: Path) -> None:
    """More strings than are decoded at once, with multi-byte characters, empty strings and separators among them."""
    rng = np.random.default_rng(3)
    alphabet = np.array(list("ab Ġé日😀"))
    words = ["".join(rng.choice(alphabet, rng.integers(0, 12))) for _ in range(10_000)]
    words[9_000] = "a\0\0\0\0\0\0\0\0b"
    writer = GGUFWriter()
    writer.start(0, 1)
    writer.key("words", ARRAY, words, STRING)
    path = tmp_path / "words.gguf"
    path.write_bytes(writer.body(0))
    assert GGUFFile.open(path).metadata["words"] == words


def test_smollm2_equals_the_gguf_library(smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "memmap", lambda path, mode: np.fromfile(path, np.uint8))  # whose every slice is slow
    reader = gguf.GGUFReader(smollm2_path)
    with GGUFFile.open(smollm2_path) as file:
        assert {name for name in reader.fields if not name.startswith("GGUF.")} == set(file.metadata)
        for name in ("llama.rope.freq_base", "tokenizer.ggml.tokens", "tokenizer.ggml.merges", "general.languages"):
            assert file.metadata[name] == reader.fields[name].contents()
        assert list(file.metadata["tokenizer.ggml.token_type"]) == reader.fields["tokenizer.ggml.token_type"].contents()
        assert len(reader.tensors) == len(file.tensors)
        for theirs in reader.tensors:
            ours = file.info(theirs.name)
            expected = (tuple(map(int, reversed(theirs.shape))), int(theirs.tensor_type), int(theirs.data_offset))
            assert (ours.shape, int(ours.type), ours.offset) == expected
            assert ours.num_bytes == theirs.n_bytes


def resident_bytes(path: Path) -> int:
    """Bytes of the mapping of `path` that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    total = 0
    for line in lines:
        if line.endswith(str(path)):
            total += 1024 * int(next(text for text in lines if text.startswith("Rss:")).split()[1])
    return total


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux's /proc to see resident pages")
def test_release_gives_pages_back_and_data_still_reads(tmp_path: Path) -> None:
    writer = GGUFWriter()
    writer.start(2, 0)
    writer.tensor("first", (1 << 20,), 0, 0)
    writer.tensor("second", (1 << 20,), 0, 4 << 20)
    path = tmp_path / "big.gguf"
    path.write_bytes(writer.body(8 << 20))
    with GGUFFile.open(path) as file:
        views = {name: file.data(name) for name in file.names}
        sums = {name: int(view.sum(dtype=np.int64)) for name, view in views.items()}
        assert resident_bytes(path) >= 8 << 20
        file.release("first")
        assert 4 << 20 <= resident_bytes(path) <= (4 << 20) + (64 << 10)
        assert {name: int(view.sum(dtype=np.int64)) for name, view in views.items()} == sums


@pytest.mark.parametrize(("name", "message"), [("empty.gguf", "the file is empty"), ("folder", "not a regular file")])
def test_what_is_no_file_with_bytes(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelFileError, match=f"{name}: {message}"):
        GGUFFile.open(tmp_path / name)
    with pytest.raises(ModelNotFoundError, match=r"absent\.gguf: no such file"):
        GGUFFile.open(tmp_path / "absent.gguf")


MAP = """
import resource, sys
import os
import subprocess
import sys
from pathlib import Path
from twostroke.errors import NotEnoughMemoryError
from twostroke.weights.mapped_file import MappedFile
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    MappedFile(Path(sys.argv[1]))
except NotEnoughMemoryError as error:
    print(error)
"""


def test_a_file_too_large_for_the_address_space_is_said_in_numbers(tmp_path: Path) -> None:
    path = tmp_path / "large.gguf"
    path.touch()
    os.truncate(path, 8 << 30)  # sparse
    done = subprocess.run([sys.executable, "-c", MAP, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{path}: not enough memory: the system refuses to map 8,589,934,592 bytes")
