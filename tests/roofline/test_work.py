"""Work is the program's own cost, split: nothing is lost, and prefill steps cover every token once."""

import pytest

from twostroke.models.registry import build_program
from twostroke.program.cost import ChunkShape, CostModel, Storage
from twostroke.program.passes import fuse
from twostroke.program.phase import Phase
from twostroke.roofline.model_catalogue import find_model
from twostroke.roofline.work import RowKinds, prefill_steps, step_work


def cost_of(name: str) -> tuple[CostModel, int]:
    config = find_model(name).config()
    program = fuse(build_program(config))
    return CostModel(program, Storage(dict.fromkeys(program.weights, 16.0))), config.num_layers


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-4b", "qwen3-30b-a3b"])
def test_the_parts_add_up_to_the_cost_of_the_same_step(name: str) -> None:
    cost, layers = cost_of(name)
    prompts, generated = [ChunkShape(100, 64, 0)], [ChunkShape(at, 1, 1, phase=Phase.DECODE) for at in (3000, 50)]
    work, whole = step_work(cost, layers, prompts=prompts, generated=generated), cost.step([*prompts, *generated])
    assert work.flops == pytest.approx(whole.flops)
    assert work.weight_bytes + work.expert_bytes == pytest.approx(whole.weight_bytes)
    assert (work.kv_bytes, work.activation_bytes) == pytest.approx((whole.kv_bytes, whole.activation_bytes))
    assert (work.steps, work.layers) == (1, layers)
    assert (work.expert_bytes > 0) == (name == "qwen3-30b-a3b")


def test_generated_rows_beyond_few_count_as_prompt_rows() -> None:
    cost, layers = cost_of("llama-3.1-8b")
    rows = [ChunkShape(10, 1, 1)] * 32
    few, many = (step_work(cost, layers, generated=rows, kinds=RowKinds(number)) for number in (8, 64))
    assert few.generated_flops == pytest.approx(many.generated_flops / 4)
    assert few.prompt_flops == pytest.approx(3 * few.generated_flops)
    assert few.flops == pytest.approx(many.flops)


def test_whole_tiles_of_generated_rows_are_counted_apart() -> None:
    cost, layers = cost_of("llama-3.1-8b")
    work = step_work(cost, layers, generated=[ChunkShape(10, 1, 1)] * 19, kinds=RowKinds(tile=8))
    assert work.tiled_flops / work.generated_flops == pytest.approx(16 / 3)
    assert (work.prompt_flops, work.requests) == (0, 19)
    assert RowKinds(few=10, tile=8).shares(20) == pytest.approx((0.1, 0.4, 0.5))


@pytest.mark.parametrize(
    ("prompt", "batch", "chunk", "start"), [(1000, 3, 512, 0), (7, 10, 512, 0), (512, 1, 512, 96), (1, 1, 1, 0)]
)
def test_prefill_steps_take_every_token_once(prompt: int, batch: int, chunk: int, start: int) -> None:
    steps = prefill_steps(prompt, batch, chunk, start)
    tokens = sum(count * sum(shape.length for shape in shapes) for shapes, count in steps.items())
    outputs = sum(count * sum(shape.num_outputs for shape in shapes) for shapes, count in steps.items())
    assert (tokens, outputs) == (prompt * batch, batch)
    assert all(sum(shape.length for shape in shapes) <= max(chunk, prompt) for shapes in steps)
    assert min(shape.start for shapes in steps for shape in shapes) == start


def test_expanding_weights_is_counted_once_a_step_and_of_the_experts_that_a_prompt_s_rows_choose() -> None:
    """As FLOPs of one row through all that is read: of a mixture, through the union of what the rows chose."""
    for name in ("llama-3.1-8b", "qwen3-30b-a3b"):
        cost, layers = cost_of(name)
        one, few, many = (step_work(cost, layers, prompts=[ChunkShape(0, rows, 0)]) for rows in (1, 16, 512))
        assert one.expanded_flops == pytest.approx(one.prompt_flops, rel=1e-3)
        reads = (many.weight_bytes + many.expert_bytes) / (one.weight_bytes + one.expert_bytes)
        assert many.expanded_flops / one.expanded_flops == pytest.approx(reads, rel=2e-3)
        assert one.expanded_flops <= few.expanded_flops <= many.expanded_flops
        assert step_work(cost, layers, generated=[ChunkShape(9, 1, 1)] * 16).expanded_flops == 0
