"""Where the golden checkpoints of all families are, and which of them run where. Owns no checks."""

from pathlib import Path

FOLDER = Path(__file__).parent / "golden" / "families"
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())
# Of families that the reference and the planner run and the native executor refuses.
PLANNED = frozenset(
    (
        *("cohere-plus", "glm4moe", "glm4moelite", "gpt2", "llama4", "minimax-m2"),
        *("gemma4", "ministral3"),
        *("deepseek2", "deepseek2-lite", "deepseek3"),
        *("qwen35", "qwen35moe", "qwen3next"),
    )
)
# Of families that are read from Hugging Face directories only.
HF_ONLY = PLANNED | {"cohere", "cohere2", "glm", "glm4", "phi2"}
NATIVE = [name for name in NAMES if name not in PLANNED]
IN_GGUF = [name for name in NAMES if name not in HF_ONLY]
