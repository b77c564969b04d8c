"""Efficiency: how much of its roofs an engine reaches on a kind of hardware. Owns the classes and their file.

The constants in `efficiency.toml` were fitted on published measurements by `benchmarks/planning.py`, which also writes
how well they hold; docs/planning.md has the tables. A class is an engine, a kind of hardware and a kind of weights.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from twostroke.errors import ConfigError

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

    step_s, layer_s   seconds a step and a layer take besides bytes and FLOPs
    weights, experts, kv        share of the nominal bandwidth at which each is read
    generated, prompt, attention  share of the peak FLOP/s reached on generated rows, prompt rows, rows x context
    generated_on, prompt_on   the arithmetic whose peak the shares are of (see `step_time`)
    few_rows          generated rows that have kernels of their own; more run as prompts do
    chunk_tokens      rows of a prefill step
    bands             measured over predicted time, its 10% and 90% quantiles, by what was run (see `band`)
    source            how the constants were found
    """

    name: str
    step_s: float
    layer_s: float
    weights: float
    experts: float
    kv: float
    generated: float
    prompt: float
    attention: float
    generated_on: Arithmetic
    prompt_on: Arithmetic
    few_rows: float
    chunk_tokens: int
    bands: Mapping[str, Band]
    is_mixture: bool
    source: str

    @property
    def factors(self) -> tuple[float, ...]:
        """What nominal seconds are multiplied by, in the order of `Seconds`."""
        shares = (self.weights, self.experts, self.kv, self.generated, self.prompt, self.attention)
        return (self.step_s, self.layer_s, *(1 / share for share in shares), 1.0)

    def band(self, phase: Phase, batch: int = 1) -> Band:
        """Between which multiples of the predicted time 80% of measured times were; half and double where nothing like
        it was measured."""
        of_batch = "batched " if batch > 1 else ""
        for name in (f"{of_batch}{phase}", phase):
            exact = f"mixture {name}" if self.is_mixture else name
            if exact in self.bands:
                return self.bands[exact]
        return _UNMEASURED


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


def find_efficiency(engine: str, hardware: str, weights: WeightClass) -> Efficiency:
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
    return _parse(name, classes[name], weights, guessed=name != f"{engine}/{hardware}")


def _parse(name: str, row: Mapping[str, Any], weights: WeightClass, *, guessed: bool) -> Efficiency:
    engine = name.partition("/")[0]

    def of_class(key: str) -> Any:
        value = row[key]
        return value[weights] if isinstance(value, Mapping) else value

    return Efficiency(
        name=name,
        step_s=float(row["step_s"]),
        layer_s=float(row["layer_s"]),
        **{key: float(of_class(key)) for key in ("weights", "experts", "kv", "generated", "prompt", "attention")},
        generated_on=of_class("generated_on"),
        prompt_on=of_class("prompt_on"),
        few_rows=float(row["few_rows"]),
        chunk_tokens=int(row["chunk_tokens"]),
        bands={} if guessed else {key: (low, high) for key, (low, high) in row["bands"].items()},
        is_mixture=weights == "mixture",
        source=row["source"] + (f"; nobody measured {engine} there, so as {name}, with a wide band" if guessed else ""),
    )
