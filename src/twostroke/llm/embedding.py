"""Embeddings: a text's vector from its hidden rows. Owns pooling, and what a model's files say about it.

Sources: GGUF keys `{arch}.pooling_type` and `tokenizer.ggml.add_eos_token`; of a Hugging Face directory
`1_Pooling/config.json` and `modules.json` (Sentence Transformers), and what its tokenizer puts after a text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from twostroke.engine.events import Event, Finished, HiddenRows
from twostroke.engine.loop import EngineLoop
from twostroke.engine.request import GenerationParams, Request
from twostroke.errors import InvalidRequestError, ModelFileError, UnsupportedModelError
from twostroke.text.model_files import ModelFiles

Pooling = Literal["last", "mean"]
Vector = npt.NDArray[np.float32]  # (dim,)
POOLINGS: tuple[Pooling, ...] = ("last", "mean")
# By the number in `{arch}.pooling_type`; none is no advice.
_GGUF_POOLINGS = {0: None, 1: "mean", 2: "cls", 3: "last", 4: "rank"}
_HF_POOLINGS = {"pooling_mode_lasttoken": "last", "pooling_mode_mean_tokens": "mean"}


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """How a model's embeddings are made. `end_ids` follow each text; `pooling` may name a kind that is not supported.

    The defaults are for models that say nothing: the last token's row, of length 1.
    """

    pooling: str = "last"
    normalize: bool = True
    end_ids: tuple[int, ...] = ()

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Self:
        """From a GGUF file's metadata. Raises ModelFileError for a pooling that is no number."""
        key = f"{metadata.get('general.architecture')}.pooling_type"
        number = metadata.get(key, 0)
        if type(number) is not int:
            raise ModelFileError(f"metadata '{key}' is not an integer")
        pooling = _GGUF_POOLINGS.get(number, f"number {number}") or "last"
        eos_id = metadata.get("tokenizer.ggml.eos_token_id")
        has_end = metadata.get("tokenizer.ggml.add_eos_token") is True and isinstance(eos_id, int)
        return cls(pooling, end_ids=(eos_id,) if has_end and isinstance(eos_id, int) else ())

    @classmethod
    def from_hf(cls, directory: Path) -> Self:
        """From a directory's files. Raises ModelFileError naming one that is malformed."""
        files = ModelFiles(directory)
        pooling = files.json("1_Pooling/config.json")
        if pooling is None:
            return cls()
        modes = [name for name, value in pooling.items() if name.startswith("pooling_mode") and value is True]
        kinds = [_HF_POOLINGS.get(name, name.removeprefix("pooling_mode_")) for name in modes]
        modules = files.text("modules.json")
        normalize = modules is None or "Normalize" in modules
        return cls("+".join(kinds) or "last", normalize, _template_end(files))

    def choose(self, pooling: str | None) -> Pooling:
        """The pooling asked for, else the model's. Raises InvalidRequestError for one that does not exist,
        UnsupportedModelError for a model's that is not supported."""
        for known in POOLINGS:
            if known == (pooling or self.pooling):
                return known
        known_names = " and ".join(POOLINGS)
        if pooling is not None:
            raise InvalidRequestError(f"pooling must be one of {known_names}, not {pooling!r}")
        raise UnsupportedModelError(f"the model's pooling {self.pooling!r} is not supported; {known_names} are")


class PooledRows:
    """A text's hidden rows becoming its vector, as they come: row after row, so that chunks do not matter."""

    def __init__(self, ids: Sequence[int], pooling: Pooling) -> None:
        self._num_rows = len(ids) if pooling == "mean" else 1
        self._ids = ids
        self._sum: npt.NDArray[np.float64] | None = None

    def request(self, label: str) -> Request:
        """What to submit for the rows that are needed."""
        return Request(label, self._ids, GenerationParams(max_tokens=0, num_hidden=self._num_rows))

    def take(self, event: Event) -> None:
        """Adds the event's rows, if it has any."""
        if isinstance(event, HiddenRows):
            for row in event.rows:
                self._sum = row.astype(np.float64) if self._sum is None else self._sum + row

    def vector(self, normalize: bool) -> Vector:
        """(dim,), once all rows have come; of length 1 with `normalize`."""
        if self._sum is None:
            raise RuntimeError("the embedding is not complete")
        mean = self._sum / self._num_rows
        length = float(np.sqrt(np.square(mean).sum()))
        return np.asarray(mean / length if normalize and length > 0 else mean, np.float32)


class Embedding:
    """One text on its way to a vector: takes its request's events. Belongs to one thread."""

    def __init__(self, loop: EngineLoop, label: str, ids: Sequence[int], pooling: Pooling) -> None:
        self._rows = PooledRows(ids, pooling)
        self._stream = loop.submit(self._rows.request(label))
        self.is_over = False

    @property
    def has_event(self) -> bool:
        """`advance` would not have to wait."""
        return self._stream.has_event

    def advance(self) -> None:
        """Takes the next event, waiting for it. Raises the step's error where it failed."""
        event = next(self._stream)
        self._rows.take(event)
        self.is_over = isinstance(event, Finished)

    def close(self) -> None:
        """Ends the request, if it has not ended."""
        self._stream.close()

    def vector(self, normalize: bool) -> Vector:
        """(dim,), once it is over; of length 1 with `normalize`."""
        return self._rows.vector(normalize)


def _template_end(files: ModelFiles) -> tuple[int, ...]:
    """Ids that the tokenizer's post-processor puts after a text."""
    processor = (files.json("tokenizer.json") or {}).get("post_processor") or {}
    try:
        for part in processor.get("processors") or [processor]:
            if part.get("type") == "TemplateProcessing":
                after = takewhile(lambda item: "SpecialToken" in item, reversed(part["single"]))
                names = [item["SpecialToken"]["id"] for item in after][::-1]
                return tuple(int(token_id) for name in names for token_id in part["special_tokens"][name]["ids"])
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ModelFileError("tokenizer.json: post_processor is malformed") from None
    return ()
