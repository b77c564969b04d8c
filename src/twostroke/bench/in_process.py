"""Timing a model in this process, through the engine that answers people. Owns the order of runs; every figure is the
ledger's.

Prompts are random tokens, all different, so that nothing is known of them beforehand. What is not to be timed runs
first: `depth` tokens of each request go into the KV cache as a prompt of their own, which the prefix cache then gives
to the one that is timed; and each prompt is run once before its answer is, so that a batch decodes together from its
first step. Speculation is off: the answers of random prompts say nothing about it.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import fields
from statistics import fmean

from twostroke.bench.cell import Pass, Scenario
from twostroke.engine.account import PhaseTotals
from twostroke.llm.llm import LLM
from twostroke.llm.results import Completion
from twostroke.program.phase import Phase

Ids = list[int]


def passes(llm: LLM, scenario: Scenario, repeat: int, seed: int = 0, *, uncounted: int = 1) -> Iterator[Pass]:
    """`repeat` passes, after one that is not counted or as many as asked. Raises what `LLM.generate` raises."""
    draw = random.Random(seed)
    for number in range(uncounted + repeat):
        found = _one_pass(llm, scenario, draw)
        if number >= uncounted:
            yield found


def _one_pass(llm: LLM, scenario: Scenario, draw: random.Random) -> Pass:
    deep = [_tokens(llm, draw, scenario.depth) for _ in range(scenario.batch)]
    prompts = [before + _tokens(llm, draw, max(1, scenario.prompt_tokens)) for before in deep]
    if scenario.depth:
        _run(llm, deep, 0)
    prefill, answers = _timed(llm, prompts, 1, Phase.PREFILL)
    ttft = fmean(answer.summary.ttft_s or 0.0 for answer in answers)
    if not scenario.prompt_tokens:
        prefill = None
    if not scenario.gen_tokens:
        return Pass(prefill, None, ttft if prefill else None)
    decode, _ = _timed(llm, prompts, scenario.gen_tokens + 1, Phase.DECODE)
    return Pass(prefill, decode, ttft if prefill else None)


def _tokens(llm: LLM, draw: random.Random, count: int) -> Ids:
    size = llm.model_config.vocab_size
    return [draw.randrange(size) for _ in range(count)]


def _timed(llm: LLM, prompts: Sequence[Ids], answer: int, phase: Phase) -> tuple[PhaseTotals | None, list[Completion]]:
    """What the phase cost; None where it has no tokens."""
    before = llm.totals(phase)
    answers = _run(llm, prompts, answer)
    after = llm.totals(phase)
    names = (field.name for field in fields(PhaseTotals))
    found = PhaseTotals(**{name: getattr(after, name) - getattr(before, name) for name in names})
    return (found if found.tokens else None), answers


def _run(llm: LLM, prompts: Sequence[Ids], answer: int) -> list[Completion]:
    return llm.generate(prompts, max_tokens=answer, ignore_eos=True, temperature=0.0)
