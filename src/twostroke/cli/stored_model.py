"""A model's files opened for looking at: a GGUF file or a directory, with metadata and tensors as they are stored.

Owns what the two formats have in common; what a model means is `Inspection`'s.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from twostroke.errors import ModelFileError
from twostroke.models.hf_text import text_config
from twostroke.text.chat import ChatTemplate
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.safetensors_header import RawTensor
from twostroke.weights.source import TensorInfo


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor in a file: the type in the format's own spelling, shape in NumPy order, offset and size in bytes."""

    name: str
    type: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int
    num_values: int

    @classmethod
    def of(cls, info: TensorInfo) -> Self:
        return cls(info.name, info.type.name, info.shape, info.offset, info.num_bytes, info.num_values)

    @classmethod
    def of_raw(cls, raw: RawTensor) -> Self:
        count = 1
        for dim in raw.shape:
            count *= dim
        return cls(raw.name, raw.dtype, raw.shape, raw.offset, raw.num_bytes, count)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """`metadata` is a GGUF file's, or a directory's config.json; `num_bytes` the size of its weight files."""

    path: Path
    num_bytes: int
    metadata: Mapping[str, Any]
    tensors: tuple[StoredTensor, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads headers only. Raises ModelFileError and UnsupportedModelError where they cannot be read."""
        if path.is_dir():
            with closing(Checkpoint.open(path)) as checkpoint:
                raw = tuple(map(StoredTensor.of_raw, checkpoint.tensors.values()))
                return cls(path, checkpoint.num_bytes, checkpoint.config, raw)
        with closing(GGUFFile.open(path)) as file:
            tensors = tuple(map(StoredTensor.of, file.tensors.values()))
            return cls(path, file.num_bytes, file.metadata, tensors)

    @property
    def architecture(self) -> str | None:
        """`general.architecture`, or config.json's `model_type`."""
        value = self.metadata.get("model_type" if self.path.is_dir() else "general.architecture")
        return value if isinstance(value, str) else None

    @property
    def context_length(self) -> int | None:
        """The longest context that the files state, in tokens."""
        key = "max_position_embeddings" if self.path.is_dir() else f"{self.architecture}.context_length"
        try:
            value = text_config(self.metadata).get(key)
        except ModelFileError:
            return None
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def tokenizer(self) -> Tokenizer:
        """Raises ModelFileError or UnsupportedModelError where there is none that can be used."""
        return Tokenizer.from_hf(self.path) if self.path.is_dir() else Tokenizer.from_gguf(self.metadata)

    def template(self) -> ChatTemplate:
        """Raises ChatTemplateError where there is none."""
        return ChatTemplate.from_hf(self.path) if self.path.is_dir() else ChatTemplate.from_gguf(self.metadata)
