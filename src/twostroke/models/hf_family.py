"""HFFamily: what config.json and checkpoints of one `model_type` say in their own way. Owns the record, no family."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twostroke.models.config import MAX_DIM, MAX_EXPERTS, MAX_LAYERS, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.part import Part

Fields = dict[str, Any]
Names = Mapping[str, str]
STANDARD_TOP: Names = {"token_embd": "embed_tokens", "output_norm": "norm"}


def _nothing_more(facts: Facts, config: ModelConfig) -> Fields:
    return {}


def _no_parts(config: ModelConfig, layer: int) -> Mapping[str, Part]:
    return {}


@dataclass(frozen=True, slots=True)
class HFFamily:
    """`unsaid` is what the absence of a key means, `renamed` the usual names of keys by those that are its own.

    `complete` gives fields of the configuration that the usual keys do not tell, or tell otherwise. `names` are raw
    names by canonical ones, within a layer where they differ from the usual; `top` those outside. `layers` stands
    before a layer's number; `roots` are where all these and the output matrix may be, if not where they usually are.
    `parts` are what one layer's tensors hold of others, by canonical name. `spare` are raw names within a layer that
    checkpoints may hold where the layer does without.
    """

    architecture: str
    unsaid: Mapping[str, Any] = field(default_factory=dict)
    renamed: Names = field(default_factory=dict)
    complete: Callable[[Facts, ModelConfig], Fields] = _nothing_more
    names: Names = field(default_factory=dict)
    top: Names = field(default_factory=lambda: STANDARD_TOP)
    layers: str = "layers."
    roots: tuple[tuple[str, str], ...] = ()
    parts: Callable[[ModelConfig, int], Mapping[str, Part]] = _no_parts
    separate_experts: bool = True
    spare: tuple[str, ...] = ()

    def usual(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """config.json under the usual keys, with what it leaves unsaid."""
        named = {self.renamed.get(key, key): value for key, value in config.items()}
        return {**self.unsaid, **{key: value for key, value in named.items() if value is not None}}


def rows(tensor: str, shape: tuple[int, ...], first: int, total: int) -> Part:
    """The part of a stored matrix or vector that is its rows from `first` on, as many as `shape` has."""
    return Part(tensor, shape, (total,), (slice(first, first + shape[0]),), vectors=len(shape) == 1)


def mixture(facts: Facts, count_key: str, *, shared: int, dense: frozenset[int]) -> Fields:
    """Of a mixture of experts under its usual keys; `shared` is the size of the shared expert, 0 for none."""
    count = facts.integer(count_key, MAX_EXPERTS)
    return {
        "num_experts": count,
        "experts_per_token": facts.integer("num_experts_per_tok", count),
        "expert_ffn_dim": facts.integer("moe_intermediate_size", MAX_DIM),
        "shared_ffn_dim": shared,
        "renormalize_experts": facts.boolean("norm_topk_prob", False),
        "dense_layers": dense,
    }


def groups(facts: Facts, num_experts: int, top_k: int) -> Fields:
    """The groups that experts are chosen within, and how a chosen one's weight is scaled."""
    count = facts.integer("n_group", num_experts, 1)
    top = facts.integer("topk_group", count, count)
    if num_experts % count or top_k > num_experts // count * top:
        raise facts.error("n_group", f"is {count}: {top} of them do not hold {top_k} of {num_experts} experts")
    scale = facts.number("routed_scaling_factor", 1e6, 1.0)
    return {"expert_groups": count, "top_expert_groups": top, "expert_scale": scale}


def first_dense(facts: Facts) -> frozenset[int]:
    """The layers before the first with experts."""
    return frozenset(range(facts.count("first_k_dense_replace", MAX_LAYERS)))
