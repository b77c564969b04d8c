"""Canonical (GGUF) tensor names and those of Hugging Face checkpoints. Owns the tables, and what may stay unused.

A `*` stands for ".weight" and nothing, or ".bias" and "_bias", in names that lack the usual endings; `{expert}` for the
number of each expert in turn, whose tensors are stacked.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from twostroke.models.config import ModelConfig
from twostroke.models.hf_families import HF_FAMILIES
from twostroke.models.hf_family import STANDARD_TOP, Names

_NEOX_TOP: Names = {"token_embd": "embed_in", "output_norm": "final_layer_norm"}
# Where the embedding, the layers and the last norm are, and the output matrix: in a model of text, in one of more than
# text as older and newer checkpoints have it, and in one that was saved without an output matrix.
_ROOTS = (
    ("model.", "lm_head"),
    ("language_model.model.", "language_model.lm_head"),
    ("model.language_model.", "lm_head"),
    ("model.text_model.", "lm_head"),
    ("", "lm_head"),
)
_NEOX_ROOTS = (("gpt_neox.", "embed_out"), ("", "embed_out"))
_LAYER: Names = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{expert}.gate_proj",
    "ffn_up_exps": "mlp.experts.{expert}.up_proj",
    "ffn_down_exps": "mlp.experts.{expert}.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
_POST_NORMS: Names = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
_GEMMA: Names = {**_POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"}
# By model_type, what differs from the names above.
_OWN: Mapping[str, Names] = {
    "gemma2": _GEMMA,
    "gemma3_text": _GEMMA,
    "olmo2": _POST_NORMS,
    "olmo3": _POST_NORMS,
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "mixtral": {
        "ffn_gate_inp": "block_sparse_moe.gate",
        "ffn_gate_exps": "block_sparse_moe.experts.{expert}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{expert}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{expert}.w2",
    },
    "gpt_neox": {
        "attn_qkv": "attention.query_key_value",
        "attn_output": "attention.dense",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    "gpt_oss": {
        "post_attention_norm": "post_attention_layernorm",
        "attn_sinks": "self_attn.sinks*",
        "ffn_gate_inp": "mlp.router",
        "ffn_gate_up_exps": "mlp.experts.gate_up_proj*",
        "ffn_down_exps": "mlp.experts.down_proj*",
    },
}
_PLAIN_ENDINGS = {"weight": "", "bias": "_bias"}
# Buffers that older checkpoints hold beside their weights.
_BUFFERS = (".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias", ".attn.bias", ".attn.masked_bias")


@dataclass(frozen=True, slots=True)
class CheckpointNames:
    """What the checkpoint of a `model_type` calls each canonical tensor: names in layers begin with `root`.

    `head` and `table` are the names of the output matrix and of the embedding table.
    """

    kind: str
    root: str
    head: str

    @classmethod
    def of(cls, kind: str, stored: Collection[str]) -> Self:
        """Of a checkpoint with these tensors."""
        usual = _NEOX_ROOTS if kind == "gpt_neox" else _ROOTS
        roots = (HF_FAMILIES[kind].roots if kind in HF_FAMILIES else ()) or usual
        found = next((each for each in roots if cls(kind, each[0], "").table in stored), roots[0])
        return cls(kind, found[0], f"{found[1]}.weight")

    @property
    def table(self) -> str:
        return f"{self.root}{self._top['token_embd']}.weight"

    def raw(self, config: ModelConfig, names: Iterable[str]) -> dict[str, str | tuple[str, ...]]:
        """The raw name of each canonical one; a tuple for the experts that are stacked.

        Raises KeyError for a name that the family's checkpoints have no tensor for.
        """
        return {name: self._raw(config, name) for name in names}

    def may_be_unused(self, name: str, num_layers: int) -> bool:
        """Whether a raw tensor without a place changes nothing: a buffer, or outside of the layers that are run."""
        prefix = self._layers
        if name.endswith(_BUFFERS) or not name.startswith(prefix):
            return True
        number, _, part = name.removeprefix(prefix).partition(".")
        spare = HF_FAMILIES[self.kind].spare if self.kind in HF_FAMILIES else ()
        return part in spare or (number.isdecimal() and int(number) >= num_layers)

    @property
    def _top(self) -> Names:
        if self.kind in HF_FAMILIES:
            return HF_FAMILIES[self.kind].top
        return _NEOX_TOP if self.kind == "gpt_neox" else STANDARD_TOP

    @property
    def _layers(self) -> str:
        return self.root + (HF_FAMILIES[self.kind].layers if self.kind in HF_FAMILIES else "layers.")

    def _raw(self, config: ModelConfig, canonical: str) -> str | tuple[str, ...]:
        base, _, ending = canonical.rpartition(".")
        if base == "output":
            return f"{self.head.removesuffix('.weight')}.{ending}"
        if not base.startswith("blk."):
            return f"{self.root}{self._top[base]}.{ending}"
        _, layer, part = base.split(".", 2)
        own = HF_FAMILIES[self.kind].names if self.kind in HF_FAMILIES else _OWN.get(self.kind, {})
        pattern = own[part] if part in own else _LAYER[part]
        if pattern.endswith("*"):
            return f"{self._layers}{layer}.{pattern[:-1]}{_PLAIN_ENDINGS[ending]}"
        full = f"{self._layers}{layer}.{pattern}.{ending}"
        if "{expert}" in full:
            return tuple(full.replace("{expert}", str(expert)) for expert in range(config.num_experts))
        return full


def fused_names(kind: str, config: ModelConfig) -> Iterator[str]:
    """Canonical names of the tensors that checkpoints of this `model_type` store fused."""
    fused = {"phi3": ("attn_qkv", "ffn_up"), "gpt_neox": ("attn_qkv",), "gpt_oss": ("ffn_gate_up_exps",)}
    for layer in range(config.num_layers):
        for name in fused.get(kind, ()):
            yield f"blk.{layer}.{name}.weight"
            if (name == "attn_qkv" and config.qkv_bias) or name == "ffn_gate_up_exps":
                yield f"blk.{layer}.{name}.bias"


def has_separate_experts(kind: str) -> bool:
    """Whether each expert's matrices are tensors of their own, where there are experts."""
    return HF_FAMILIES[kind].separate_experts if kind in HF_FAMILIES else kind != "gpt_oss"
