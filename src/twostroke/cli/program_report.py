"""A model's program op by op: shapes, and what each op computes and moves in a decode step and in a prefill.

Owns the per-op sums; their table is `program_table`'s, and the formulas are the cost rules of `program.cost`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from twostroke.cli.program_table import program_lines
from twostroke.program.cost import ChunkShape, CostModel, Resource, StepCost, Storage, measure, op_terms
from twostroke.program.ops import Op
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.program.values import Value


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """What a program costs for one request: `prefill` of `tokens` tokens at once, then one `decode` token after them.

    `costs` has (decode, prefill) for each op of the program, in order.
    """

    program: Program
    storage: Storage
    tokens: int
    costs: tuple[tuple[StepCost, StepCost], ...]
    decode: StepCost
    prefill: StepCost

    def fields(self) -> dict[str, object]:
        """For JSON: FLOPs and bytes."""
        ops = [
            {
                "op": op.kind,
                "inputs": list(op.inputs),
                "outputs": [_value_fields(self.program.values[name]) for name in op.outputs],
                "weights": [{"name": weight.name, "shape": list(weight.shape)} for weight in op.weights],
                "decode": asdict(decode),
                "prefill": asdict(prefill),
            }
            for op, (decode, prefill) in zip(self.program.ops, self.costs, strict=True)
        ]
        return {"tokens": self.tokens, "decode": asdict(self.decode), "prefill": asdict(self.prefill), "ops": ops}

    def lines(self) -> Iterator[str]:
        """A table, an op a line, layers that are alike once, with the totals last."""
        return program_lines(self.program, self.costs, (self.decode, self.prefill))


def report_program(program: Program, storage: Storage, tokens: int) -> ProgramReport:
    """Costs of every op and of the whole for one request that gives one output row a step."""
    decode, prefill = ChunkShape(tokens, 1, 1, phase=Phase.DECODE), ChunkShape(0, tokens, 1)
    cost = CostModel(program, storage)
    costs = tuple(
        (_op_cost(op, program.values, storage, decode), _op_cost(op, program.values, storage, prefill))
        for op in program.ops
    )
    return ProgramReport(program, storage, tokens, costs, cost.step([decode]), cost.step([prefill]))


def _op_cost(op: Op, values: Mapping[str, Value], storage: Storage, chunk: ChunkShape) -> StepCost:
    totals = dict.fromkeys(Resource, 0.0)
    for term in op_terms(op, values):
        per_element = 1.0 if term.resource is Resource.FLOPS else storage.bits(term.storage) / 8
        totals[term.resource] += term.count * per_element * measure(term.unit, term.scope, (chunk,))
    return StepCost(*(totals[resource] for resource in Resource))


def _value_fields(value: Value) -> dict[str, object]:
    return {"name": value.name, "rows": str(value.rows), "dim": value.dim}
