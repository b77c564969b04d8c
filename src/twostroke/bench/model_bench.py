"""`bench MODEL`: cells of every combination asked for, as they are measured. Owns which model is loaded for which."""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from importlib.resources import files

from twostroke.bench.cell import Cell, Pass
from twostroke.bench.in_process import passes
from twostroke.bench.model_config import REFERENCE_WEIGHTS, ModelBenchConfig
from twostroke.bench.reference_passes import ReferenceBench
from twostroke.llm.llm import LLM
from twostroke.llm.loading import load_text
from twostroke.models.load import load_model
from twostroke.native.threads import choose_threads
from twostroke.roofline.bound import raised_to
from twostroke.roofline.probe import roofs_of_model
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.fetch import ProgressCallback, ensure

_PROBE_S = 0.5
OWN = "own"  # the types that the model's file has
_PASSAGE_TOKENS = 400  # of it at most: what every model has the context for


def cells(config: ModelBenchConfig, progress: ProgressCallback) -> Iterator[Cell]:
    """Each cell once it is measured. A model is loaded once for each type of weights and of KV cache.

    Raises what loading and `LLM.generate` raise, and ConfigError for what f64 cannot do.
    """
    for weights in config.weight_types:
        if weights == REFERENCE_WEIGHTS:
            yield from _reference_cells(config, progress)
            continue
        for kv in config.kv_types:
            yield from _cells_of(config, weights, kv, progress)


def _passage(tokenizer: Tokenizer) -> list[int]:
    """The start of the passage that perplexity is of."""
    text = files("twostroke.bench").joinpath("passage.txt").read_text("utf-8")
    return list(tokenizer.encode(text))[:_PASSAGE_TOKENS]


def _perplexity(llm: LLM) -> float:
    return math.exp(llm.score(_passage(llm.tokenizer)).mean_nll)


def _cells_of(config: ModelBenchConfig, weights: str | None, kv: str, progress: ProgressCallback) -> Iterator[Cell]:
    wanted = config.scenarios
    context = max(_PASSAGE_TOKENS if config.wants_perplexity else 0, *(one.context for one in wanted))
    with LLM(
        config.model,
        progress=progress,
        context=context,
        max_batch=max(one.batch for one in wanted),
        weights=weights,
        kv=kv,
        threads=config.threads,
        isa=config.isa,
        speculation=False,
    ) as llm:
        perplexity = _perplexity(llm) if config.wants_perplexity else None
        for scenario in wanted:
            found = tuple(passes(llm, scenario, config.repeat))
            hardware = roofs_of_model(
                llm.probe_weights, _working_set(found), llm.threads.num_threads, llm.isa, budget_s=_PROBE_S
            )
            cell = Cell(
                scenario,
                weights or OWN,
                kv,
                llm.threads.num_threads,
                llm.isa,
                hardware,
                found,
                perplexity,
                llm.weight_bytes,
            )
            reached = (cell.prefill_reached, cell.decode_reached)
            yield replace(cell, hardware=raised_to(hardware, reached))


def _working_set(found: Sequence[Pass]) -> int:
    """Bytes of weights and KV that a step reads: of decode, if that was timed."""
    one = found[0].decode or found[0].prefill
    return round((one.weight_bytes + one.kv_bytes) / one.steps) if one else 1


def _reference_cells(config: ModelBenchConfig, progress: ProgressCallback) -> Iterator[Cell]:
    path = ensure(config.model, progress=progress)
    model = load_model(path)
    with closing(model.source):
        bench = ReferenceBench(model)
        tokenizer, _ = load_text(path, model.metadata)
        perplexity = bench.perplexity(_passage(tokenizer))
        threads = choose_threads(config.threads).num_threads
        for scenario in config.scenarios:
            found = tuple(bench.passes(scenario, config.repeat))
            kind, none = REFERENCE_WEIGHTS, None
            yield Cell(scenario, kind, kind, threads, "numpy", none, found, perplexity, bench.weight_bytes)
