"""How rows choose their experts, in NumPy. Owns the choice and the weights; the experts are an op's (`experts`)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from twostroke.program.activations import Array, sigmoid
from twostroke.program.experts import Routed

IdArray = npt.NDArray[np.integer[Any]]


def route(logits: Array, routed: Routed, choice_bias: Array | None = None) -> tuple[IdArray, Array]:
    """Ids and weights of each row's experts, (num_rows, top_k) each, best first; of equal ones, the lower id."""
    if routed.num_groups == 1 and choice_bias is None:
        keys = logits  # of which scores are a growing function
    else:
        scores = sigmoid(logits) if routed.kind == "sigmoid_topk" else _softmax(logits)
        keys = _in_best_groups(scores if choice_bias is None else scores + choice_bias, routed, choice_bias is not None)
    ids = np.argsort(-keys, axis=1, kind="stable")[:, : routed.top_k]
    chosen = np.take_along_axis(logits, ids, axis=1)
    return ids, _weights(logits, chosen, routed) * logits.dtype.type(routed.scale)


def _weights(logits: Array, chosen: Array, routed: Routed) -> Array:
    if routed.kind == "sigmoid_topk":
        scores = sigmoid(chosen)
        return scores / scores.sum(axis=1, keepdims=True) if routed.renormalize else scores
    if routed.kind == "topk_softmax" or routed.renormalize:  # a share of the chosen is the same either way
        return _softmax(chosen)
    top = logits.max(axis=1, keepdims=True)
    shares: Array = np.exp(chosen - top) / np.exp(logits - top).sum(axis=1, keepdims=True)
    return shares


def _softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Array = shifted / shifted.sum(axis=1, keepdims=True)
    return shares


def _in_best_groups(keys: Array, routed: Routed, by_two: bool) -> Array:
    """The keys, and minus infinity for experts outside the row's best groups."""
    if routed.num_groups == 1:
        return keys
    groups = keys.reshape(len(keys), routed.num_groups, -1)
    best = np.sort(groups, axis=2)[:, :, -2:].sum(axis=2) if by_two else groups.max(axis=2)
    order = np.argsort(-best, axis=1, kind="stable")[:, : routed.top_groups]
    is_in = np.zeros(best.shape, bool)
    np.put_along_axis(is_in, order, True, axis=1)
    kept: Array = np.where(is_in[:, :, None], groups, -np.inf).reshape(keys.shape)
    return kept
