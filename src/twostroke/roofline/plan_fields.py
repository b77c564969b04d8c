"""A plan as JSON: the keys of `plan --json`. Owns their names; the figures are the planner's."""

from typing import Any

from twostroke.roofline.planner import Plan, Prediction, inputs_of


def plan_fields(plan: Plan) -> dict[str, Any]:
    """One plan: seconds, bytes, SI rates."""
    memory, scenario = plan.memory, plan.scenario
    return {
        "model": plan.model.name,
        "hardware": plan.target.name,
        "context": scenario.context,
        "batch": scenario.batch,
        "weights": plan.model.weights,
        "kv": scenario.kv,
        "memory": {
            "weight_bytes": round(memory.weight_bytes),
            "kv_bytes": round(memory.kv_bytes),
            "kv_bytes_per_token": memory.kv_bytes_per_token,
            "state_bytes": round(memory.state_bytes),
            "activation_bytes": round(memory.activation_bytes),
            "overhead_bytes": round(memory.overhead_bytes),
            "total_bytes": round(memory.total_bytes),
            "capacity_bytes": None if memory.capacity_bytes is None else round(memory.capacity_bytes),
            "fits": memory.fits,
            "max_context": plan.max_context,
            "max_batch": plan.max_batch,
        },
        "prefill": None if plan.prefill is None else _prefill_fields(plan, plan.prefill),
        "decode": None if plan.generated is None else _decode_fields(plan, plan.generated),
        "ridge_point": plan.ridge_point,
        "inputs": inputs_of(plan),
    }


def _prefill_fields(plan: Plan, prefill: Prediction) -> dict[str, Any]:
    new = plan.scenario.batch * (plan.scenario.prompt - plan.scenario.cached)
    return {
        "seconds": prefill.total,
        "seconds_low": prefill.low,
        "seconds_high": prefill.high,
        "tok_s": new / prefill.total,
        "flops": prefill.work.flops,
        "bytes": prefill.work.read_bytes,
        "bound": prefill.seconds.bound,
        "intensity": prefill.work.intensity,
    }


def _decode_fields(plan: Plan, decode: Prediction) -> dict[str, Any]:
    return {
        "tpot_s": plan.tpot_s,
        "tpot_s_low": decode.low / plan.scenario.tokens_a_step,
        "tpot_s_high": decode.high / plan.scenario.tokens_a_step,
        "tok_s": plan.tok_s,
        "total_tok_s": plan.total_tok_s,
        "weight_bytes": decode.work.weight_bytes + decode.work.expert_bytes,
        "kv_bytes": decode.work.kv_bytes,
        "bound": decode.seconds.bound,
        "intensity": decode.work.intensity,
    }
