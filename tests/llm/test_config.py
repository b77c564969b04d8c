"""Options: unknown ones are refused by name, defaults come from the model's file where it has them."""

from pathlib import Path

import pytest
from tests.tiny import write_tiny_gguf

from twostroke import LLM, LLMConfig, SamplingParams
from twostroke.errors import ConfigError, ContextLengthError, InvalidRequestError, ModelFileError
from twostroke.llm.config import KV_NAMES
from twostroke.llm.sampling import SamplingDefaults
from twostroke.native.executor import KV_TYPES


def test_unknown_options_are_named() -> None:
    with pytest.raises(ConfigError, match="contxt is no option; there are model, context"):
        LLM("smollm2", contxt=5)
    with pytest.raises(InvalidRequestError, match="temprature is no option"):
        SamplingParams.of(temprature=1)


@pytest.mark.parametrize("options", [{"context": 0}, {"max_batch": 0}, {"kv": "q4"}, {"max_step_tokens": -1}])
def test_ranges_of_the_configuration(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        LLMConfig.of(**options)


@pytest.mark.parametrize("options", [{"stop": ("a", "")}, {"stop": (3,)}, {"logprobs": -1}])
def test_ranges_of_sampling(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(options))):
        SamplingParams.of(**options)


def test_names_are_the_executors() -> None:
    assert set(KV_NAMES) == set(KV_TYPES)


def test_a_context_beyond_the_models_is_refused(tiny_path: Path) -> None:
    with pytest.raises(ContextLengthError, match=r"4096.*2048"):
        LLM(tiny_path, context=4096)


def test_defaults_come_from_the_file(tmp_path: Path) -> None:
    metadata = {"general.sampling.temp": 0.0, "general.sampling.top_k": 7, "general.sampling.penalty_repeat": 1.25}
    with LLM(write_tiny_gguf(tmp_path / "m.gguf", metadata=metadata), threads=1) as llm:
        expected = SamplingDefaults(temperature=0.0, top_k=7, repetition_penalty=1.25)
        assert llm.defaults == expected
        assert llm.generate("ab", max_tokens=8).token_ids == llm.generate("ab", max_tokens=8, top_k=1).token_ids
        drawn = expected.resolve(SamplingParams(top_k=2, seed=5))
        assert (drawn.temperature, drawn.top_k, drawn.repetition_penalty, drawn.seed) == (0.0, 2, 1.25, 5)


@pytest.mark.parametrize("value", ["hot", True, float("inf")])
def test_defaults_of_another_type_are_refused(value: object) -> None:
    with pytest.raises(ModelFileError, match=r"general\.sampling\.temp"):
        SamplingDefaults.from_gguf({"general.sampling.temp": value})


def test_seeds_differ_unless_given() -> None:
    seeds = {SamplingDefaults().resolve(SamplingParams()).seed for _ in range(20)}
    assert len(seeds) == 20
