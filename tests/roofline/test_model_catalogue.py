"""The model catalogue: how it is read and looked up, and that its facts give the published sizes.

Facts are held against the published counts twice: counted by hand for every model, and by the program of every model
that a family builds.
"""

import math

import pytest
from tests.roofline.parameter_count import count, tables

from twostroke.errors import ModelNotFoundError
from twostroke.models.registry import build_program
from twostroke.roofline.model_catalogue import CatalogueModel, find_model, load_models

MODELS = load_models()


def states(published: float, number: float) -> bool:
    """Whether `published` is `number` in billions, rounded or cut to as many decimals."""
    places = next(places for places in range(10) if math.isclose(round(published / 1e9, places), published / 1e9))
    scaled = number / 1e9 * 10**places
    return round(published / 1e9 * 10**places) in (round(scaled), int(scaled))


def test_well_known_models_are_there() -> None:
    assert len(MODELS) >= 60
    assert {"llama-3.1-8b", "qwen3-30b-a3b", "gemma-4-26b-a4b", "deepseek-v3", "gpt-oss-120b", "gpt2-xl"} <= set(MODELS)


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_facts_give_the_published_parameters(model: CatalogueModel) -> None:
    total, active = count(model.facts)
    assert total == pytest.approx(model.parameters, rel=0.01)
    assert (model.active_parameters is None) == (active == total)
    if model.active_parameters is not None:  # some count the embedding and the output among the active, some do not
        assert any(states(model.active_parameters, active - without * tables(model.facts)) for without in range(3))


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_the_program_has_the_published_parameters(model: CatalogueModel) -> None:
    weights = build_program(model.config()).weights.values()
    total = sum(weight.num_elements for weight in weights)
    if model.parameters_source.startswith("metadata") and isinstance(model.parameters, int):
        assert total == model.parameters  # to the last norm and bias
    assert total == pytest.approx(model.parameters, rel=0.01)


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_a_model_is_found_by_its_names(model: CatalogueModel) -> None:
    for name in (model.name, model.name.upper(), *model.aliases, model.source.split("/blob/")[0]):
        assert find_model(name, MODELS) is model


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("gpt-oss-20b-mxfp4", "gpt-oss-20b"),
        ("llama-2-7b.Q4_0", "llama-2-7b"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"),
        ("Qwen3 4B UD-Q4_K_XL", "qwen3-4b"),
        ("gemma-4-31B-it-UD-Q8_K_XL", "gemma-4-31b"),
        ("DeepSeek-R1-671B", "deepseek-v3"),
    ],
)
def test_spellings(name: str, found: str) -> None:
    assert find_model(name, MODELS).name == found


@pytest.mark.parametrize("name", ["lama-3.1-8b", "", "-it", "meta-llama/"])
def test_what_is_not_known_is_not_guessed(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="in the catalogue"):
        find_model(name, MODELS)


def test_the_nearest_names_are_suggested() -> None:
    with pytest.raises(ModelNotFoundError, match=r"no model 'lama-3\.1-8b' in the catalogue; nearest: llama-3\.1-8b"):
        find_model("lama-3.1-8b")


def test_an_entry_like_another_differs_only_in_what_it_says() -> None:
    one, other = MODELS["llama-4-scout"], MODELS["llama-4-maverick"]
    assert {key for key in other.facts if one.facts.get(key) != other.facts[key]} == {
        "num_local_experts",
        "interleave_moe_layer_step",
        "use_qk_norm",
        "max_position_embeddings",
    }
    assert MODELS["llama-3.3-70b"].facts == MODELS["llama-3.1-70b"].facts
