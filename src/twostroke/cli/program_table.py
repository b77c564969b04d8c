"""A program's ops as a table to read: a layer like one before it is a line with their sum. Owns the layout."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from twostroke.cli.figures import bytes_text, count_text, printable, table
from twostroke.program.cost import StepCost
from twostroke.program.ops import Op
from twostroke.program.program import Program
from twostroke.program.values import Rows, Value

Costs = tuple[StepCost, StepCost]  # of a decode step, of a prefill
_LAYER = re.compile(r"blk\.(\d+)\.")


def program_lines(program: Program, costs: Sequence[Costs], whole: Costs) -> Iterator[str]:
    """A line an op, but one for all layers that are like one shown before; the totals last."""
    rows = [["decode FLOPs", "bytes", "prefill FLOPs", "bytes", "op"]]
    shown: dict[tuple[object, ...], int] = {}  # layers by what they are like
    alike: dict[int, list[int]] = {}
    layers = [(layer, [index for index, _ in run]) for layer, run in groupby(enumerate(program.ops), _layer_of)]
    keys = {layer: _key(program, costs, run) for layer, run in layers if layer is not None}
    for number, key in keys.items():
        alike.setdefault(shown.setdefault(key, number), []).append(number)
    for layer, run in layers:
        if layer is not None and shown[keys[layer]] != layer:
            continue
        if layer is not None:
            rows.append(["", "", "", "", f"layer {layer}"])
        rows += [[*_figures([costs[i]]), _op_text(program.ops[i], program.values, layer)] for i in run]
        if layer is not None and (others := alike[layer][1:]):
            rows.append([*_figures([costs[i] for i in run] * len(others)), f"{_listed(others)}, as layer {layer}"])
    rows.append([*_figures([whole]), "total"])
    figures = list(table([row[:-1] for row in rows], left=0))
    width = max(map(len, figures))
    for line, row in zip(figures, rows, strict=True):
        yield f"{line:{width}}  {printable(row[-1])}"


def _figures(costs: Sequence[Costs]) -> list[str]:
    """FLOPs and bytes of decode and of prefill, summed."""
    return [
        text
        for phase in (0, 1)
        for text in (
            count_text(sum(cost[phase].flops for cost in costs)),
            bytes_text(sum(cost[phase].bytes for cost in costs)),
        )
    ]


def _layer_of(entry: tuple[int, Op]) -> int | None:
    found = _LAYER.match(entry[1].outputs[0])
    return int(found[1]) if found else None


def _key(program: Program, costs: Sequence[Costs], run: Sequence[int]) -> tuple[object, ...]:
    """What makes layers alike: their ops, weights and costs, whatever they read."""
    return tuple(
        (
            program.ops[i].kind,
            tuple(_LAYER.sub("", str(weight)) for weight in program.ops[i].weights),
            tuple(program.values[name].dim for name in program.ops[i].outputs),
            costs[i],
        )
        for i in run
    )


def _op_text(op: Op, values: Mapping[str, Value], layer: int | None) -> str:
    """What it writes, with its width, and what it reads; within a layer the layer's name is left out."""
    prefix = "" if layer is None else f"blk.{layer}."
    written = ", ".join(
        f"{name.removeprefix(prefix)} {values[name].dim}" + (" of outputs" if values[name].rows is Rows.OUTPUTS else "")
        for name in op.outputs
    )
    read = ", ".join(name.removeprefix(prefix) for name in op.inputs)
    weights = ", ".join(weight.name.removeprefix(prefix).removesuffix(".weight") for weight in op.weights)
    indent = "" if layer is None else "  "
    return f"{indent}{written} = {op.kind}({'; '.join(part for part in (read, weights) if part)})"


def _listed(layers: Sequence[int]) -> str:
    """Numbers as stretches: layers 1 to 4, 6."""
    stretches = [
        [number for _, number in run] for _, run in groupby(enumerate(layers), lambda entry: entry[1] - entry[0])
    ]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in stretches]
    return ("layer " if len(layers) == 1 else "layers ") + ", ".join(texts)
