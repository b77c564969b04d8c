"""What a page needs to answer "what if": the program's cost terms and the constants of every machine, as plain data.

Owns the form, which `evaluate.js` reads: it multiplies terms by units (docs/cost.md) and adds up seconds as `step_time`
does. For a prompt of C tokens and a batch, its figures are those of a plan with an answer of one token.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, get_args

from twostroke.native.executor import BLOCK_TOKENS
from twostroke.program.cost import Storage, op_terms
from twostroke.program.cost_export import cost_fields
from twostroke.program.cost_terms import Resource, Unit
from twostroke.roofline.efficiency import Arithmetic, WeightMix, find_efficiency
from twostroke.roofline.hardware_catalogue import load_hardware
from twostroke.roofline.memory_sum import Room, memory_sum, own_sum
from twostroke.roofline.planned_model import KV_BITS, PlannedModel
from twostroke.roofline.planner import Scenario, room_of, usual_engine
from twostroke.roofline.step_time import Seconds, arithmetic_peak
from twostroke.roofline.target import Target, target_of
from twostroke.roofline.weight_format import find_format
from twostroke.roofline.work import part_of

_BITS = (4, 5, 6, 8, 16, 32, 64)
_BATCHES = 64
_PROBE = 7  # a width that no part of a model keeps when all else changes


def what_if_of(model: PlannedModel, target: Target, scenario: Scenario) -> dict[str, Any]:
    """The data: `target` is the first of the machines, the catalogue's follow."""
    mixes: dict[int | None, WeightMix] = {None: model.weight_mix}
    mixes |= {bits: model.in_format(f"{bits}bpw").weight_mix for bits in _BITS}
    machines = [target, *(target_of(device) for device in load_hardware().values())]
    engines: dict[str, Any] = {}
    for machine in machines:
        for bits, mix in mixes.items():
            name = mix.kind if _by(machine) == "class" else bits or "own"
            key = f"{usual_engine(machine)}/{machine.kind}/{name}"
            if key not in engines:
                engines[key] = _engine(machine, mix)
    cost = cost_fields(model.program, Storage(model.bits, KV_BITS[scenario.kv]))
    return {
        "terms": _terms(model, cost["terms"]),
        "caches": cost["caches"],
        "bits": cost["bits"],
        "weights": _sizes(model, model.program.weights),
        "embedding": _sizes(model, [name for name in model.program.weights if name == "token_embd.weight"]),
        "num_layers": model.config.num_layers,
        "max_context": model.config.context_length,
        "context": scenario.prompt,
        "batch": scenario.batch,
        "most_batch": max(_BATCHES, scenario.batch),
        "widths": [
            {
                "label": f"as it is ({model.weights})" if bits is None else f"{bits} bits",
                "bits": bits,
                "class": mix.kind,
            }
            for bits, mix in mixes.items()
        ],
        "engines": engines,
        "machines": [_machine(model, machine, scenario) for machine in machines],
    }


def _terms(model: PlannedModel, terms: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The program's terms with the part of the work each is; those of weights also with what does not change with the
    width of matrices (`fixed`) and what does (`per_bit`)."""
    weights = _weight_terms(model)
    found = []
    for term in terms:
        scope = tuple(term["scope"]) if isinstance(term["scope"], list) else term["scope"]
        resource, unit = Resource(term["resource"]), Unit(term["unit"])
        row = {"part": part_of(resource, unit), "unit": unit, "scope": scope, "coefficient": term["coefficient"]}
        if resource is Resource.WEIGHT_BYTES:
            row["fixed"], row["per_bit"] = weights[unit, scope]
        found.append(row)
    return found


def _weight_terms(model: PlannedModel) -> dict[Any, tuple[float, float]]:
    """By unit and scope, bytes of the weights that keep their type and bytes a bit of those that do not."""
    kept, program = _kept_bits(model), model.program
    found: dict[Any, tuple[float, float]] = {}
    for op in program.ops:
        for term in op_terms(op, program.values):
            if term.resource is Resource.WEIGHT_BYTES:
                fixed, per_bit = found.get((term.unit, term.scope), (0.0, 0.0))
                if term.storage in kept:
                    fixed += term.count * kept[term.storage] / 8
                else:
                    per_bit += term.count / 8
                found[term.unit, term.scope] = (fixed, per_bit)
    return found


def _kept_bits(model: PlannedModel) -> dict[str, float]:
    """Weights that a format of one width leaves as they are, vectors and routers, with their bits there."""
    bits = find_format(f"{_PROBE}bpw").weight_bits(model.program.weights)
    return {name: own for name, own in bits.items() if own != _PROBE}


def _sizes(model: PlannedModel, names: Iterable[str]) -> dict[str, float]:
    """Bytes of these weights as they are, and of their parts that keep and that change their type."""
    kept, weights = _kept_bits(model), model.program.weights
    sizes = {name: weights[name].num_elements / 8 for name in names}
    return {
        "bytes": sum(size * model.bits[name] for name, size in sizes.items()),
        "fixed": sum(size * kept[name] for name, size in sizes.items() if name in kept),
        "per_bit": sum(size for name, size in sizes.items() if name not in kept),
    }


# --- machines ---------------------------------------------------------------------------------------------------------


def _by(target: Target) -> str:
    """What of a width a machine's constants are by: its "class", or its "bits" for this engine, fitted type by type."""
    return "bits" if usual_engine(target) == "twostroke" else "class"


def _engine(target: Target, mix: WeightMix) -> dict[str, Any]:
    """The constants of `efficiency`, by which nominal seconds are multiplied."""
    found = find_efficiency(usual_engine(target), target.kind, mix)
    names = [field.name for field in fields(Seconds)]
    return {
        "name": usual_engine(target),
        "factors": dict(zip(names, found.factors, strict=True)),
        "generated_on": found.generated_on,
        "prompt_on": found.prompt_on,
        "attention_on": "16bit",
        "overlap": found.overlap,
        "few_rows": found.kinds.few,
        "tile_rows": found.kinds.tile,
        "chunk_tokens": found.chunk_tokens,
        "bands": {phase: [found.band(phase), found.band(phase, 2)] for phase in ("prefill", "decode")},
    }


def _machine(model: PlannedModel, target: Target, scenario: Scenario) -> dict[str, Any]:
    """Bandwidth by working set, seconds a FLOP of each kind of arithmetic, and the memory beside weights and cache.
    This engine's cache comes in blocks, of every layer alike."""
    spec = target.spec
    peaks = {kind: arithmetic_peak(spec, kind) for kind in get_args(Arithmetic)}
    engine = usual_engine(target)
    room = room_of(target, engine, find_efficiency(engine, target.kind, model.weight_mix))
    rest, slope, host = _rest(model, room, scenario)
    own = own_sum(model, room, scenario.prompt + 1, scenario.kv) if engine == "twostroke" else None
    return {
        "name": target.name,
        "group": target.kind,
        "capacity_bytes": room.capacity_bytes,
        "read_bandwidth": [list(point) for point in spec.read_bandwidth],
        "memory_span": list(spec.memory_span),
        "s_per_flop": {kind: 0.0 if math.isinf(peak) else 1 / peak for kind, peak in peaks.items()},
        "knows_flops": bool(spec.flops),
        "engine": f"{engine}/{target.kind}",
        "by": _by(target),
        "embeds_on_host": host > 0,
        "block_tokens": BLOCK_TOKENS if own else None,
        "block_bytes": sum(own.block_bytes) if own else None,
        "rest_bytes": rest,
        "rest_bytes_per_token": slope,
    }


def _rest(model: PlannedModel, room: Room, scenario: Scenario) -> tuple[float, float, float]:
    """Bytes beside weights and caches: at a context of 0, and for each token of it; and of the weights, those that stay
    on the host."""
    contexts, found, host = (1, max(2, scenario.prompt + 1)), [], 0.0
    for context in contexts:
        memory = memory_sum(model, room, context=context, batch=1, kv=scenario.kv)
        host = memory.host_bytes
        found.append(memory.total_bytes + host - model.weight_bytes - memory.kv_bytes - memory.state_bytes)
    slope = (found[1] - found[0]) / (contexts[1] - contexts[0])
    return found[0] - slope * contexts[0], slope, host
