"""Which type a tensor gets in a model quantised to one. Owns the rule, for writing weights and for planning them.

The matrix that makes logits (the output, or the embedding where it serves as that) gets at least Q6_K; vectors and the
routers of experts stay as they are. A matrix whose rows are not whole blocks falls back to a type with smaller blocks,
as GGML's tool has it.
"""

from twostroke.weights.tensor_types import TensorType

_FALLBACKS = {TensorType.Q4_K: TensorType.Q5_0, TensorType.Q5_K: TensorType.Q5_1, TensorType.Q6_K: TensorType.Q8_0}
_ROUTERS = ("ffn_gate_inp", "ffn_gate_inp_shexp")


def matrix_type(name: str, shape: tuple[int, ...], kind: TensorType, has_output: bool) -> TensorType | None:
    """The type a tensor gets in a model of type `kind`, whatever its rows; None where it stays as it is.

    `has_output` tells whether the logits come from an output matrix, not from the embedding.
    """
    if len(shape) < 2 or not name.endswith(".weight") or name.split(".")[-2] in _ROUTERS:
        return None
    is_output = name == ("output.weight" if has_output else "token_embd.weight")
    return TensorType.Q6_K if is_output and kind.bits_per_weight < TensorType.Q6_K.bits_per_weight else kind


def whole_blocks(wanted: TensorType, row: int) -> TensorType:
    """`wanted`, or where rows of `row` values are not whole blocks of it, a type of which they are."""
    found = _FALLBACKS.get(wanted, TensorType.F16) if row % wanted.block_size else wanted
    return TensorType.F16 if row % found.block_size else found
