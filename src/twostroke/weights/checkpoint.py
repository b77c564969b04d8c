"""A Hugging Face model directory: its configuration and the tensors of all its safetensors files, as they are.

Owns which files belong and where each tensor is. What a tensor means to a model (its canonical name, its quantisation)
is in `checkpoint_weights`.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from twostroke.errors import ModelFileError, ModelNotFoundError, in_words
from twostroke.weights.directory import member
from twostroke.weights.mapped_file import MappedFile
from twostroke.weights.model_json import JSONObject, read_object, text_limit
from twostroke.weights.safetensors_header import DTYPES, RawTensor, read_header

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


class Checkpoint:
    """An open model directory. A context manager. Make one with `Checkpoint.open`.

    `config` is `config.json`; `tensors` are the raw ones by name, in the order of files and of bytes; `num_bytes` is
    the size of the weight files together.
    """

    def __init__(self, path: Path, config: JSONObject, files: Mapping[str, MappedFile], opened: ExitStack) -> None:
        self.path = path
        self.config = config
        self.tensors: dict[str, RawTensor] = {}
        self.num_bytes = sum(file.num_bytes for file in files.values())
        self._files: dict[str, MappedFile] = {}  # of each tensor, the file it is in
        for file in files.values():
            for name, tensor in _read_header(file).items():
                if name in self.tensors:
                    raise ModelFileError(f"{file.path}: tensor {name!r} is also in {self._files[name].path.name}")
                self.tensors[name], self._files[name] = tensor, file
        self._opened = opened

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a directory with `config.json` and `model.safetensors` or shards with an index.

        Every header is checked. Raises ModelNotFoundError when there is no such directory, ModelFileError when a file
        is missing, damaged, cut short or leads out of the directory, UnsupportedModelError for an unknown dtype.
        """
        path = Path(path)
        if not path.is_dir():
            raise ModelNotFoundError(f"{path}: no such directory")
        config = read_object(member(path, CONFIG, "every model"))
        weight_map = None if (path / SINGLE).exists() else _weight_map(path)
        names = [SINGLE] if weight_map is None else sorted(set(weight_map.values()))
        with ExitStack() as opened:
            files: dict[str, MappedFile] = {}
            for name in names:
                files[name] = MappedFile(member(path, name, INDEX if weight_map else "every model"))
                opened.callback(files[name].close)
            checkpoint = cls(path, config, files, opened)
            for name, file in (weight_map or {}).items():
                if name not in checkpoint.tensors or checkpoint._files[name] is not files[file]:
                    raise ModelFileError(f"{path / file}: tensor {name[:200]!r} is missing, which {INDEX} puts there")
            checkpoint._opened = opened.pop_all()
        return checkpoint

    def raw(self, name: str) -> RawTensor:
        """Dtype, shape and place of a tensor. Raises ModelFileError when there is none of that name."""
        try:
            return self.tensors[name]
        except KeyError:
            raise ModelFileError(f"{self.path}: tensor {name!r} is missing") from None

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        """The tensor's bytes, (num_bytes,) uint8: a read-only view of the mapping."""
        tensor = self.raw(name)
        return self._files[name].view(tensor.offset, tensor.num_bytes)

    def array(self, name: str) -> npt.NDArray[Any]:
        """The tensor in its shape, a read-only view; BF16 comes as its 16 bits (uint16), FP8 as its byte."""
        tensor = self.raw(name)
        return self.data(name).view(DTYPES[tensor.dtype]).reshape(tensor.shape)

    def release(self, name: str) -> None:
        """Give the tensor's pages back to the system; its views still work and read them again."""
        tensor = self.raw(name)
        self._files[name].release(tensor.offset, tensor.num_bytes)

    def close(self) -> None:
        """Unmap the files. Where views are still held, the last of them unmaps its file."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _read_header(file: MappedFile) -> dict[str, RawTensor]:
    """The tensors of one file, once our check and the format's own library both accept it."""
    from safetensors import SafetensorError, safe_open

    tensors = read_header(file.cursor())
    try:
        with safe_open(str(file.path), framework="numpy") as opened:
            names = set(opened.keys())
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{file.path}: {in_words(error)}") from None
    if names != tensors.keys():
        raise ModelFileError(f"{file.path}: the names of its tensors are ambiguous")
    return tensors


def _weight_map(path: Path) -> dict[str, str]:
    """Of each tensor, the file that the index puts it in."""
    if not (path / INDEX).exists() and not (path / INDEX).is_symlink():
        raise ModelFileError(f"{path}: neither {SINGLE} nor {INDEX} is there")
    size = sum(file.stat().st_size for file in path.glob("*.safetensors") if file.is_file())
    weight_map = read_object(member(path, INDEX, "sharded models"), text_limit(size)).get("weight_map")
    is_map = isinstance(weight_map, dict) and all(isinstance(file, str) for file in weight_map.values())
    if not is_map or not weight_map:
        raise ModelFileError(f"{path / INDEX}: 'weight_map' does not give a file for each tensor")
    return dict(weight_map)
