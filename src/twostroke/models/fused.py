"""Which tensors of a model are stored fused with others. Owns the layouts; cutting is the matter of `parts`.

A file stores q, k and v as `attn_qkv`, one after the other or (GPT-NeoX in its own format) head by head; Phi's gate and
up as one `ffn_up`, gate first; gpt-oss in its own format all experts' gate and up as `ffn_gate_up_exps`, row by row in
turn, in 16 bits with inputs as rows, in MXFP4 with outputs. GGUF stores the one row that gates a shared expert as a
vector.
"""

from collections.abc import Collection, Iterator

from twostroke.models.config import ModelConfig
from twostroke.models.part import Part


def parts_of(
    config: ModelConfig, stored: Collection[str], *, by_head: bool = False, transposed_experts: bool = True
) -> dict[str, Part]:
    """Each fused tensor's part by canonical name, for a model whose tensors are named `stored`.

    `by_head`: a fused `attn_qkv` holds q, k and v of one head after those of another. `transposed_experts`: rows of
    a fused `ffn_gate_up_exps`, and of `ffn_down_exps` beside it, are inputs.
    """
    parts: dict[str, Part] = {}
    for layer in range(config.num_layers):
        prefix = f"blk.{layer}."
        if (gate := f"{prefix}ffn_gate_inp_shexp.weight") in stored:
            parts[gate] = Part(gate, (1, config.dim), (1,))
        for kind in ("weight", "bias"):
            if f"{prefix}attn_qkv.{kind}" in stored:
                parts.update(_qkv(config, prefix, kind, by_head=by_head))
            if config.architecture == "phi3" and f"{prefix}ffn_up.{kind}" in stored:
                parts.update(_gate_up(config, prefix, kind))
            if f"{prefix}ffn_gate_up_exps.{kind}" in stored:
                parts.update(_experts(config, prefix, kind, transposed=transposed_experts))
    return parts


def _qkv(config: ModelConfig, prefix: str, kind: str, *, by_head: bool) -> Iterator[tuple[str, Part]]:
    tensor, first, vectors = f"{prefix}attn_qkv.{kind}", 0, kind == "bias"
    total = config.q_dim + 2 * config.kv_dim
    for place, (name, rows) in enumerate((("q", config.q_dim), ("k", config.kv_dim), ("v", config.kv_dim))):
        shape = (rows, config.dim) if kind == "weight" else (rows,)
        if by_head:
            part = Part(tensor, shape, (config.num_heads, 3, config.head_dim), (slice(None), place), vectors=vectors)
        else:
            part = Part(tensor, shape, (total,), (slice(first, first + rows),), vectors=vectors)
        yield f"{prefix}attn_{name}.{kind}", part
        first += rows


def _gate_up(config: ModelConfig, prefix: str, kind: str) -> Iterator[tuple[str, Part]]:
    rows = config.ffn_dim
    shape = (rows, config.dim) if kind == "weight" else (rows,)
    for name, first in (("gate", 0), ("up", rows)):
        part = Part(f"{prefix}ffn_up.{kind}", shape, (2 * rows,), (slice(first, first + rows),), vectors=kind == "bias")
        yield f"{prefix}ffn_{name}.{kind}", part


def _experts(config: ModelConfig, prefix: str, kind: str, *, transposed: bool) -> Iterator[tuple[str, Part]]:
    count, rows = config.num_experts, config.expert_ffn_dim
    is_matrix = kind == "weight"
    tensor, shape = f"{prefix}ffn_gate_up_exps.{kind}", (count, rows, config.dim) if is_matrix else (count, rows)
    for place, name in enumerate(("gate", "up")):
        index = (slice(None), slice(None), place)
        yield (
            f"{prefix}ffn_{name}_exps.{kind}",
            Part(tensor, shape, (count, rows, 2), index, is_matrix and transposed, not is_matrix),
        )
    if is_matrix and transposed:
        shape = (count, config.dim, rows)
        down = f"{prefix}ffn_down_exps.weight"
        yield down, Part(down, shape, (count, config.dim), transposed=True)
