"""Whole tiny models with damaged metadata and shapes: what is accepted is run by both executors."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.fuzz.bounds import count_accepted
from tests.fuzz.mutate import BOUNDARIES
from tests.native.in_memory import chunk
from tests.native.in_memory import run as native_run
from tests.tiny_families import KEYS, write_tiny_family

from twostroke.models.load import Model, dequantized, load_model
from twostroke.native.executor import ExecutorConfig, NativeExecutor
from twostroke.program.reference import ReferenceExecutor
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.gguf import GGUFFile
from twostroke.weights.gguf_writer import write_gguf
from twostroke.weights.tensor_types import TensorType

SCALARS: list[Any] = [*BOUNDARIES, -1, -(1 << 63), 0.0, -1.0, 1e30, 1e-45, float("nan"), float("inf"), True, "", "x"]


def test_damaged_models(tmp_path: Path, num_mutants: int) -> None:
    """Of every family that GGUF files are read of, in turn."""
    written = [write_tiny_family(tmp_path / f"{family}.gguf", family, vocab=300) for family in KEYS]
    files = [GGUFFile.open(path) for path in written]
    path = tmp_path / "mutant.gguf"

    def attempt(seed: int) -> int:
        rng, sound = np.random.default_rng(seed), files[seed % len(files)]
        metadata: dict[str, Any] = dict(sound.metadata)
        tensors = {name: (info.type, info.shape) for name, info in sound.tensors.items()}
        for _ in range(1 + int(rng.integers(2))):
            if rng.random() < 0.8:
                key = list(metadata)[rng.integers(len(metadata))]
                damage_key(metadata, key, rng)
            else:
                damage_shape(tensors, rng)
        write_gguf(path, metadata, tensors, lambda name: resized(sound.data(name), *tensors[name]))
        run(path)
        return path.stat().st_size

    accepted = count_accepted(range(num_mutants), attempt)
    assert 0.05 * num_mutants < accepted < 0.8 * num_mutants


def damage_key(metadata: dict[str, Any], key: str, rng: np.random.Generator) -> None:
    """Drop a key, or change its value, or one item of it."""
    value, way = metadata[key], rng.random()
    if way < 0.15:
        del metadata[key]
    elif way < 0.4 or not isinstance(value, list | np.ndarray) or not len(value):
        metadata[key] = SCALARS[rng.integers(len(SCALARS))]
    elif way < 0.6:
        metadata[key] = value[: int(rng.integers(len(value)))]
    elif isinstance(value, list):
        changed = list(value)
        at, words = int(rng.integers(len(value))), ["", " ", "x", "x" * 300, value[0], "a b c", "\0", "\U0010ffff"]
        changed[at] = words[rng.integers(len(words))]
        metadata[key] = changed
    else:
        changed = value.copy()
        changed[rng.integers(len(value))] = rng.choice([-1, 0, 1, 7, 100, np.iinfo(np.int32).max])
        metadata[key] = changed


def damage_shape(tensors: dict[str, tuple[TensorType, tuple[int, ...]]], rng: np.random.Generator) -> None:
    """Rename, drop, transpose, cut or widen a tensor."""
    name = list(tensors)[rng.integers(len(tensors))]
    kind, shape = tensors.pop(name)
    way = int(rng.integers(5))
    if way == 0:
        tensors[name + "x"] = kind, shape
    elif way == 1:
        tensors[name] = kind, shape[::-1]
    elif way == 2:
        tensors[name] = kind, (*shape[:-1], shape[-1] + int(rng.integers(1, 9)))
    elif way == 3:
        tensors[name] = kind, (1, *shape)


def resized(data: npt.NDArray[np.uint8], kind: TensorType, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    return np.resize(data, kind.row_bytes(int(np.prod(shape))))


def run(path: Path) -> None:
    """From text to logits and a token."""
    model = load_model(path)
    try:
        forward(model, Tokenizer.from_gguf(model.metadata).encode("a text, <|im_start|>")[:8])
    finally:
        model.source.close()


def forward(model: Model, ids: list[int]) -> None:
    """To logits by the reference executor, and to a token by the native one: none only where logits are no numbers, or
    where weights are so large that sums which take another order overflow in one of the two alone."""
    with np.errstate(all="ignore"):
        executor = ReferenceExecutor(model.program, dequantized(model.source))
        logits = executor.forward(executor.new_state(), ids, 1)["logits"]
    assert logits.shape == (1, model.config.vocab_size)
    groups = len(model.program.cache_groups)
    native = NativeExecutor(model.program, model.source, ExecutorConfig(1, (4,) * groups, 64, max_step_tokens=32))
    result, _ = native_run(native, chunk(ids, num_outputs=1))
    if 0 <= result.token_ids[0] < model.config.vocab_size or not np.isfinite(logits).all():
        return
    largest = max(np.abs(dequantized(model.source)(name)).max() for name in model.program.weights)
    assert largest > 1e4, f"token {result.token_ids[0]} although no weight is above {largest}"
