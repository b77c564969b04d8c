"""WeightFormat: how many bits each weight of a model takes in a named format. Owns the rules of `weight_formats.toml`.

A format is a tensor type with exceptions (llama.cpp's mixtures, what checkpoints leave unquantised), or a published
mean. Types that `twostroke quantize` writes follow its own rule, `weights.matrix_types`. Nothing is quantised here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twostroke.errors import ConfigError
from twostroke.program.values import Weight
from twostroke.roofline.nearest import folded, suggestion
from twostroke.weights.matrix_types import matrix_type, whole_blocks
from twostroke.weights.tensor_types import TensorType

_PATH = Path(__file__).with_name("weight_formats.toml")
_CONDITIONS = ("layers", "min_gqa", "experts")
Bits = TensorType | float


@dataclass(frozen=True, slots=True)
class Rule:
    """An exception: tensors of these names, in these layers, of models with such heads and experts, have `type`."""

    tensors: tuple[str, ...]
    type: TensorType
    layers: str = ""
    min_gqa: int = 0
    experts: int = 0

    def holds(self, tensor: str, layer: int, model: "_Shape") -> bool:
        return (
            tensor in self.tensors
            and _in_layers(self.layers, layer, model.num_layers)
            and model.gqa >= self.min_gqa
            and self.experts in (0, model.num_experts)
        )


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """A format by name; see `weight_formats.toml` for what the fields mean. `source` says where it is defined."""

    name: str
    aliases: tuple[str, ...]
    type: Bits
    output: Bits | None
    embedding: Bits | None
    other: TensorType
    rules: tuple[Rule, ...]
    source: str

    def weight_bits(self, weights: Mapping[str, Weight]) -> dict[str, float]:
        """Bits an element of each weight takes, by name: what `program.cost.Storage` asks for. `weights` are all of a
        program's, since some rules depend on the whole model."""
        shape = _Shape.of(weights)
        return {name: self._bits(weight, shape) for name, weight in weights.items()}

    def bits_per_weight(self, weights: Mapping[str, Weight]) -> float:
        """The mean over a program's weights."""
        bits = self.weight_bits(weights)
        elements = {name: weight.num_elements for name, weight in weights.items()}
        return sum(bits[name] * count for name, count in elements.items()) / sum(elements.values())

    def _bits(self, weight: Weight, model: "_Shape") -> float:
        kind = self.type if isinstance(self.type, TensorType) else TensorType.F32
        wanted: Bits | None = matrix_type(weight.name, weight.shape, kind, model.has_output)
        if wanted is None:
            return self.other.bits_per_weight
        if weight.name == ("output.weight" if model.has_output else "token_embd.weight"):
            wanted = wanted if self.output is None else self.output
        elif weight.name == "token_embd.weight" and self.embedding is not None:
            wanted = self.embedding
        else:
            wanted = self._by_rule(weight.name, model)
        if not isinstance(wanted, TensorType):
            return wanted
        return whole_blocks(wanted, weight.shape[-1]).bits_per_weight

    def _by_rule(self, name: str, model: "_Shape") -> Bits:
        parts = name.split(".")
        layer = int(parts[1]) if parts[0] == "blk" else 0
        return next((rule.type for rule in self.rules if rule.holds(parts[-2], layer, model)), self.type)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What rules ask of a whole model."""

    has_output: bool
    num_layers: int
    gqa: int
    num_experts: int

    @classmethod
    def of(cls, weights: Mapping[str, Weight]) -> "_Shape":
        layers = [int(name.split(".")[1]) for name in weights if name.startswith("blk.")]
        rows = {name.split(".")[-2]: weight.shape[0] for name, weight in weights.items() if name.endswith(".weight")}
        gqa = rows.get("attn_q", 1) // rows.get("attn_k", rows.get("attn_q", 1))
        experts = max((weight.shape[0] for weight in weights.values() if len(weight.shape) == 3), default=0)
        return cls("output.weight" in weights, max(layers, default=-1) + 1, gqa, experts)


def load_formats(path: Path = _PATH) -> dict[str, WeightFormat]:
    """All formats by name, in the file's order."""
    import tomllib  # only needed once a format is looked up

    table = tomllib.loads(path.read_text("utf-8"))
    return {name: _format(name, row, table["sources"]) for name, row in table["formats"].items()}


def find_format(name: str, formats: Mapping[str, WeightFormat] | None = None) -> WeightFormat:
    """The format that a name or an alias means, however spelt; "4.85bpw" is that mean of the whole model.

    Raises ConfigError with the nearest names.
    """
    formats = load_formats() if formats is None else formats
    by_form = {folded(each): found for found in formats.values() for each in (found.name, *found.aliases)}
    if found := by_form.get(folded(name)):
        return found
    stated = re.fullmatch(r"(\d{1,2}(?:\.\d+)?) ?bpw", name.strip().lower())
    if stated and 0 < (mean := float(stated[1])) <= 64:
        return WeightFormat(f"{mean:g}bpw", (), mean, mean, mean, TensorType.F32, (), "as asked for")
    raise ConfigError(f"no weight format {name[:80]!r}{suggestion(name, formats)}")


def _format(name: str, row: Mapping[str, Any], sources: Mapping[str, str]) -> WeightFormat:
    mean = row.get("mean")
    return WeightFormat(
        name,
        tuple(row.get("aliases", ())),
        _kind(row["type"]) if mean is None else mean,
        _kind(row["output"]) if "output" in row else mean,
        _kind(row["embedding"]) if "embedding" in row else mean,
        TensorType[row.get("other", "F32")],
        tuple(
            Rule(
                tuple(rule["tensors"]), TensorType[rule["type"]], **{k: v for k, v in rule.items() if k in _CONDITIONS}
            )
            for rule in row.get("rules", ())
        ),
        sources[row["source"]],
    )


def _kind(value: str | float) -> Bits:
    return TensorType[value] if isinstance(value, str) else float(value)


def _in_layers(which: str, layer: int, num_layers: int) -> bool:
    """Whether a layer is among those a rule names; divisions round down, as llama.cpp's do."""
    if not which:
        return True
    eighth = num_layers // 8
    if which == "more":
        return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2
    share = which.removeprefix("n/")
    return layer < (int(which) if share == which else num_layers // int(share))
