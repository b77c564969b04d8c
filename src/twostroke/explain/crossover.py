"""Where prefill becomes compute-bound: the shortest prompt whose arithmetic takes longer than its bytes, at the roofs.

Owns the search; FLOPs and bytes are the cost model's.
"""

from twostroke.program.cost import CostModel
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.memory_sum import largest
from twostroke.roofline.work import prefill_steps


def crossover(cost: CostModel, hardware: HardwareSpec, context: int, chunk_tokens: int) -> int | None:
    """Tokens of that prompt, up to `context`; None where every prompt is memory-bound, or FLOP/s are not known."""
    if not hardware.flops:
        return None

    def is_memory_bound(prompt: int) -> bool:
        flops = num_bytes = read = steps = 0.0
        for chunks, count in prefill_steps(prompt, 1, chunk_tokens).items():
            step = cost.step(chunks)
            flops += count * step.flops
            num_bytes += count * step.bytes
            read += count * (step.weight_bytes + step.kv_bytes)
            steps += count
        return flops / hardware.peak_flops <= num_bytes / hardware.bytes_per_s_at(read / steps)

    limit = min(context, chunk_tokens)  # longer prompts are read in chunks of this many
    longest = largest(is_memory_bound, limit)
    return longest + 1 if longest < limit else None
