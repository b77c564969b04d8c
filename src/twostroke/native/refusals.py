"""What of the op vocabulary the native executor cannot run. Owns the refusal by name; the reference runs all of it."""

from collections.abc import Iterator, Mapping
from typing import Any

from twostroke.errors import UnsupportedModelError
from twostroke.program import ops
from twostroke.program.program import Program

# Kinds of op without native code.
NOT_NATIVE: Mapping[type[ops.Op], str] = {
    ops.LatentAttention: "multi-head latent attention",
    ops.Convolution: "causal convolution",
    ops.GatedDelta: "linear attention by the gated delta rule",
    ops.AddPosition: "learned positions",
    ops.ScaleByPosition: "queries scaled by position",
    ops.ScaleByWeight: "layers scaled by a weight",
    ops.EncoderAttention: "attention of an encoder",
    ops.AddVector: "an embedding of the kind of text",
    ops.Columns: "inputs of each layer's own",
}


def refuse_unsupported(program: Program) -> None:
    """Raises UnsupportedModelError, naming what is missing, for a program that the native executor cannot run."""
    missing = dict.fromkeys(reason for op in program.ops for reason in _missing(op, program))
    if missing:
        raise UnsupportedModelError(
            f"this model needs {', '.join(missing)}: the native executor has no code for that yet, so it can be"
            " planned but not run"
        )


def _missing(op: ops.Op, program: Program) -> Iterator[str]:
    if type(op) in NOT_NATIVE:
        yield NOT_NATIVE[type(op)]
    if isinstance(op, ops.Attention):
        yield from _of_attention(op)
    if isinstance(op, ops.Experts):
        yield from _of_experts(op)
    norm: Any = getattr(op, "norm", None)
    if norm is not None and norm.weight is None:
        yield "norms without weights"
    if norm is not None and norm.weight is not None and len(norm.weight.shape) > 1:
        yield "norms of each head with weights of its own"
    if isinstance(op, ops.SigmoidGate) and program.values[op.gate].dim > 1:
        yield "a sigmoid gate of every element"


def _of_attention(op: ops.Attention) -> Iterator[str]:
    if op.cache.segment is not None:
        yield "attention within segments"
    if op.k is None:
        yield "attention to keys of another layer"


def _of_experts(op: ops.Experts) -> Iterator[str]:
    routed = op.routed
    if routed.kind == "sigmoid_topk":
        yield "experts chosen by sigmoid"
    if routed.num_groups > 1:
        yield "experts chosen within groups"
    if routed.choice_bias is not None:
        yield "a bias of the choice of experts"
    if routed.expert_scales is not None:
        yield "a scale of each expert"
