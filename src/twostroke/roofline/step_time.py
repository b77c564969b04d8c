"""StepTime: how long work takes on hardware, as a sum. Owns the formula; the constants are `efficiency`'s.

A step takes a fixed time, a time for each layer and request, its bytes at a share of the memory's bandwidth and its
FLOPs at a share of the peak. A roofline's maximum is a bound that no engine reaches: kernels start, wait for each
other, and do not overlap all they could; on GPUs the sum is what measured runs follow. A core that multiplies while it
fetches comes nearer to the maximum: `overlap` says how near.
"""

import math
from dataclasses import astuple, dataclass, replace

from twostroke.roofline.bound import Bound
from twostroke.roofline.efficiency import Arithmetic, Efficiency
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.work import Work

_OF_ROWS = ("weights", "experts", "generated", "tiled", "prompt", "expanded")


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time by what it is spent on; names are those of `Efficiency`."""

    step: float
    layer: float
    request: float
    weights: float
    experts: float
    kv: float
    generated: float
    tiled: float
    prompt: float
    expanded: float
    attention: float
    prompt_attention: float
    activations: float
    storage: float = 0.0  # reading what is not in memory

    @property
    def total(self) -> float:
        return float(sum(astuple(self)))

    @property
    def memory(self) -> float:
        """Spent waiting for bytes."""
        return self.weights + self.experts + self.kv + self.storage

    @property
    def compute(self) -> float:
        """Spent on arithmetic, and on handing its results on."""
        return self.linears + self.attention + self.prompt_attention + self.activations

    @property
    def linears(self) -> float:
        """Spent on the arithmetic of rows."""
        return self.generated + self.tiled + self.prompt + self.expanded

    @property
    def overhead(self) -> float:
        """Spent on what does not grow with bytes or FLOPs."""
        return self.step + self.layer + self.request

    @property
    def bound(self) -> Bound:
        """Which of the two resources takes longer."""
        return "compute" if self.compute > self.memory else "memory"


def nominal_seconds(work: Work, hardware: HardwareSpec, generated_on: Arithmetic, prompt_on: Arithmetic) -> Seconds:
    """Steps, layers and requests counted, bytes at the nominal bandwidth, FLOPs at the peak: what efficiencies divide.

    Activations move at the bandwidth of the smallest working set. Where no peak is known, FLOPs take no time.
    """
    sixteen, own = arithmetic_peak(hardware, "16bit"), arithmetic_peak(hardware, generated_on)
    bandwidth = hardware.bytes_per_s_at(work.read_bytes / work.steps if work.steps else 0.0)
    return Seconds(
        step=work.steps,
        layer=work.layers,
        request=work.requests,
        weights=work.weight_bytes / bandwidth,
        experts=work.expert_bytes / bandwidth,
        kv=work.kv_bytes / bandwidth,
        generated=work.generated_flops / own,
        tiled=work.tiled_flops / own,
        prompt=work.prompt_flops / arithmetic_peak(hardware, prompt_on),
        expanded=work.expanded_flops / arithmetic_peak(hardware, prompt_on),
        attention=work.attention_flops / sixteen,
        prompt_attention=work.prompt_attention_flops / sixteen,
        activations=work.activation_bytes / hardware.read_bandwidth[0][1],
    )


def arithmetic_peak(hardware: HardwareSpec, kind: Arithmetic) -> float:
    """FLOP/s of a kind of arithmetic, or of what the hardware has instead; infinite where nothing is known.

    "f32" is that of vector units, "16bit" of matrix units with 32-bit sums, "16bit_sums" with 16-bit sums where those
    are faster: half the rate of 8-bit integers, as on all NVIDIA parts since Turing. "8bit" is integers'.
    """
    known = hardware.flops
    half = max(known.get("16bit", 0.0), known.get("f32", 0.0))
    eight = known.get("8bit", 0.0)
    if kind == "f32":
        return known.get("f32", 0.0) or half or math.inf
    if kind == "16bit_sums":
        return max(half, eight / 2) or math.inf
    return (max(half, eight) if kind == "8bit" else half) or math.inf


def predict(work: Work, hardware: HardwareSpec, efficiency: Efficiency, memory: float = 1.0) -> Seconds:
    """The time of this work, with memory this many times as fast. Never below bytes at its bandwidth or FLOPs at the
    peak: no share is above 1."""
    nominal = astuple(nominal_seconds(work, hardware, efficiency.generated_on, efficiency.prompt_on))
    apart = Seconds(*(each * factor for each, factor in zip(nominal, efficiency.factors, strict=True)))
    if memory != 1:
        apart = replace(apart, **{name: getattr(apart, name) / memory for name in ("weights", "experts", "kv")})
    return overlapped(apart, efficiency.overlap)


def overlapped(apart: Seconds, overlap: float) -> Seconds:
    """The same parts where reading and arithmetic of one op go on together: m and c seconds then take
    (m^p + c^p)^(1/p), of which each is given its share; p of 1 is one after the other, of infinity the longer alone."""
    of_rows = _together(apart.weights + apart.experts, apart.linears, overlap)
    of_context = _together(apart.kv, apart.attention + apart.prompt_attention, overlap)
    return replace(
        apart,
        **{name: of_rows * getattr(apart, name) for name in _OF_ROWS},
        **{name: of_context * getattr(apart, name) for name in ("kv", "attention", "prompt_attention")},
    )


def _together(memory: float, compute: float, overlap: float) -> float:
    """What is left of the sum of both."""
    longer = max(memory, compute)
    if not longer or overlap == 1:
        return 1.0
    sums = (memory / longer) ** overlap + (compute / longer) ** overlap
    norm = longer * math.pow(sums, 1 / overlap)
    return norm / (memory + compute)
