"""Which constants does this engine need on a CPU, and how right are they?

    python benchmarks/planning_here.py [--write] [--timings FILE [--budget SECONDS]]

Times single steps of made-up models (random weights, several shapes and types) in the native executor: prefill and
decode, one request and more, short and long contexts; what the engine does between steps is timed on the same models.
A machine's memory may be twice as fast at one time as at another, so reading the weights is timed before and after each
step, and a step counts against that. Fits the constants of "twostroke/cpu" against the FLOP/s that `twostroke probe`
kept. No model that people use is among those timed. Takes about three minutes, or goes on from what FILE has and stops
after the budget; the last line is JSON.
"""

import argparse
import json
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np
import numpy.typing as npt
from planning_here_fit import Array, Constants, Timing, fit
from planning_report import CONSTANTS

from twostroke.engine.config import EngineConfig
from twostroke.engine.engine import Engine
from twostroke.engine.loop import EngineLoop
from twostroke.engine.request import GenerationParams, Request
from twostroke.models.config import ModelConfig
from twostroke.models.registry import build_program
from twostroke.native.batch import Batch, BatchChunk
from twostroke.native.executor import BLOCK_TOKENS, ExecutorConfig, NativeExecutor
from twostroke.native.threads import choose_threads
from twostroke.program.cost import ChunkShape
from twostroke.program.phase import Phase
from twostroke.program.program import Program
from twostroke.roofline.probe import known_or_probed
from twostroke.roofline.step_time import Seconds, nominal_seconds
from twostroke.roofline.work import RowKinds, step_work
from twostroke.weights.quantize import quantize
from twostroke.weights.source import TensorInfo
from twostroke.weights.tensor_types import TensorType

_CONTEXT, _SEED, _MOST, _TILE = 2304, 7, 8, 8
_STEADY = 1.15  # how much faster reading may be before a step than after, for the step to count
_BUSY = 0.9  # of the cores, how much the threads must have had
_READ_S, _STEP_S, _ROUNDS = 0.02, 0.05, 3
_BEGIN, _END = "# --- fitted by benchmarks/planning_here.py: do not edit ---", "# --- end of this engine ---"
_EXPERTS = {"num_experts": 32, "experts_per_token": 4, "expert_ffn_dim": 512}
SHAPES: Mapping[str, ModelConfig] = {
    name: ModelConfig("llama", name, layers, dim, heads, kv, size, ffn, vocab, _CONTEXT, 1e-5, size, tied_head=True)
    for name, layers, dim, heads, kv, size, ffn, vocab in (
        ("narrow", 20, 512, 8, 4, 64, 1536, 24000),
        ("middle", 8, 1024, 16, 4, 64, 2816, 32000),
        ("wide", 3, 2048, 16, 4, 128, 5632, 16000),
    )
}
MIXTURE = replace(SHAPES["middle"], name="mixture", **_EXPERTS)
TYPES = (TensorType.Q4_1, TensorType.Q8_0, TensorType.Q4_K, TensorType.Q6_K)
MODELS = (
    *((config, kind) for config in SHAPES.values() for kind in TYPES),
    *((SHAPES[name], TensorType.BF16) for name in ("narrow", "middle")),
    (MIXTURE, TensorType.Q4_K),
)
# (prompt rows or 1 for decode, cached tokens, requests)
PROMPTS = ((32, 0, 1), (128, 0, 1), (512, 0, 1), (512, 1536, 1), (128, 0, 4))
GENERATED = ((1, 160, 1), (1, 2048, 1), (1, 160, 2), (1, 160, 4), (1, 160, 8), (1, 2048, 8))


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


def time_model(config: ModelConfig, kind: TensorType) -> Iterator[Timing]:
    """All steps of a model."""
    threads = choose_threads(None).num_threads
    known = known_or_probed(threads)
    program = build_program(config)
    blocks = -(-_CONTEXT // BLOCK_TOKENS)
    settings = ExecutorConfig(threads, (_MOST * blocks,), _CONTEXT)
    executor = NativeExecutor(program, RandomWeights(program, kind), settings)
    one, most = (seconds_between(executor, config, requests) for requests in (1, _MOST))
    label = "mixture" if config.num_experts else kind.name.lower()
    steps = [(step, _batch(*step, blocks, config.vocab_size)) for step in (*PROMPTS, *GENERATED)]
    seen = [(step, *found) for _ in range(_ROUNDS) for step, batch in steps if (found := _timed(executor, batch))]
    for step in dict.fromkeys(step for step, _, _ in seen):
        rows, start, requests = step
        seconds, byte_s = min(found[1:] for found in seen if found[0] == step)
        shapes = [ChunkShape(start, rows, 1)] * requests
        chunks = {"generated": shapes} if rows == 1 else {"prompts": shapes}
        work = step_work(executor.cost, config.num_layers, kinds=RowKinds(tile=_TILE), **chunks)
        # Caches are read at the smallest working set's rate, all else at the rate of then.
        spec = replace(known, read_bandwidth=((1, known.read_bandwidth[0][1]), (2, byte_s)))
        nominal = nominal_seconds(work, spec, "16bit", "16bit")
        name = f"{config.name} {kind.name} {rows}@{start} x{requests}"
        yield Timing(name, label, nominal, seconds + one + (most - one) * (requests - 1) / (_MOST - 1))


def _timed(executor: NativeExecutor, batch: Batch) -> tuple[float, float] | None:
    """Seconds of the step, fastest of a few, with the bytes per second that memory gave meanwhile; None where reading
    was not steady, or the threads did not have their cores to themselves."""
    before, taken = executor.probe_weights(_READ_S), []
    since, cpu = perf_counter(), process_time()
    while not taken or perf_counter() - since < _STEP_S:
        taken.append(executor.collect(executor.submit(batch)).seconds)
    busy = (process_time() - cpu) / (perf_counter() - since) / executor.config.num_threads
    after = executor.probe_weights(_READ_S)
    if max(before, after) > _STEADY * min(before, after) or busy < _BUSY:
        return None
    return min(taken), (before + after) / 2


def seconds_between(executor: NativeExecutor, config: ModelConfig, requests: int) -> float:
    """What the engine takes for a decode step besides the core."""
    engine = Engine(executor, EngineConfig(config.vocab_size, _CONTEXT, prefix_cache=False, speculation=False))
    loop, params = EngineLoop(engine), GenerationParams(max_tokens=20, ignore_eos=True)
    for stream in [loop.submit(Request(str(index), [index + 1] * 8, params)) for index in range(requests)]:
        deque(stream, maxlen=0)
    steps = [record for record in engine.ledger.recent if Phase.PREFILL not in record.phases]
    return median(record.seconds - record.native_seconds for record in steps)


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


def constants(found: Constants, count: int, errors: Mapping[str, Array]) -> str:
    """The class, for efficiency.toml, of so many timings. `errors` are log(predicted / measured), held out, by what was
    run."""
    values = found.factors
    lines = ['[classes."twostroke/cpu"]']
    lines += [f"{name}_s = {values[name]:.3g}" for name in ("step", "layer", "request")]
    shares = ("weights", "experts", "kv", "attention", "prompt_attention", "activations")
    lines += [f"{name} = {1 / values[name]:.3g}" for name in shares]
    for part in ("generated", "tiled", "prompt", "expanded"):
        kinds = {name.partition(".")[2]: value for name, value in values.items() if name.startswith(f"{part}.")}
        lines.append(f"{part} = {{ {', '.join(f'{kind} = {1 / value:.3g}' for kind, value in kinds.items())} }}")
    lines += [f"overlap = {found.overlap}", f"tile_rows = {_TILE}", "few_rows = 1000000", "chunk_tokens = 512"]
    lines += ['generated_on = "16bit"', 'prompt_on = "16bit"']
    lines.append(f'source = "{count} timings of steps of made-up models on a 2-core AVX-512 machine, fitted"')
    lines.append('bands_of = "those timings, each predicted without its own model"')
    lines.append('[classes."twostroke/cpu".bands]')
    for run, each in errors.items():
        low, high = np.exp(np.quantile(-each, (0.1, 0.9)))
        lines.append(f'"{run}" = [{min(low, 1.0):.3f}, {max(high, 1.0):.3f}]')
    return "\n".join(lines)


def write(text: str) -> None:
    whole = CONSTANTS.read_text("utf-8")
    head, _, rest = whole.partition(_BEGIN)
    tail = rest.partition(_END)[2]
    CONSTANTS.write_text(f"{head.rstrip()}\n\n{_BEGIN}\n\n{text}\n\n{_END}\n{tail.lstrip()}", "utf-8")


def held_out(timings: Sequence[Timing]) -> Array:
    """log(predicted / measured) of each shape's steps by constants fitted without that shape. The mixture stands alone:
    its are those of the fit itself, and no band is of them."""
    names = [timing.name.split()[0] for timing in timings]
    errors = np.zeros(len(timings))
    for shape in dict.fromkeys(names):
        own = [index for index, name in enumerate(names) if name == shape]
        rest = [timing for timing, name in zip(timings, names, strict=True) if name != shape or shape == MIXTURE.name]
        mine = [timings[index] for index in own]
        errors[own] = np.log(fit(rest).seconds(mine)) - np.log([timing.seconds for timing in mine])
    return errors


def by_run(timings: Sequence[Timing], errors: Array) -> dict[str, Array]:
    """Held-out errors by what was run, as bands are named. There is one mixture, which nothing is held out for: its
    bands are those of the rest."""
    found: dict[str, list[float]] = {}
    for timing, error in zip(timings, errors, strict=True):
        if timing.kind == "mixture":
            continue
        step, requests = timing.name.split()[-2:]
        run = "decode" if step.startswith("1@") else "prefill"
        run = run if requests == "x1" else f"batched {run}"
        found.setdefault(run, []).append(float(error))
    return {f"{kind}{run}": np.array(each) for kind in ("", "mixture ") for run, each in sorted(found.items())}


def kept(path: Path | None, budget: float) -> dict[str, list[Timing]]:
    """Timings of all models by name, those that the file has among them; fewer where the budget ends before."""
    found: dict[str, list[Timing]] = {}
    if path is not None and path.exists():
        for name, rows in json.loads(path.read_text("utf-8")).items():
            found[name] = [Timing(one, kind, Seconds(*nominal), seconds) for one, kind, nominal, seconds in rows]
    since = perf_counter()
    for config, kind in MODELS:
        name = f"{config.name} {kind.name}"
        if name not in found and perf_counter() - since < budget:
            found[name] = list(time_model(config, kind))
    if path is not None:
        rows = {name: [astuple(timing) for timing in timings] for name, timings in found.items()}
        path.write_text(json.dumps(rows), "utf-8")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the constants in efficiency.toml")
    parser.add_argument("--timings", type=Path, help="keep timings here, and go on from those it has")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no more models are timed")
    options = parser.parse_args()
    timed = kept(options.timings, options.budget)
    if len(timed) < len(MODELS):
        print(json.dumps({"models": len(timed), "of": len(MODELS)}))  # noqa: T201
        return
    timings = [timing for each in timed.values() for timing in each]
    errors, found = held_out(timings), fit(timings)
    for timing, error in zip(timings, errors, strict=True):
        print(f"{timing.name:32s} {1e3 * timing.seconds:9.3f} ms {np.expm1(error):+7.1%}")  # noqa: T201
    if options.write:
        write(constants(found, len(timings), by_run(timings, errors)))
    print(json.dumps({"steps": len(timings), "median": float(np.median(np.abs(errors)))}))  # noqa: T201


if __name__ == "__main__":
    main()
