"""Which family builds the program of which architecture. Owns the table; a new family is one file and one line here.

The table names functions, so that a model loads its own family and no other.
"""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module

from twostroke.errors import UnsupportedModelError
from twostroke.models.config import ModelConfig
from twostroke.program.builder import Builder
from twostroke.program.program import Program

Family = Callable[[Builder, ModelConfig, Collection[str]], None]

# By the name in `general.architecture`: a module beside this one, and its function.
FAMILIES: Mapping[str, str] = {
    "llama": "llama.build",
    "smollm3": "llama.build",
    "phi3": "llama.build",
    "granite": "llama.build",
    "qwen2": "qwen.qwen2",
    "qwen2moe": "qwen.qwen2",
    "qwen3": "qwen.qwen3",
    "qwen3moe": "qwen.qwen3",
    "gemma2": "gemma.gemma2",
    "gemma3": "gemma.gemma3",
    "olmo2": "olmo.olmo2",
    "olmoe": "olmo.olmoe",
    "stablelm": "neox.stablelm",
    "gptneox": "neox.gptneox",
    "gpt-oss": "gpt_oss.build",
    "command-r": "cohere.build",
    "cohere2": "cohere.build",
    "bert": "bert.build",
    "gpt2": "gpt2.build",
    "phi2": "phi2.build",
    "chatglm": "glm.glm",
    "glm4": "glm.glm4",
    "glm4moe": "glm.glm4moe",
    "llama4": "llama4.build",
    "mistral3": "llama.build",
    "gemma4": "gemma4.build",
    "minimax-m2": "minimax.build",
    "deepseek2": "deepseek.deepseek2",
    "deepseek3": "deepseek.deepseek3",
    "qwen3next": "qwen_next.build",
    "qwen35": "qwen_next.build",
    "qwen35moe": "qwen_next.build",
}
# Of these, those that are read from Hugging Face directories only.
HF_ARCHITECTURES = frozenset(
    {
        "bert",
        *("command-r", "cohere2", "gpt2", "phi2", "chatglm", "glm4", "glm4moe", "llama4", "mistral3", "gemma4"),
        *("minimax-m2", "deepseek2", "deepseek3", "qwen3next", "qwen35", "qwen35moe"),
    }
)
OUTPUTS = ("logits", "hidden")


def family_of(architecture: str) -> Family:
    """The family of an architecture. Raises UnsupportedModelError that lists those there are."""
    if architecture not in FAMILIES:
        raise UnsupportedModelError(
            f"architecture {architecture!r} is not supported, only {', '.join(sorted(FAMILIES))}"
        )
    module, function = FAMILIES[architecture].split(".")
    family: Family = getattr(import_module(f"twostroke.models.{module}"), function)
    return family


def build_program(config: ModelConfig, outputs: Collection[str] | None = None) -> Program:
    """The program of a model, not yet fused (see `program.passes.fuse`).

    `outputs` are among "logits" (num_outputs, vocab_size) and "hidden" (num_outputs, dim), the normed rows that logits
    come from; None for "logits", or the "hidden" that an encoder gives. Naming "hidden" keeps the last norm from being
    fused. Raises UnsupportedModelError for an unknown architecture, ValueError for an unknown output.
    """
    if outputs is None:
        outputs = ("hidden",) if config.is_encoder else ("logits",)
    unknown = set(outputs) - set(OUTPUTS)
    if unknown or not outputs:
        raise ValueError(f"outputs are among {OUTPUTS}, not {tuple(outputs)}")
    builder = Builder()
    family_of(config.architecture)(builder, config, outputs)
    return builder.build()
