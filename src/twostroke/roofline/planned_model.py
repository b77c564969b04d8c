"""PlannedModel: a model known well enough to plan: program, bits of each weight, cost. Owns the ways to name one.

No weights are read: a catalogue name or a config.json says enough; of a model file or directory only headers are read.
"""

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from twostroke.errors import ModelFileError, ModelNotFoundError, in_words
from twostroke.models.config import ModelConfig
from twostroke.models.hf_config import config_from_hf
from twostroke.models.registry import build_program
from twostroke.program.cost import CostModel, Storage, total_weight_bytes
from twostroke.program.ops import Embed, EncoderAttention, Experts, Linear
from twostroke.program.passes import fuse, plan_arena
from twostroke.program.program import Program
from twostroke.program.values import Rows
from twostroke.roofline.efficiency import WeightClass, WeightMix, weight_class
from twostroke.roofline.model_catalogue import CatalogueModel, find_model
from twostroke.roofline.weight_format import WeightFormat, find_format, load_formats

# Bits an element of the KV cache takes by type: those of `tensor_types`, and 8-bit floats.
KV_BITS: Mapping[str, float] = {
    "f32": 32.0,
    "f16": 16.0,
    "bf16": 16.0,
    "fp8": 8.0,
    "q8_0": 8.5,
    "q5_1": 6.0,
    "q5_0": 5.5,
    "q4_1": 5.0,
    "q4_0": 4.5,
}
_NATIVE = {"gpt-oss": "mxfp4"}  # published in fewer bits than 16


@dataclass(frozen=True)
class PlannedModel:
    """A model in one weight format.

    weights   the format's name; `bits` are those of each weight, by name
    source    where the facts are published, or the file they were read from
    is_reformatted   of a file's weights: they are not in the file's own types
    """

    name: str
    config: ModelConfig
    program: Program  # fused
    weights: str
    bits: Mapping[str, float]
    source: str
    is_reformatted: bool = False

    def cost(self, kv: str) -> CostModel:
        """What steps cost with this type of KV cache. Made once: a plan of many devices asks for one as often."""
        if kv not in self._costs:
            self._costs[kv] = CostModel(self.program, Storage(self.bits, KV_BITS[kv]))
        return self._costs[kv]

    @cached_property
    def _costs(self) -> dict[str, CostModel]:
        return {}

    def in_format(self, weights: str) -> "PlannedModel":
        """The same model in another format."""
        found = find_format(weights, _formats())
        return replace(self, weights=found.name, bits=found.weight_bits(self.program.weights), is_reformatted=True)

    @cached_property
    def weight_bytes(self) -> float:
        return total_weight_bytes(self.program, Storage(self.bits))

    @cached_property
    def num_parameters(self) -> int:
        return sum(weight.num_elements for weight in self.program.weights.values())

    @cached_property
    def expert_bytes(self) -> float:
        """Bytes of the experts of mixtures, all of them."""
        return sum(self._bytes(name) for name, weight in self.program.weights.items() if len(weight.shape) == 3)

    @cached_property
    def state_elements(self) -> int:
        """Elements of the recurrent states of one request."""
        return sum(group.state_elements for group in self.program.cache_groups)

    @cached_property
    def arena_dims(self) -> int:
        """Activations of a row that live at once, at most, in elements."""
        return plan_arena(self.program).dims[Rows.TOKENS]

    @cached_property
    def latent_heads(self) -> int:
        """Heads of the widest latent attention; 0 where there is none."""
        return max((getattr(op, "num_heads", 0) for op in self.program.ops if op.kind == "latent_attention"), default=0)

    @cached_property
    def encoder_heads(self) -> int:
        """Heads of an encoder's attention; 0 for other models."""
        return max((op.num_heads for op in self.program.ops if isinstance(op, EncoderAttention)), default=0)

    @property
    def is_encoder(self) -> bool:
        """Whether it takes requests whole and generates nothing."""
        return self.config.is_encoder

    @property
    def is_mixture(self) -> bool:
        return self.config.num_experts > 0

    @property
    def has_own_embedding(self) -> bool:
        """Whether the embedding serves for nothing else, so that a token reads one row of it."""
        return not self.config.tied_head

    @cached_property
    def table_bytes(self) -> float:
        """Bytes of the tables that serve for nothing but a row of each token's."""
        tables = [op.weight.name for op in self.program.ops if isinstance(op, Embed)]
        return sum(self._bytes(name) for name in tables if name != "token_embd.weight" or self.has_own_embedding)

    @cached_property
    def weight_class(self) -> WeightClass:
        """The class of most of the weights."""
        by_bits: dict[float, int] = {}
        for name, weight in self.program.weights.items():
            if len(weight.shape) > 1:
                by_bits[self.bits[name]] = by_bits.get(self.bits[name], 0) + weight.num_elements
        common = max(by_bits, key=lambda bits: by_bits[bits], default=16.0)
        kind = "f16" if common >= 16 else self.weights
        return weight_class(kind, mixture=self.is_mixture)

    @cached_property
    def weight_mix(self) -> WeightMix:
        """What the weights are to an engine."""
        prompt: dict[float, float] = {}
        output: dict[float, float] = {}
        for op in self.program.ops:
            if isinstance(op, Linear | Experts):
                is_output = self.program.values[op.input].rows is Rows.OUTPUTS
                active = op.routed.top_k / op.routed.num_experts if isinstance(op, Experts) else 1.0
                found = output if is_output else prompt
                for matrix in op.matrices:
                    bits = self.bits[matrix.name]
                    found[bits] = found.get(bits, 0.0) + active * matrix.num_elements
        generated = {bits: prompt.get(bits, 0.0) + output.get(bits, 0.0) for bits in {**prompt, **output}}
        return WeightMix(self.weight_class, generated, prompt)

    def bytes_by_bits(self) -> dict[float, float]:
        """Bytes of the weights by bits an element, most first."""
        found: dict[float, float] = {}
        for name in self.program.weights:
            found[self.bits[name]] = found.get(self.bits[name], 0.0) + self._bytes(name)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def _bytes(self, name: str) -> float:
        weight = self.program.weights.get(name)
        return 0.0 if weight is None else weight.num_elements * self.bits[name] / 8


def find_planned(name: str, weights: str | None = None) -> PlannedModel:
    """A catalogue name, a config.json, a model directory, a GGUF file, or the alias of a model that is cached.

    `weights` is a format; None for the files' own types, or what the model is published in. Raises ModelNotFoundError
    with the nearest names, ModelFileError, UnsupportedModelError, ConfigError for an unknown format.
    """
    path = _path(name)
    if path is None:
        return of_catalogue(find_model(name), weights)
    if path.suffix == ".json" or (path.is_dir() and not any(path.glob("*.safetensors*"))):
        return _of_config(path / "config.json" if path.is_dir() else path, weights)
    return _of_files(name, path, weights)


def of_catalogue(model: CatalogueModel, weights: str | None = None) -> PlannedModel:
    """A model of the catalogue. Raises UnsupportedModelError where no family builds it."""
    config = model.config()
    native = _NATIVE.get(config.architecture, "bf16")
    return _built(model.name, config, weights or native, model.source)


@cache
def _formats() -> dict[str, WeightFormat]:
    """All formats, read once: a sweep asks for many."""
    return load_formats()


def _path(name: str) -> Path | None:
    """What is on this machine under a name: a file, a directory, a cached model; None for none."""
    from twostroke.weights.fetch import resolve

    try:
        return resolve(name)
    except ModelNotFoundError:
        if "/" in name and (name.endswith((".gguf", ".json")) or name.startswith((".", "/", "~"))):
            raise
        return None


def _of_config(path: Path, weights: str | None) -> PlannedModel:
    try:
        facts = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: {in_words(error)}") from None
    if not isinstance(facts, dict):
        raise ModelFileError(f"{path}: is not a configuration")
    return _built(path.parent.name or path.name, config_from_hf(facts), weights or "bf16", str(path))


def _of_files(name: str, path: Path, weights: str | None) -> PlannedModel:
    from twostroke.models.load import load_model

    model = load_model(path)
    with closing(model.source):
        infos = {each: model.source.info(each) for each in model.program.weights}
    program = fuse(model.program)
    bits = {each: info.type.bits_per_weight for each, info in infos.items()}
    sizes: dict[str, int] = {}
    for info in infos.values():
        sizes[info.type.name.lower()] = sizes.get(info.type.name.lower(), 0) + info.num_bytes
    label = max(sizes, key=lambda kind: sizes[kind])
    found = PlannedModel(name, model.config, program, label, bits, str(path))
    return found if weights is None else found.in_format(weights)


def _built(name: str, config: ModelConfig, weights: str, source: str) -> PlannedModel:
    program = fuse(build_program(config))
    found = find_format(weights, _formats())
    return PlannedModel(name, config, program, found.name, found.weight_bits(program.weights), source)
