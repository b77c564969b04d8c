"""Passes: Program to Program, what executor, cost and planner all read. Owns fusion and liveness; changes no result.

Order matters: linears of one input merge first, so that the norm before them has one reader and can be taken in.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from twostroke.program.ops import Add, Attention, Gated, Linear, Normalize, Op, Rope
from twostroke.program.program import Program
from twostroke.program.values import Rows


def fuse(program: Program) -> Program:
    """All fusions: parallel linears, gate and up, norm, residual, RoPE. The program's outputs keep their names."""
    passes: tuple[Callable[[Program], Program], ...] = (
        merge_parallel_linears,
        fuse_gate,
        fuse_norm,
        fuse_residual,
        fuse_rope,
    )
    for apply in passes:
        program = apply(program)
    return program


def merge_parallel_linears(program: Program) -> Program:
    """Linears that read the same value become one, which reads it once (q, k, v; gate and up)."""
    merged: dict[str, list[Linear]] = {}
    for op in program.ops:
        if isinstance(op, Linear) and _is_plain(op):
            merged.setdefault(op.input, []).append(op)

    def rewrite(op: Op) -> Iterable[Op]:
        if not (isinstance(op, Linear) and _is_plain(op)):
            return (op,)
        family = merged[op.input]
        if op is not family[0]:
            return ()
        return (
            replace(
                op,
                results=tuple(name for part in family for name in part.results),
                matrices=tuple(matrix for part in family for matrix in part.matrices),
                biases=tuple(bias for part in family for bias in part.biases),
            ),
        )

    return _rewrite(program, rewrite)


def fuse_gate(program: Program) -> Program:
    """gated(linear(x; gate, up)) becomes one gated linear: gate and up never reach memory."""
    producers = {
        op.outputs: op for op in program.ops if isinstance(op, Linear) and len(op.matrices) == 2 and _is_plain(op)
    }
    gated = {
        (op.gate, op.up): op
        for op in program.ops
        if isinstance(op, Gated)
        and (op.gate, op.up) in producers
        and not any(producers[op.gate, op.up].biases)
        and _only_reader(program, op.gate)
        and _only_reader(program, op.up)
    }

    def rewrite(op: Op) -> Iterable[Op]:
        if isinstance(op, Gated) and gated.get((op.gate, op.up)) is op:
            return ()
        if isinstance(op, Linear) and op.outputs in gated:
            return (replace(op, results=(gated[op.outputs].output,), gate=gated[op.outputs].activation),)
        return (op,)

    return _rewrite(program, rewrite)


def fuse_norm(program: Program) -> Program:
    """A norm whose only reader is a linear is applied as the linear reads its input."""
    norms = {
        op.output: op
        for op in program.ops
        if isinstance(op, Normalize)
        and op.group_dim is None
        and _only_reader(program, op.output)
        and _is_linear_without_norm(program.readers(op.output)[0], op.output)
    }

    def rewrite(op: Op) -> Iterable[Op]:
        if isinstance(op, Normalize) and op.output in norms:
            return ()
        if isinstance(op, Linear) and op.input in norms:
            norm = norms[op.input]
            return (replace(op, input=norm.input, norm=norm.norm),)
        return (op,)

    return _rewrite(program, rewrite)


def fuse_residual(program: Program) -> Program:
    """add(x, linear(y)) becomes a linear that adds x as it writes."""
    adds: dict[str, Add] = {}
    written: set[str] = set()
    for op in program.ops:
        if isinstance(op, Linear) and _takes_residual(op) and _only_reader(program, op.results[0]):
            reader = program.readers(op.results[0])[0]
            if isinstance(reader, Add) and reader.right == op.results[0] and reader.left in written:
                adds[op.results[0]] = reader
        written.update(op.outputs)

    def rewrite(op: Op) -> Iterable[Op]:
        if isinstance(op, Add) and adds.get(op.right) is op:
            return ()
        if isinstance(op, Linear) and op.results[0] in adds:
            add = adds[op.results[0]]
            return (replace(op, results=(add.output,), residual=add.left),)
        return (op,)

    return _rewrite(program, rewrite)


def fuse_rope(program: Program) -> Program:
    """RoPE of q and k happens as attention reads them, where both rotate alike and have no other reader."""
    ropes = {op.output: op for op in program.ops if isinstance(op, Rope) and _only_reader(program, op.output)}
    fused: dict[str, tuple[Rope, Rope]] = {}
    for op in program.ops:
        if isinstance(op, Attention) and op.q in ropes and op.k in ropes and op.v not in (op.q, op.k):
            q, k = ropes[op.q], ropes[op.k]
            if q.rope == k.rope and q.head_dim == k.head_dim == op.cache.head_dim:
                fused[op.output] = (q, k)
    gone = {rope.output for pair in fused.values() for rope in pair}

    def rewrite(op: Op) -> Iterable[Op]:
        if isinstance(op, Rope) and op.output in gone:
            return ()
        if isinstance(op, Attention) and op.output in fused:
            q, k = fused[op.output]
            return (replace(op, q=q.input, k=k.input, rope=q.rope),)
        return (op,)

    return _rewrite(program, rewrite)


class Arena(NamedTuple):
    """Where each value lives: `offsets` in float32 elements per row, `dim` elements per row in all, by row kind.

    Values whose lifetimes do not overlap share space.
    """

    offsets: dict[str, int]
    dims: dict[Rows, int]


def plan_arena(program: Program) -> Arena:
    """Offsets by first fit over lifetimes; an output of the program lives to the end."""
    last_use = {name: index for index, op in enumerate(program.ops) for name in (*op.outputs, *op.inputs)}
    last_use |= dict.fromkeys(program.outputs.values(), len(program.ops))
    live: dict[Rows, list[tuple[int, int, str]]] = {Rows.TOKENS: [], Rows.OUTPUTS: []}
    offsets: dict[str, int] = {}
    dims = {Rows.TOKENS: 0, Rows.OUTPUTS: 0}
    for index, op in enumerate(program.ops):
        for name in op.outputs:
            value = program.values[name]
            rows = sorted(entry for entry in live[value.rows] if last_use[entry[2]] >= index)
            start = 0
            for begin, end, _ in rows:
                if begin - start >= value.dim:
                    break
                start = end
            live[value.rows] = [*rows, (start, start + value.dim, name)]
            offsets[name] = start
            dims[value.rows] = max(dims[value.rows], start + value.dim)
    return Arena(offsets, dims)


def _is_plain(op: Linear) -> bool:
    return op.norm is None and op.residual is None and op.gate is None


def _is_linear_without_norm(op: Op, name: str) -> bool:
    return isinstance(op, Linear) and op.norm is None and op.input == name and op.residual != name


def _takes_residual(op: Linear) -> bool:
    return len(op.results) == 1 and op.gate is None and op.residual is None


def _only_reader(program: Program, name: str) -> bool:
    return len(program.readers(name)) == 1 and name not in program.outputs.values()


def _rewrite(program: Program, rewrite: Callable[[Op], Iterable[Op]]) -> Program:
    return Program(tuple(new for op in program.ops for new in rewrite(op)), program.outputs)
