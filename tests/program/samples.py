"""Small programs and random weights for the tests of the program floor. Owns no checks."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from twostroke.models.config import ModelConfig
from twostroke.program.program import Program

Weights = Callable[[str], npt.NDArray[np.float64]]

TINY = ModelConfig(
    architecture="llama",
    name="tiny",
    num_layers=2,
    dim=24,
    num_heads=6,
    num_kv_heads=2,
    head_dim=8,
    ffn_dim=40,
    vocab_size=50,
    context_length=64,
    norm_eps=1e-5,
    rope_dim=8,
)
HAND = ModelConfig(
    architecture="llama",
    name="small enough to count by hand",
    num_layers=1,
    dim=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    ffn_dim=16,
    vocab_size=10,
    context_length=64,
    norm_eps=1e-5,
    rope_dim=4,
)


def random_weights(program: Program, seed: int = 0) -> Weights:
    """Weights in float64 that keep activations near 1; each depends on its name's place and the seed only."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for weight in program.weights.values():
        values = rng.standard_normal(weight.shape)
        is_scale = weight.name.endswith("norm.weight") or weight.name.startswith("rope")
        arrays[weight.name] = 1 + 0.1 * values if is_scale else values * weight.shape[-1] ** -0.5
    return arrays.__getitem__


def random_ids(count: int, vocab_size: int = TINY.vocab_size, seed: int = 0) -> npt.NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, vocab_size, count)
