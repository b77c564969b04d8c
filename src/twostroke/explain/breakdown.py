"""What steps compute and move by kind of op and by layer. Owns the grouping; the formulas are the cost rules'."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twostroke.explain.story import Part
from twostroke.program.cost import ChunkShape, Resource, Storage, measure, op_terms
from twostroke.program.ops import Op
from twostroke.program.program import Program

Steps = Mapping[tuple[ChunkShape, ...], float]  # how often each kind of step occurs


@dataclass(frozen=True, slots=True)
class OpCost:
    """An op, the layer it belongs to ("0", "1", ...; "input" before all, "output" after), and its totals."""

    op: Op
    layer: str
    totals: Mapping[Resource, float]


def op_costs(program: Program, storage: Storage, steps: Steps) -> list[OpCost]:
    """Every op's totals over these steps, in the program's order."""
    found = []
    layer = "input"
    for op in program.ops:
        own = _layer(op)
        layer = own if own is not None else "output" if layer != "input" else layer
        totals = dict.fromkeys(Resource, 0.0)
        for term in op_terms(op, program.values):
            per_element = 1.0 if term.resource is Resource.FLOPS else storage.bits(term.storage) / 8
            units = sum(count * measure(term.unit, term.scope, chunks) for chunks, count in steps.items())
            totals[term.resource] += term.count * per_element * units
        found.append(OpCost(op, layer, totals))
    return found


def by_kind(costs: list[OpCost]) -> tuple[Part, ...]:
    """Ops of a kind over weights of the same names together, in order of first use."""
    return _grouped(costs, lambda cost: _kind(cost.op))


def by_layer(costs: list[OpCost]) -> tuple[Part, ...]:
    """A part a layer, what is before and after them at the ends."""
    return _grouped(costs, lambda cost: cost.layer)


def _grouped(costs: list[OpCost], name_of: Callable[[OpCost], str]) -> tuple[Part, ...]:
    groups: dict[str, list[OpCost]] = {}
    for cost in costs:
        groups.setdefault(name_of(cost), []).append(cost)
    return tuple(
        Part(name, len(group), *(sum(cost.totals[resource] for cost in group) for resource in Resource))
        for name, group in groups.items()
    )


def _kind(op: Op) -> str:
    """The op's kind and the matrices it reads, by the last part of their names."""
    matrices = dict.fromkeys(weight.name.split(".")[-2] for weight in op.weights if len(weight.shape) > 1)
    return f"{op.kind}: {', '.join(matrices)}" if matrices else str(op.kind)


def _layer(op: Op) -> str | None:
    """From the names of what the op reads and writes of its own."""
    for name in (*op.outputs, *(weight.name for weight in op.weights)):
        if name.startswith("blk."):
            return name.split(".")[1]
    return None
