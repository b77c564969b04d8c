"""Times of steps, learnt from a machine whose prices are known: right for sizes never seen, whatever was seen last."""

from collections.abc import Sequence

import pytest

from twostroke.engine.account import Account, Rates
from twostroke.engine.ledger import StepRecord
from twostroke.engine.step_time import StepTime
from twostroke.program.cost import ChunkShape, CostModel
from twostroke.program.phase import Phase

BYTE, DECODE, PREFILL, CONTEXT = 2e-9, 1e-9, 4e-10, 3e-9  # seconds
PASS = 3e-5


def decode(count: int, context: int) -> list[ChunkShape]:
    return [ChunkShape(context, 1, 1, phase=Phase.DECODE) for _ in range(count)]


def true_seconds(cost: CostModel, chunks: Sequence[ChunkShape]) -> float:
    seconds = BYTE * cost.step(chunks).bytes + CONTEXT * cost.context_flops(chunks)
    for chunk in chunks:
        flops = cost.step((chunk,)).flops - cost.context_flops((chunk,))
        seconds += flops * (DECODE if chunk.phase is Phase.DECODE else PREFILL)
    return seconds + PASS * any(chunk.phase is Phase.PREFILL for chunk in chunks)


def record_of(cost: CostModel, chunks: Sequence[ChunkShape], seconds: float) -> StepRecord:
    rates = Rates(cost)
    rows, outputs = sum(chunk.length for chunk in chunks), sum(chunk.num_outputs for chunk in chunks) or 1
    phases: dict[Phase, Account] = {}
    for chunk in chunks:
        amounts = rates.amounts(chunk, chunk.length / rows, chunk.num_outputs / outputs)
        phases.setdefault(chunk.phase, Account(rates)).add(amounts, chunk.length, chunk.length, 0.0, 0.0)
    return StepRecord(0.0, seconds, seconds, phases)


@pytest.fixture
def cost(make_bench) -> CostModel:
    return make_bench().executor.cost


@pytest.fixture
def learnt(cost: CostModel) -> StepTime:
    """Of a varied day: prompts alone, answers alone, both together."""
    step_time = StepTime(cost)
    for number in range(400):
        chunks = decode(number % 9, 20 + number)
        if number % 3 == 0 or not chunks:
            chunks = [*chunks, ChunkShape(16 * (number % 50), 4 + 8 * (number % 16), 0)]
        step_time.observe(record_of(cost, chunks, true_seconds(cost, chunks)))
    return step_time


def test_nothing_is_known_at_first_and_everything_has_a_time_after_one_step(cost: CostModel) -> None:
    step_time = StepTime(cost)
    assert not step_time.is_known
    step_time.observe(record_of(cost, [ChunkShape(0, 8, 0)], 0.0))  # less than the clock can tell
    assert not step_time.is_known
    step_time.observe(record_of(cost, [ChunkShape(0, 8, 0)], 0.01))
    assert step_time.is_known and step_time.of_decode(decode(1, 20)) > 0 and step_time.of_pass() > 0


def test_sizes_never_seen_have_the_right_time(cost: CostModel, learnt: StepTime) -> None:
    for answers in (decode(1, 5), decode(12, 300), decode(64, 900)):
        assert learnt.of_decode(answers) == pytest.approx(true_seconds(cost, answers), rel=0.15)
    for prompt in (ChunkShape(0, 256, 0), ChunkShape(1500, 16, 0)):
        added = learnt.added(prompt) + learnt.of_pass()
        answers = decode(4, 100)
        beside = true_seconds(cost, [*answers, prompt]) - true_seconds(cost, answers)
        assert added == pytest.approx(beside, rel=0.15)


def test_generated_rows_that_are_computed_again_cost_what_decode_does(cost: CostModel, learnt: StepTime) -> None:
    answers = decode(4, 100)
    for phase in Phase:
        rows = ChunkShape(0, 64, 0, phase=phase)
        beside = true_seconds(cost, [*answers, rows]) - true_seconds(cost, answers)
        assert learnt.added(rows) + (phase is Phase.PREFILL) * learnt.of_pass() == pytest.approx(beside, rel=0.15)


def test_an_interruption_is_not_believed_and_a_slower_machine_is(cost: CostModel, learnt: StepTime) -> None:
    answers = decode(4, 200)
    before, seconds = learnt.of_decode(answers), true_seconds(cost, answers)
    learnt.observe(record_of(cost, answers, 50 * seconds))
    assert learnt.of_decode(answers) < 1.2 * before
    for _ in range(30):
        learnt.observe(record_of(cost, answers, 2 * seconds))
    assert learnt.of_decode(answers) == pytest.approx(2 * seconds, rel=0.05)
    prompt = ChunkShape(0, 64, 0)  # what slows one thing down slows the other down too
    assert learnt.added(prompt) > 1.5 * PREFILL * (cost.step((prompt,)).flops - cost.context_flops((prompt,)))
