"""Efficiency: how much of its roofs an engine reaches on a kind of hardware. Owns the classes and their file.

The constants in `efficiency.toml` were fitted on published measurements by `benchmarks/planning.py`, which also writes
how well they hold; docs/planning.md has the tables. A class is an engine, a kind of hardware and a kind of weights.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from twostroke.errors import ConfigError
from twostroke.roofline.work import RowKinds
from twostroke.weights.tensor_types import TensorType

WeightClass = Literal["float", "k_quant", "quantised", "mixture"]
Arithmetic = Literal["f32", "16bit", "16bit_sums", "8bit"]
Phase = Literal["decode", "prefill", "request"]
PHASES: tuple[Phase, ...] = ("prefill", "decode", "request")
Band = tuple[float, float]
_UNMEASURED: Band = (0.5, 2.0)
_PATH = Path(__file__).with_name("efficiency.toml")
# Kinds of hardware that engines treat alike, by what names say; the first that matches.
_KINDS: tuple[tuple[str, str], ...] = (
    (r"\b(A100|A800|H100|H200|H800|B100|B200|B300|GH200|GB200|V100|P100|A30)\b", "nvidia-datacenter"),
    (r"\b(RTX|GTX|TITAN|L4|L40S?|A10G?|A16|A40|A2|T4|DGX|GB10|Jetson|Orin|Thor|Quadro)\b|\bA\d000\b", "nvidia"),
    (r"\bMI\d", "amd-datacenter"),
    (r"\b(Gaudi|Max 1550|Max 1100)", "intel-datacenter"),
    (r"\b(RX|Radeon|Pro W\d|R9700|Strix Halo|8060S|Vega|AI Max)", "amd"),
    (r"\bArc\b", "intel"),
    (r"^(Apple )?M\d", "apple"),
)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The constants of one class.

    step_s, layer_s, request_s  seconds a step, a layer and a request take besides bytes and FLOPs
    weights, experts, kv        share of the nominal bandwidth at which each is read
    generated, tiled, prompt    share of the peak FLOP/s reached on generated rows, whole tiles of them, prompt rows
    expanded          the share at which a row would run that took as long as expanding a step's weights for its prompt
                      rows; 0 where that takes no time of its own
    attention, prompt_attention share of the peak FLOP/s reached on rows x context, of generated and of prompt rows
    activations       share of the bandwidth of caches at which they move; 0 where that takes no time of its own
    overlap           how far reading and arithmetic go on together (see `step_time`)
    generated_on, prompt_on   the arithmetic whose peak the shares are of (see `step_time`)
    kinds             which generated rows run how
    chunk_tokens      rows of a prefill step
    bands             measured over predicted time, its 10% and 90% quantiles, by what was run (see `band`)
    bands_of          which measurements those are
    source            how the constants were found
    """

    name: str
    step_s: float
    layer_s: float
    request_s: float
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
    overlap: float
    generated_on: Arithmetic
    prompt_on: Arithmetic
    kinds: RowKinds
    chunk_tokens: int
    bands: Mapping[str, Band]
    bands_of: str
    is_mixture: bool
    source: str

    @property
    def factors(self) -> tuple[float, ...]:
        """What nominal seconds are multiplied by, in the order of `Seconds`."""
        rows = (self.generated, self.tiled, self.prompt, self.expanded)
        shares = (self.weights, self.experts, self.kv, *rows, self.attention, self.prompt_attention, self.activations)
        return (self.step_s, self.layer_s, self.request_s, *(1 / share if share else 0.0 for share in shares), 1.0)

    def band(self, phase: Phase, batch: int = 1) -> Band:
        """Between which multiples of the predicted time 80% of measured times were; half and double where nothing like
        it was measured."""
        return self._band(phase, batch) or _UNMEASURED

    def band_source(self, phase: Phase, batch: int = 1) -> str:
        """What that band is of, as words."""
        if self._band(phase, batch) is None:
            return "half to double, for nothing like it was measured"
        return f"80% of {self.bands_of}"

    def _band(self, phase: Phase, batch: int) -> Band | None:
        of_batch = "batched " if batch > 1 else ""
        names = (f"{of_batch}{phase}", phase)
        exact = (f"mixture {name}" if self.is_mixture else name for name in names)
        return next((self.bands[name] for name in exact if name in self.bands), None)


def hardware_class(name: str, kind: str = "gpu") -> str:
    """The kind of hardware that engines treat alike: "nvidia", "apple", "cpu" and so on.

    `kind` is a catalogue device's; "cpu" covers whatever no pattern knows.
    """
    if kind in ("cpu", "phone"):
        return "cpu"
    return next((found for pattern, found in _KINDS if re.search(pattern, name)), "cpu" if kind == "soc" else "other")


def weight_class(type_name: str, *, mixture: bool = False) -> WeightClass:
    """How costly a weight's values are to unpack, from the name of its type; mixtures of experts are a class of
    their own, for their products are small whatever the type."""
    if mixture:
        return "mixture"
    if re.fullmatch(r"(?i)b?f(16|32)|bf16|fp?(16|32)|float(16|32)?", type_name):
        return "float"
    return "k_quant" if re.match(r"(?i)(ud-)?q\d_k", type_name) else "quantised"


def default_engine(hardware: str) -> str:
    """The engine that a plan assumes where none is named."""
    return "vllm" if hardware in ("amd-datacenter", "intel-datacenter") else "llama.cpp"


@cache
def load_classes() -> Mapping[str, Any]:
    """The file's classes, by "engine/hardware"."""
    import tomllib  # only needed once something is planned

    classes: Mapping[str, Any] = tomllib.loads(_PATH.read_text("utf-8"))["classes"]
    return classes


@dataclass(frozen=True, slots=True)
class WeightMix:
    """What a model's weights are to an engine: their class, and what share of the multiplications of a generated row,
    and of a prompt row, is by weights of how many bits."""

    kind: WeightClass
    generated: Mapping[float, float] = field(default_factory=dict)
    prompt: Mapping[float, float] = field(default_factory=dict)


def find_efficiency(engine: str, hardware: str, mix: WeightMix) -> Efficiency:
    """The constants of an engine on a kind of hardware; where nobody measured those two, the engine's nearest.

    Raises ConfigError, with the engines known, for one that no class is of.
    """
    classes = load_classes()
    engines = sorted({name.partition("/")[0] for name in classes})
    if engine not in engines:
        raise ConfigError(f"no engine {engine[:40]!r} to plan for; there are {', '.join(engines)}")
    name = f"{engine}/{hardware}"
    if name not in classes:
        name = next(each for each in classes if each.startswith(f"{engine}/"))
    return _parse(name, classes[name], mix, guessed=name != f"{engine}/{hardware}")


def _parse(name: str, row: Mapping[str, Any], mix: WeightMix, *, guessed: bool) -> Efficiency:
    engine = name.partition("/")[0]

    def share(key: str, otherwise: str = "") -> float:
        widths = mix.prompt if key in ("prompt", "expanded") else mix.generated
        return _of_mix(row.get(key, row.get(otherwise, 0.0)), mix, widths)

    def arithmetic(key: str) -> Any:
        return row[key][mix.kind] if isinstance(row[key], Mapping) else row[key]

    return Efficiency(
        name=name,
        **{key: float(row.get(key, 0.0)) for key in ("step_s", "layer_s", "request_s", "activations")},
        **{key: share(key) for key in ("weights", "experts", "kv", "generated", "prompt", "attention")},
        tiled=share("tiled", "generated"),
        expanded=share("expanded"),
        prompt_attention=share("prompt_attention", "attention"),
        overlap=float(row.get("overlap", 1.0)),
        generated_on=arithmetic("generated_on"),
        prompt_on=arithmetic("prompt_on"),
        kinds=RowKinds(float(row["few_rows"]), int(row.get("tile_rows", 0))),
        chunk_tokens=int(row["chunk_tokens"]),
        bands={} if guessed else {phase: (low, high) for phase, (low, high) in row["bands"].items()},
        bands_of=row["bands_of"],
        is_mixture=mix.kind == "mixture",
        source=row["source"] + (f"; nobody measured {engine} there, so as {name}, with a wide band" if guessed else ""),
    )


def _of_mix(value: Any, mix: WeightMix, widths: Mapping[float, float]) -> float:
    """A share of a roof: one for all, one a class, or one a tensor type. Of types, each weight counts as the one whose
    width is nearest to its own; times add up, so that their mean is the harmonic one."""
    if not isinstance(value, Mapping):
        return float(value)
    if mix.kind in value:
        return float(value[mix.kind])
    by_bits = {
        TensorType[name.upper()].bits_per_weight: float(rate) for name, rate in value.items() if name != "mixture"
    }
    near = {width: by_bits[min(by_bits, key=lambda bits: abs(math.log(bits / width)))] for width in widths}
    return sum(widths.values()) / sum(part / near[width] for width, part in widths.items())
