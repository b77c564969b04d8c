"""The model catalogue: how it is read and looked up, and that its facts give the published sizes."""

import pytest

from twostroke.errors import ModelNotFoundError
from twostroke.models.registry import build_program
from twostroke.roofline.model_catalogue import CatalogueModel, find_model, load_models

MODELS = load_models()


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda model: model.name)
def test_the_program_has_as_many_parameters_as_published(model: CatalogueModel) -> None:
    weights = build_program(model.config()).weights.values()
    assert sum(weight.num_elements for weight in weights) == pytest.approx(model.parameters, rel=0.01)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("gpt-oss-20b-mxfp4", "gpt-oss-20b"),
        ("llama-2-7b.Q4_0", "llama-2-7b"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"),
        ("Qwen3 4B UD-Q4_K_XL", "qwen3-4b"),
    ],
)
def test_spellings(name: str, found: str) -> None:
    assert find_model(name).name == found


def test_the_nearest_names_are_suggested() -> None:
    with pytest.raises(ModelNotFoundError, match=r"no model 'lama-3\.1-8b' in the catalogue; nearest: llama-3\.1-8b"):
        find_model("lama-3.1-8b")


def test_an_entry_like_another_differs_only_in_what_it_says() -> None:
    one, other = MODELS["llama-3-8b"], MODELS["llama-3.1-8b"]
    assert {**one.facts, **other.facts} == other.facts
    assert {key for key in other.facts if one.facts.get(key) != other.facts[key]} == {
        "max_position_embeddings",
        "rope_scaling",
    }
