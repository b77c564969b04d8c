"""Which constants does this engine need on a CPU, and how right are they?

    python benchmarks/planning_here.py [--write] [--repeats N]

Times single steps of made-up models (random weights, several shapes and types) in the native executor: prefill and
decode, one request and eight, short and long contexts. Takes the fastest tenth of the repeats, for what else runs only
ever makes a step slower. Fits the constants of "twostroke/cpu" against the roofs that `twostroke probe` kept, so run
that first. No model that people use is among those timed. The last line is JSON.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np
import numpy.typing as npt
from planning_fit import NAMES, WEIGHT_CLASSES, Array, fit
from planning_report import CONSTANTS

from twostroke.models.config import ModelConfig
from twostroke.models.registry import build_program
from twostroke.native.batch import Batch, BatchChunk
from twostroke.native.executor import BLOCK_TOKENS, ExecutorConfig, NativeExecutor
from twostroke.native.threads import choose_threads
from twostroke.program.cost import ChunkShape
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.roofline.efficiency import weight_class
from twostroke.roofline.probe import known_or_probed
from twostroke.roofline.step_time import nominal_seconds
from twostroke.roofline.work import step_work
from twostroke.weights.quantize import quantize
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

_CONTEXT, _SEED = 2304, 7
_BEGIN, _END = "# --- fitted by benchmarks/planning_here.py: do not edit ---", "# --- end of this engine ---"
SHAPES: Mapping[str, ModelConfig] = {
    name: ModelConfig("llama", name, layers, dim, heads, kv, size, ffn, vocab, _CONTEXT, 1e-5, size, tied_head=True)
    for name, layers, dim, heads, kv, size, ffn, vocab in (
        ("narrow", 12, 512, 8, 2, 64, 1536, 8000),
        ("middle", 8, 1024, 16, 4, 64, 2816, 16000),
        ("wide", 4, 2048, 16, 4, 128, 5632, 16000),
    )
}
TYPES = (TensorType.Q4_1, TensorType.Q8_0, TensorType.Q4_K, TensorType.Q6_K, TensorType.BF16)
# (prompt rows or 1 for decode, cached tokens, requests)
STEPS = ((64, 0, 1), (256, 0, 1), (256, 1792, 1), (1, 160, 1), (1, 2048, 1), (1, 160, 8), (1, 2048, 8))


@dataclass(frozen=True)
class RandomWeights:
    """A source of tensors of one type, vectors in float32, all of random values."""

    program: Program
    kind: TensorType

    @property
    def names(self) -> Iterator[str]:
        return iter(self.program.weights)

    def info(self, name: str) -> TensorInfo:
        weight = self.program.weights[name]
        kind = self.kind if len(weight.shape) > 1 else TensorType.F32
        return TensorInfo(name, weight.shape, kind, 0, kind.row_bytes(weight.num_elements))

    def data(self, name: str) -> npt.NDArray[np.uint8]:
        info = self.info(name)
        values = np.random.default_rng(_SEED).standard_normal(info.shape[-1] * 8).astype(np.float32) * 0.02
        return np.resize(quantize(values, info.type), info.num_bytes)

    def release(self, name: str) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Timing:
    """A step that was timed: nominal seconds by constant, and what it took."""

    name: str
    row: tuple[float, ...]
    seconds: float


def time_model(config: ModelConfig, kind: TensorType, repeats: int) -> Iterator[Timing]:
    """All steps of a model."""
    threads = choose_threads(None).num_threads
    spec = known_or_probed(threads)
    program = build_program(config)
    blocks = -(-_CONTEXT // BLOCK_TOKENS)
    settings = ExecutorConfig(threads, (8 * blocks,), _CONTEXT)
    executor = NativeExecutor(program, RandomWeights(program, kind), settings)
    share = WEIGHT_CLASSES.index(weight_class(kind.name.lower()))
    for rows, start, requests in STEPS:
        batch = _batch(rows, start, requests, blocks, config.vocab_size)
        taken = sorted(executor.collect(executor.submit(batch)).seconds for _ in range(_times(repeats, rows)))
        shapes = [ChunkShape(start, rows, 1)] * requests
        chunks = {"generated": shapes} if rows == 1 else {"prompts": shapes}
        work = step_work(executor.cost, config.num_layers, **chunks)
        nominal = astuple(nominal_seconds(work, spec, "16bit", "16bit"))
        row = np.zeros(len(NAMES))
        row[:5], row[5 + share], row[9 + share], row[13] = nominal[:5], nominal[5], nominal[6], nominal[7]
        name = f"{config.name} {kind.name} {rows}@{start} x{requests}"
        yield Timing(name, tuple(row), taken[len(taken) // 10])


def _times(repeats: int, rows: int) -> int:
    return repeats * 6 if rows == 1 else repeats


def _batch(rows: int, start: int, requests: int, blocks: int, vocab: int) -> Batch:
    draw = np.random.default_rng(_SEED)
    return Batch(
        tuple(
            BatchChunk(
                draw.integers(0, vocab, rows).astype(np.int32),
                start,
                Phase.DECODE if rows == 1 else Phase.PREFILL,
                (np.arange(index * blocks, (index + 1) * blocks, dtype=np.int32),),
                num_outputs=1,
                num_prompt_tokens=start,
            )
            for index in range(requests)
        )
    )


def constants(factors: Array, errors: Array) -> str:
    """The class, for efficiency.toml."""
    values = dict(zip(NAMES, factors, strict=True))
    lines = ['[classes."twostroke/cpu"]', f"step_s = {values['step_s']:.3g}", f"layer_s = {values['layer_s']:.3g}"]
    lines += [f"{name} = {1 / values[name]:.3g}" for name in ("weights", "experts", "kv")]
    for phase in ("generated", "prompt"):
        shares = ", ".join(f"{kind} = {1 / values[f'{phase}.{kind}']:.3g}" for kind in WEIGHT_CLASSES)
        lines.append(f"{phase} = {{ {shares} }}")
    lines += [f"attention = {1 / values['attention']:.3g}", 'generated_on = "16bit"', 'prompt_on = "16bit"']
    lines += ["few_rows = 1000000", "chunk_tokens = 512"]
    spread = float(np.quantile(np.abs(errors), 0.8))
    lines.append(f'source = "{len(errors)} steps of made-up models timed on a 2-core AVX-512 machine, fitted"')
    lines.append('[classes."twostroke/cpu".bands]')
    band = f"[{1 - spread:.3f}, {1 + spread:.3f}]"
    lines += [f'"{run}" = {band}' for run in ("decode", "batched decode", "prefill", "batched prefill")]
    return "\n".join(lines)


def write(text: str) -> None:
    whole = CONSTANTS.read_text("utf-8")
    head, _, rest = whole.partition(_BEGIN)
    tail = rest.partition(_END)[2]
    CONSTANTS.write_text(f"{head.rstrip()}\n\n{_BEGIN}\n\n{text}\n\n{_END}\n{tail.lstrip()}", "utf-8")


def held_out(timings: Sequence[Timing], rows: Array, seconds: Array) -> Array:
    """Relative errors of each shape's steps by constants fitted without that shape."""
    errors = np.zeros(len(timings))
    shapes = np.array([timing.name.split()[0] for timing in timings])
    for shape in sorted(set(shapes)):
        own = shapes == shape
        errors[own] = rows[own] @ fit(rows[~own], seconds[~own]) / seconds[own] - 1
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the constants in efficiency.toml")
    parser.add_argument("--repeats", type=int, default=6)
    options = parser.parse_args()
    timings = [
        timing for config in SHAPES.values() for kind in TYPES for timing in time_model(config, kind, options.repeats)
    ]
    rows, seconds = np.array([timing.row for timing in timings]), np.array([timing.seconds for timing in timings])
    errors, factors = held_out(timings, rows, seconds), fit(rows, seconds)
    for timing, error in zip(timings, errors, strict=True):
        print(f"{timing.name:32s} {1e3 * timing.seconds:9.3f} ms {error:+7.1%}")  # noqa: T201
    if options.write:
        write(constants(factors, errors))
    print(json.dumps({"steps": len(timings), "median": float(np.median(np.abs(errors)))}))  # noqa: T201


if __name__ == "__main__":
    main()
