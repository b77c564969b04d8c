"""Sentences follow the figures: bounds, crossover, what does not fit, experts."""

from dataclasses import replace

from twostroke.explain import words
from twostroke.explain.planned import planned_story
from twostroke.explain.story import Story
from twostroke.roofline.planned_model import find_planned
from twostroke.roofline.planner import Scenario, make_plan
from twostroke.roofline.target import find_target


def planned(model: str, hardware: str, prompt: int) -> Story:
    return planned_story(make_plan(find_planned(model), find_target(hardware), Scenario(prompt=prompt, answer=4)))


def prefill(story: Story) -> str:
    return " ".join(words.prefill_words(story))


def test_a_short_prompt_is_memory_bound_and_told_so() -> None:
    short, long = planned("llama-3.1-8b", "RTX 4090", 8), planned("llama-3.1-8b", "RTX 4090", 512)
    assert "too short" in prefill(short) and "memory-bound" in prefill(short)
    assert "compute-bound, at" in prefill(long) and "too short" not in prefill(long)
    assert short.crossover == long.crossover is not None
    assert f"compute-bound from {short.crossover:,} tokens" in prefill(short)


def test_both_sides_of_the_crossover() -> None:
    """One token more or less is what decides."""
    found = planned("llama-3.1-8b", "RTX 4090", 8).crossover
    assert found is not None
    strokes = [planned("llama-3.1-8b", "RTX 4090", found - back).prefill for back in (1, 0)]
    assert [stroke.bound for stroke in strokes if stroke is not None] == ["memory", "compute"]


def test_a_mixture_that_never_gets_there() -> None:
    story = planned("deepseek-v3", "RTX 4090", 512)
    assert "no prompt of this model" in prefill(story) and "too short" not in prefill(story)
    assert "256 experts" in " ".join(words.decode_words(story))
    assert "experts" not in " ".join(words.decode_words(planned("llama-3.1-8b", "RTX 4090", 8)))


def test_what_does_not_fit_comes_first() -> None:
    assert words.warning(planned("llama-3.1-70b", "RTX 4090", 8)).startswith("It does not fit")
    assert words.warning(planned("llama-3.1-8b", "RTX 4090", 8)) == ""


def test_no_number_of_a_plan_is_called_measured(story: Story) -> None:
    planned_words = [*words.prefill_words(planned("qwen3-0.6b", "RTX 4090", 64))]
    planned_words += words.decode_words(planned("qwen3-0.6b", "RTX 4090", 64))
    assert "measured" not in " ".join(planned_words)
    assert "(measured)" in " ".join([*words.prefill_words(story), *words.decode_words(story)])


def test_a_time_that_no_roof_explains_is_told_so(story: Story) -> None:
    for share, is_told in ((0.3, True), (0.7, False)):
        decode = replace(story.decode, bound="memory", roof_fraction=share)
        assert story.prefill is not None
        found = replace(story, prefill=replace(story.prefill, roof_fraction=share), decode=decode)
        for told in (" ".join(words.prefill_words(found)), " ".join(words.decode_words(found))):
            assert ("neither roof explains" in told) == is_told
        assert ("memory is the limit" in " ".join(words.decode_words(found))) != is_told
    assert "neither roof explains" not in prefill(planned("smollm2-135m", "H100 SXM", 64))


def test_memory_that_was_set_aside_and_never_written(story: Story) -> None:
    for peak, is_told in ((story.memory.total_bytes - 1, True), (story.memory.total_bytes + 1, False)):
        text = words.memory_words(replace(story, memory=replace(story.memory, peak_bytes=peak)))
        assert ("what is never written takes none" in text) == is_told


def test_how_often_another_token_was_taken(story: Story) -> None:
    assert words.surprises(story) == "The likeliest was taken every time."
    first, *rest = story.choices
    odd = replace(first, token=first.alternatives[1][0])
    assert words.surprises(replace(story, choices=(odd, *rest))).startswith(f"1 of {len(story.choices)} times")


def test_a_model_too_small_for_its_machine_is_not_told_to_read_less() -> None:
    """135 M parameters on an H100: a token reads for 33 us of its 3 ms."""
    small, large = planned("smollm2-135m", "H100 SXM", 64), planned("llama-3.1-70b", "H100 SXM", 64)
    assert small.decode.starting_share is not None and small.decode.starting_share > 0.9
    text = " ".join(words.decode_words(small))
    assert "starting kernels takes 9" in text and "memory is the limit" not in text
    assert next(card.note for card in words.cards(small) if card.title == "decode").startswith("starting kernels")
    assert "memory is the limit" in " ".join(words.decode_words(large))
