"""What sampling means, in NumPy: the distribution an output is drawn from. Owns no checks."""

import numpy as np
import numpy.typing as npt

from twostroke.native.batch import Sampling

Doubles = npt.NDArray[np.float64]


def adjusted(logits: Doubles, sampling: Sampling, history: npt.ArrayLike = (), num_prompt: int = 0) -> Doubles:
    """Logits after the repetition penalty (all tokens so far), presence and frequency (generated ones), and bias."""
    history = np.asarray(history, np.int64)
    out = np.array(logits, np.float64)
    for token in set(history.tolist()):
        penalty = sampling.repetition_penalty
        out[token] = out[token] / penalty if out[token] > 0 else out[token] * penalty
        count = int((history[num_prompt:] == token).sum())
        out[token] -= sampling.frequency_penalty * count + sampling.presence_penalty * (count > 0)
    for token, bias in sampling.logit_bias:
        out[token] += bias
    return out


def distribution(logits: Doubles, sampling: Sampling) -> Doubles:
    """Probabilities after temperature, top-k, top-p over what that left, and min-p; of equal tokens the lower first."""
    order = np.lexsort((np.arange(len(logits)), -logits))
    if sampling.top_k:
        order = order[: sampling.top_k]
    weights = np.exp((logits[order] - logits.max()) / sampling.temperature)
    before = np.concatenate(([0], np.cumsum(weights)[:-1]))
    kept = (before < sampling.top_p * weights.sum()) & (weights >= sampling.min_p)
    kept[0] = True
    out = np.zeros(len(logits))
    out[order[kept]] = weights[kept] / weights[kept].sum()
    return out


def log_probabilities(logits: npt.ArrayLike) -> Doubles:
    """Natural logarithms of the softmax over the last axis."""
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    out: Doubles = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out


def is_drawn_from(tokens: npt.ArrayLike, probabilities: Doubles) -> bool:
    """Chi-square over the tokens expected 5 times or more, the others taken together; 5 deviations are allowed."""
    counts = np.bincount(np.asarray(tokens), minlength=len(probabilities))
    if (counts[probabilities == 0] > 0).any():
        return False
    expected = probabilities * counts.sum()
    often = expected >= 5
    expected = np.append(expected[often], expected[~often].sum())
    counts = np.append(counts[often], counts[~often].sum())
    present = expected > 0
    statistic = ((counts - expected)[present] ** 2 / expected[present]).sum()
    freedom = max(1, present.sum() - 1)
    return bool(statistic < freedom + 5 * np.sqrt(2 * freedom) + 5)
