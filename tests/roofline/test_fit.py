"""Models that fit: all of them do, best first, in the widest format that does."""

import pytest

from twostroke.roofline.fit import WIDTHS, Fitting, find_fitting
from twostroke.roofline.model_catalogue import find_model, load_models
from twostroke.roofline.planner import Scenario, again
from twostroke.roofline.target import find_target

NAMES = ("llama-3.1-8b", "qwen2.5-14b", "llama-3.1-70b", "gpt-oss-20b", "smollm2-135m", "qwen3-30b-a3b")
MODELS = {name: find_model(name) for name in NAMES}


def fitting(hardware: str, min_tok_s: float = 0.0) -> list[Fitting]:
    return find_fitting(find_target(hardware), Scenario(prompt=3840), min_tok_s=min_tok_s, models=MODELS)


def test_what_is_listed_fits_and_the_next_wider_format_does_not() -> None:
    found = fitting("rtx 4070 ti")
    assert {each.plan.model.name for each in found} == {"llama-3.1-8b", "qwen2.5-14b", "gpt-oss-20b", "smollm2-135m"}
    for each in found:
        assert each.plan.memory.fits and each.headroom_bytes >= 0
        if each.plan.model.weights == "mxfp4":
            continue
        index = WIDTHS.index(each.plan.model.weights)
        assert index == 0 or not again(each.plan, weights=WIDTHS[index - 1]).memory.fits


def test_best_first_is_by_parameters_and_mixtures_count_between() -> None:
    names = [each.plan.model.name for each in fitting("a100 80gb")]
    assert names == ["llama-3.1-70b", "qwen2.5-14b", "qwen3-30b-a3b", "gpt-oss-20b", "llama-3.1-8b", "smollm2-135m"]


def test_a_least_speed_takes_narrower_weights_or_leaves_models_out() -> None:
    plain = {each.plan.model.name: each.plan for each in fitting("rtx 4090")}
    fast = {each.plan.model.name: each.plan for each in fitting("rtx 4090", min_tok_s=80)}
    assert all(plan.tok_s >= 80 for plan in fast.values())
    assert fast["llama-3.1-8b"].model.weight_bytes < plain["llama-3.1-8b"].model.weight_bytes
    assert "qwen2.5-14b" in plain and len(fast) < len(plain) + 1


def test_every_model_of_the_catalogue_has_a_quality() -> None:
    assert all(model.parameters > 0 for model in load_models().values())


@pytest.mark.parametrize("hardware", ["raspberry pi 5", "h200"])
def test_small_and_large_hardware(hardware: str) -> None:
    names = [each.plan.model.name for each in fitting(hardware)]
    assert "smollm2-135m" in names
    assert ("llama-3.1-70b" in names) == (hardware == "h200")
