"""A program's cost as plain data, for a page or another program to evaluate. Owns the form, which docs/cost.md tells.

The terms are those of `CostModel`, in its order: who multiplies each by its unit and adds them up one after the other
gets its numbers to the bit.
"""

from collections.abc import Iterator
from typing import Any

from twostroke.program.cost import CostModel, Resource, Storage, op_terms
from twostroke.program.cost_terms import Scope, Unit
from twostroke.program.program import Program

_STORAGE = {Resource.FLOPS: None, Resource.WEIGHT_BYTES: "weight", Resource.ACTIVATION_BYTES: "activation"}


def cost_fields(program: Program, storage: Storage) -> dict[str, Any]:
    """`terms`, `caches`, `weights` and `bits` of a program, as JSON takes them; see docs/cost.md."""
    model = CostModel(program, storage)
    return {
        "terms": [
            {"resource": str(resource), "unit": str(unit), "scope": _scope(scope), "coefficient": coefficient}
            | {"storage": _storage(resource, unit)}
            for (resource, unit, scope), coefficient in model.coefficients.items()
        ],
        "caches": [
            {
                "kind": group.kind,
                "window": group.window,
                "segment": group.segment,
                "elements_per_token": group.elements_per_token,
                "state_elements": group.state_elements,
            }
            for group in program.cache_groups
        ],
        "weights": list(_weights(program, storage)),
        "bits": {"kv": storage.kv_bits, "state": storage.state_bits, "activation": storage.activation_bits},
        "chunk_alignment": program.chunk_alignment,
    }


def _storage(resource: Resource, unit: Unit) -> str | None:
    if resource is Resource.KV_BYTES:
        return "state" if unit is Unit.CHUNK else "kv"
    return _STORAGE[resource]


def _scope(scope: Scope) -> int | list[int] | None:
    return list(scope) if isinstance(scope, tuple) else scope


def _weights(program: Program, storage: Storage) -> Iterator[dict[str, Any]]:
    """Each weight's size, and how a step reads it: `bytes_per_unit` of each `unit`; a tied head is read in two ways."""
    reads: dict[str, list[dict[str, Any]]] = {}
    for op in program.ops:
        for term in op_terms(op, program.values):
            if term.resource is Resource.WEIGHT_BYTES:
                size = term.count * storage.bits(term.storage) / 8
                read = {"unit": str(term.unit), "scope": _scope(term.scope), "bytes_per_unit": size}
                reads.setdefault(term.storage, []).append(read)
    for name, weight in program.weights.items():
        size = weight.num_elements * storage.bits(name) / 8
        yield {"name": name, "shape": list(weight.shape), "bytes": size, "reads": reads.get(name, [])}
