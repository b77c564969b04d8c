"""MiniMax M2 (MiniMax 2025), with M2.1 to M2.7. Owns its equations.

Queries and keys are normalised as whole rows and rotated in part; every layer is a mixture of experts chosen by sigmoid
with a bias of the choice.
"""

from collections.abc import Collection

from twostroke.models.blocks import attention, experts, head
from twostroke.models.config import MAX_DIM, MAX_EXPERTS, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily
from twostroke.program.builder import Builder


def build(b: Builder, config: ModelConfig, outputs: Collection[str]) -> None:
    """Append the ops of a MiniMax M2 model and name the outputs asked for."""
    x, eps = b.embed("token_embd", config.vocab_size, config.dim), config.norm_eps
    for layer in b.layers(config.num_layers):
        x = b.add(x, attention(b, b.rms_norm(x, layer / "attn_norm", eps), layer, config, qk_norm="row"))
        h = b.rms_norm(x, layer / "ffn_norm", eps)
        x = b.add(x, experts(b, h, layer, config, "sigmoid_topk", choice_bias=True))
    head(b, x, config, outputs)


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    facts.require_only("use_qk_norm", True)
    facts.require_only("qk_norm_type", "per_layer")
    facts.require_only("scoring_func", "sigmoid")
    facts.require_only("attn_type_list", [1] * config.num_layers)
    facts.require_only("shared_intermediate_size", 0)
    rope_dim = facts.integer("rotary_dim", config.head_dim, config.rope_dim)
    if rope_dim % 2:
        raise facts.error("rotary_dim", f"is {rope_dim}, which is odd")
    count = facts.integer("num_local_experts", MAX_EXPERTS)
    return {
        "rope_dim": rope_dim,
        "num_experts": count,
        "experts_per_token": facts.integer("num_experts_per_tok", count),
        "expert_ffn_dim": facts.integer("intermediate_size", MAX_DIM),
        "renormalize_experts": True,
    }


_MIXTURE = "block_sparse_moe"
M2 = HFFamily(
    "minimax-m2",
    unsaid={"rms_norm_eps": 1e-6, "rope_theta": 5e6},
    complete=_complete,
    names={
        "ffn_gate_inp": f"{_MIXTURE}.gate",
        "exp_probs_b": f"{_MIXTURE}.e_score_correction*",
        "ffn_gate_exps": f"{_MIXTURE}.experts.{{expert}}.w1",
        "ffn_up_exps": f"{_MIXTURE}.experts.{{expert}}.w3",
        "ffn_down_exps": f"{_MIXTURE}.experts.{{expert}}.w2",
    },
)
