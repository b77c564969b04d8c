"""The model types whose config.json or checkpoints have a record of their own. Owns the table; one line a type."""

from collections.abc import Mapping

from twostroke.models import bert, cohere, deepseek, gemma4, glm, gpt2, llama4, minimax, ministral, phi2, qwen_next
from twostroke.models.config import ModelConfig
from twostroke.models.hf_family import HFFamily
from twostroke.models.part import Part

HF_FAMILIES: Mapping[str, HFFamily] = {
    "bert": bert.BERT,
    "cohere": cohere.COHERE,
    "cohere2": cohere.COHERE2,
    "deepseek_v2": deepseek.V2,
    "deepseek_v3": deepseek.V3,
    "kimi_k2": deepseek.V3,
    "gemma4_text": gemma4.GEMMA4,
    "glm": glm.GLM,
    "glm4": glm.GLM4,
    "glm4_moe": glm.GLM4_MOE,
    "glm4_moe_lite": deepseek.GLM_LITE,
    "gpt2": gpt2.GPT2,
    "llama4_text": llama4.LLAMA4,
    "minimax_m2": minimax.M2,
    "ministral3": ministral.MINISTRAL3,
    "phi": phi2.PHI2,
    "roberta": bert.ROBERTA,
    "xlm-roberta": bert.ROBERTA,
    "qwen3_next": qwen_next.NEXT,
    "qwen3_5_text": qwen_next.QWEN35,
    "qwen3_5_moe_text": qwen_next.QWEN35_MOE,
}


def own_parts(kind: str, config: ModelConfig) -> dict[str, Part]:
    """What the tensors of a `model_type`'s checkpoints hold of others, by canonical name; empty for other types."""
    if kind not in HF_FAMILIES:
        return {}
    family = HF_FAMILIES[kind]
    return {name: part for layer in range(config.num_layers) for name, part in family.parts(config, layer).items()}
