"""Fitting the planner's constants on cases, and scoring it. Owns the regression; the formula is the planner's own.

Predicted time is a sum of nominal seconds times constants, so that the constants of a class are a least-squares
problem. What is minimised is the relative error's absolute value (by reweighting), for a row of a slow machine must
not outweigh one of a fast machine. No share of a roof may exceed 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from planning_rows import Case

from twostroke.models.registry import build_program
from twostroke.program.cost import ChunkShape, CostModel, Storage
from twostroke.program.passes import fuse
from twostroke.program.program import Program
from twostroke.roofline.device import Device
from twostroke.roofline.efficiency import Arithmetic
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.step_time import nominal_seconds
from twostroke.roofline.target import target_of
from twostroke.roofline.work import RowKinds, Work, prefill_steps, step_work

Array = npt.NDArray[np.float64]
WEIGHT_CLASSES = ("float", "k_quant", "quantised", "mixture")
# Constants of a class, in order: those of Seconds, with generated and prompt rows by class of weights.
NAMES = (
    *("step_s", "layer_s", "weights", "experts", "kv"),
    *(f"generated.{name}" for name in WEIGHT_CLASSES),
    *(f"prompt.{name}" for name in WEIGHT_CLASSES),
    *("attention", "prompt_attention"),
)
# Factors are at least these: no share of a bandwidth above 0.95 is seen on real memory, and none of a peak above 1.
LEAST = np.array([0.0, 0.0, 1 / 0.95, 1 / 0.95, 1 / 0.95, *[1.0] * 10])
# What is assumed where the data do not say.
USUAL = np.array([1e-4, 1e-5, 1.25, 1.4, 1.7, 2.0, 2.0, 2.0, 2.0, 2.0, 2.5, 2.5, 5.0, 4.0, 4.0])
PRIOR = 0.0003  # how many rows what is usual counts for
_GEN_POINTS = 4


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine runs: rows of a prefill step, and how many generated rows have kernels of their own."""

    chunk_tokens: int
    few_rows: float
    prompt_on: Mapping[str, Arithmetic]


_CUDA: Mapping[str, Arithmetic] = {"float": "16bit_sums", "k_quant": "8bit", "quantised": "8bit", "mixture": "8bit"}
_WIDE: Mapping[str, Arithmetic] = dict.fromkeys(WEIGHT_CLASSES, "16bit")
ENGINES: Mapping[str, Settings] = {
    "llama.cpp": Settings(512, 8, _CUDA),
    "ollama": Settings(512, 8, _CUDA),
    "vllm": Settings(2048, 0, _WIDE),
    "tensorrt-llm": Settings(8192, 0, _WIDE),
    "deepspeed": Settings(2048, 0, _WIDE),
}


def settings_of(case: Case) -> Settings:
    """How a case's engine runs; an engine with few rows counts as llama.cpp."""
    return ENGINES.get(case.engine, ENGINES["llama.cpp"])


class Programs:
    """Programs and their cost, each built once."""

    def __init__(self) -> None:
        self._programs: dict[str, tuple[Program, int]] = {}
        self._costs: dict[tuple[str, float, float], CostModel] = {}

    def cost(self, case: Case) -> tuple[CostModel, int]:
        """The cost of a case's model at its bits, and the number of layers."""
        name = case.model.name
        if name not in self._programs:
            config = case.model.config()
            self._programs[name] = (fuse(build_program(config)), config.num_layers)
        program, layers = self._programs[name]
        key = (name, case.bits, case.kv_bits)
        if key not in self._costs:
            bits = {w.name: case.bits if len(w.shape) > 1 else 32.0 for w in program.weights.values()}
            self._costs[key] = CostModel(program, Storage(bits, case.kv_bits))
        return self._costs[key], layers


def case_work(case: Case, programs: Programs) -> Work:
    """All the work that a case's seconds were spent on."""
    cost, layers = programs.cost(case)
    settings = settings_of(case)
    kinds = RowKinds(settings.few_rows)
    total = Work()
    if case.phase != "decode" and case.prompt:
        chunk = case.chunk or settings.chunk_tokens
        for shapes, count in prefill_steps(case.prompt, case.batch, chunk, case.depth).items():
            # A prompt taken token by token is decode in all but name.
            rows = {"generated": shapes} if chunk == 1 else {"prompts": shapes}
            total += step_work(cost, layers, kinds=kinds, **rows).times(count)
    if case.phase == "decode":
        points = [case.depth + case.gen * (i + 0.5) / _GEN_POINTS for i in range(_GEN_POINTS)]
        for at in points:
            chunks = (ChunkShape(int(at), 1, 1),) * case.batch
            total += step_work(cost, layers, generated=chunks, kinds=kinds).times(1 / _GEN_POINTS)
    if case.phase == "request":
        for i in range(_GEN_POINTS):
            at = int(case.prompt + case.gen * (i + 0.5) / _GEN_POINTS)
            chunks = (ChunkShape(at, 1, 1),) * case.batch
            total += step_work(cost, layers, generated=chunks, kinds=kinds).times((case.gen - 1) / _GEN_POINTS)
    return total


def spec_of(device: Device, bandwidth: float) -> HardwareSpec:
    """The device's roofs with the bandwidth that the table states, where it states one."""
    return replace(target_of(device).spec, read_bandwidth=((1 << 30, bandwidth),))


def features(cases: Sequence[Case], programs: Programs) -> Array:
    """(num_cases, len(NAMES)): nominal seconds of each case by what a constant multiplies."""
    rows = np.zeros((len(cases), len(NAMES)))
    for row, case in zip(rows, cases, strict=True):
        prompt_on = settings_of(case).prompt_on[case.weights]
        spec = spec_of(case.device, case.bandwidth)
        nominal = nominal_seconds(case_work(case, programs), spec, "f32", prompt_on)
        row[:5] = nominal.step, nominal.layer, nominal.weights, nominal.experts, nominal.kv
        row[5 + WEIGHT_CLASSES.index(case.weights)] = nominal.generated
        row[9 + WEIGHT_CLASSES.index(case.weights)] = nominal.prompt
        row[13:] = nominal.attention, nominal.prompt_attention
    return rows


def fit(rows: Array, seconds: Array, iterations: int = 12) -> Array:
    """The factors, (len(NAMES),), whose sums are nearest to the measured seconds. Deterministic."""
    relative = rows / seconds[:, None] * USUAL  # in units of what is usual
    least = LEAST / USUAL
    factors, weights = np.maximum(np.ones(len(USUAL)), least), np.ones(len(seconds))
    for _ in range(iterations):
        weighted = relative * weights[:, None]
        gram = weighted.T @ relative + PRIOR * np.eye(len(USUAL))
        factors = _bounded(gram, weighted.sum(axis=0) + PRIOR, least, factors)
        weights = 1 / np.maximum(np.abs(relative @ factors - 1), 0.02)
        weights /= weights.mean()
    return factors * USUAL


def _bounded(gram: Array, target: Array, least: Array, start: Array) -> Array:
    """Minimise x'Gx/2 - t'x for x >= least, coordinate by coordinate."""
    x = start.copy()
    for _ in range(400):
        before = x.copy()
        for j in range(len(x)):
            x[j] = max(least[j], x[j] + (target[j] - gram[j] @ x) / gram[j, j])
        if np.abs(x - before).max() < 1e-7:
            break
    return x


def left_out(cases: Sequence[Case], rows: Array, seconds: Array) -> Array:
    """Each case's predicted seconds by constants fitted without any case of its hardware."""
    predicted = np.zeros(len(cases))
    names = np.array([case.device.name for case in cases])
    for name in sorted(set(names)):
        own = names == name
        # Where only one device is of the class, leave out its models in turn.
        if own.all():
            models = np.array([case.model.name for case in cases])
            for model in sorted(set(models)):
                rest = models != model
                rest = rest if rest.any() else np.ones_like(rest)
                predicted[models == model] = rows[models == model] @ fit(rows[rest], seconds[rest])
        else:
            predicted[own] = rows[own] @ fit(rows[~own], seconds[~own])
    return predicted
