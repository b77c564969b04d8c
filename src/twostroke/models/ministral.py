"""Ministral 3 (Mistral AI 2025): Llama's equations, and queries that grow with positions beyond the first context."""

from twostroke.models.config import MAX_CONTEXT, ModelConfig
from twostroke.models.facts import Facts
from twostroke.models.hf_family import Fields, HFFamily


def _complete(facts: Facts, config: ModelConfig) -> Fields:
    rope = facts.part("rope_parameters") or facts.part("rope_scaling")
    strength = None if rope is None else rope.optional_number("llama_4_scaling_beta", 1e6)
    if rope is None or strength is None:
        return {}
    return {"position_scale": (rope.integer("original_max_position_embeddings", MAX_CONTEXT), strength)}


MINISTRAL3 = HFFamily("mistral3", unsaid={"head_dim": 128}, complete=_complete)
