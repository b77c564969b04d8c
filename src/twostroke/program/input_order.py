"""The pass for matrices whose columns multiply their inputs in another order, as GPTQ's activation order leaves them.

Owns where inputs are put in order; the orders are the source's. It comes before fusion, which merges linears that read
the same value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from twostroke.program.ops import Linear, Op, Reorder
from twostroke.program.program import Program
from twostroke.program.values import Weight


def reorder_inputs(program: Program, order_of: Mapping[str, str]) -> Program:
    """Each linear with a matrix in `order_of` reads its input through a `Reorder` by the tensor named there.

    Matrices that name the same tensor and read the same value share one. `program` is not fused.
    """
    read: dict[tuple[str, str], str] = {}  # by input and order, the value in that order

    def rewrite(op: Op) -> Iterator[Op]:
        order = order_of.get(op.matrices[0].name) if isinstance(op, Linear) else None
        if order is None or not isinstance(op, Linear):
            yield op
            return
        ordered = f"{op.input} by {order}"
        if (op.input, order) not in read:
            read[op.input, order] = ordered
            yield Reorder(ordered, op.input, Weight(order, op.matrices[0].shape[1:]))
        yield replace(op, input=ordered)

    return Program(tuple(new for op in program.ops for new in rewrite(op)), program.outputs)
