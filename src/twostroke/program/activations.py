"""The functions inside ops, in NumPy: activations, gates, caps. Owns no op (`reference_ops`)."""

from collections.abc import Callable, Mapping
from math import erf
from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.program.elementwise import Activation, GatedActivation

Array = npt.NDArray[np.floating[Any]]

_OAI_LIMIT, _OAI_SLOPE = 7.0, 1.702


def sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):  # exp overflows to infinity where sigmoid is zero
        result: Array = 1 / (1 + np.exp(-x))
    return result


def silu(x: Array) -> Array:
    with np.errstate(over="ignore"):
        result: Array = x / (1 + np.exp(-x))
    return result


def gelu(x: Array) -> Array:
    """x times the normal distribution's cumulative function."""
    result: Array = x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2.0))) / 2
    return result.astype(x.dtype)


def gelu_tanh(x: Array) -> Array:
    inner = x.dtype.type(np.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
    result: Array = x / 2 * (1 + np.tanh(inner))
    return result


def squared_relu(x: Array) -> Array:
    result: Array = np.maximum(x, 0) ** 2
    return result


def swiglu_oai(gate: Array, up: Array) -> Array:
    gate, up = np.minimum(gate, _OAI_LIMIT), np.clip(up, -_OAI_LIMIT, _OAI_LIMIT)
    return gate * sigmoid(gate * gate.dtype.type(_OAI_SLOPE)) * (up + 1)


def soft_capped(x: Array, cap: float) -> Array:
    of_type = x.dtype.type(cap)
    capped: Array = of_type * np.tanh(x / of_type)
    return capped


ACTIVATIONS: Mapping[Activation, Callable[[Array], Array]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "relu2": squared_relu,
}
GATED: Mapping[GatedActivation, Callable[[Array, Array], Array]] = {
    "silu": lambda gate, up: silu(gate) * up,
    "gelu": lambda gate, up: gelu(gate) * up,
    "gelu_tanh": lambda gate, up: gelu_tanh(gate) * up,
    "swiglu_oai": swiglu_oai,
}
