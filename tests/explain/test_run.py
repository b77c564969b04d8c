"""A story says what happened: tokens, steps and sums are the run's and the ledger's, not counted anew."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from tests.explain.conftest import TEXT

from twostroke.explain.crossover import crossover
from twostroke.explain.run import Run, raised
from twostroke.explain.story import Part, Story, Stroke, Token
from twostroke.explain.tokens import prompt_tokens, token_of
from twostroke.explain.vectors import vectors_of, words_of
from twostroke.models.load import dequantized, load_model
from twostroke.program.phase import Phase
from twostroke.roofline.hardware import HardwareSpec

FIGURES = ("flops", "weight_bytes", "kv_bytes", "activation_bytes")


def test_the_prompt_s_tokens_and_whose_they_are(run: Run, story: Story) -> None:
    assert [token.id for token in story.prompt] == list(run.prompt_ids)
    own = "".join(token.text for token in story.prompt if not token.is_template)
    assert own == TEXT
    assert "".join(token.text for token in story.prompt).startswith("<|im_start|>user\n")


def test_without_a_template_only_control_tokens_are_not_the_user_s(run: Run) -> None:
    tokenizer = run.llm.tokenizer
    ids = [next(iter(tokenizer.eos_ids)), *tokenizer.encode("ten")]
    assert [token.is_template for token in prompt_tokens(tokenizer, ids, None)] == [True] + [False] * (len(ids) - 1)


def test_a_text_that_the_template_repeats_is_the_user_s_where_it_comes_last(run: Run) -> None:
    tokenizer = run.llm.tokenizer
    ids = tokenizer.encode("user user")
    marks = [token.is_template for token in prompt_tokens(tokenizer, ids, "user")]
    assert marks[0] and not marks[-1]


def test_steps_are_those_of_the_ledger(run: Run, story: Story) -> None:
    prompt, answer = len(run.prompt_ids), len(run.completion.token_ids)
    prefill = [step for step in story.steps if step.phase is Phase.PREFILL]
    decode = [step for step in story.steps if step.phase is Phase.DECODE]
    assert [step.tokens for step in prefill] == [16] * (prompt // 16) + [prompt % 16] * bool(prompt % 16)
    assert [step.tokens for step in decode] == [1] * (answer - 1)
    assert [step.kept_tokens for step in decode] == list(range(prompt + 1, prompt + answer))
    assert story.steps[-1].kept_bytes == (prompt + answer - 1) * run.llm.memory.kv_bytes_per_token
    starts = [step.started for step in story.steps]
    assert starts[0] == 0 and starts == sorted(starts)
    for stroke, steps in ((story.prefill, prefill), (story.decode, decode)):
        assert stroke is not None
        for name in FIGURES:
            assert getattr(stroke, name) == pytest.approx(sum(getattr(step, name) for step in steps), rel=1e-12)
        assert stroke.seconds == pytest.approx(sum(step.seconds for step in steps))


def test_parts_add_up_to_the_strokes(story: Story) -> None:
    assert story.prefill is not None

    def check(stroke: Stroke, parts: tuple[Part, ...]) -> None:
        for name in FIGURES:
            assert sum(getattr(part, name) for part in parts) == pytest.approx(getattr(stroke, name), rel=1e-12), name

    for stroke in (story.prefill, story.decode):
        check(stroke, stroke.by_kind)
        check(stroke, stroke.by_layer)
    assert [part.name for part in story.decode.by_layer] == ["input", "0", "1", "output"]
    assert "attention" in [part.name for part in story.decode.by_kind]


def test_standing_under_the_roof(story: Story) -> None:
    decode = story.decode
    assert (decode.roof_byte_s, decode.roof_flop_s, decode.ridge) == (30e9, 500e9, 500 / 30)
    assert decode.bound == "memory"
    assert decode.roof_fraction == pytest.approx(decode.bytes / decode.seconds / 30e9)


def test_no_token_is_above_the_roof(story: Story) -> None:
    """A probe that was disturbed is no roof."""
    slow = HardwareSpec("disturbed", ((1 << 20, 1.0), (1 << 22, 0.5)), {"16bit": 1e9})
    best = max(step.bytes / step.seconds for step in story.steps if step.phase is Phase.DECODE)
    assert raised(slow, story.steps).read_bandwidth == ((1 << 20, best), (1 << 22, best))
    fast = HardwareSpec("fast", ((1 << 20, 1e15),), {})
    assert raised(fast, story.steps) == fast


def test_choices_are_probabilities_of_the_tokens_taken(run: Run, story: Story) -> None:
    assert [choice.token.id for choice in story.choices] == list(run.completion.token_ids)
    for choice in story.choices:
        assert choice.alternatives[0] == (choice.token, choice.probability)  # greedy
        others = [probability for _, probability in choice.alternatives]
        assert len(others) == 5 and others == sorted(others, reverse=True) and 0 < sum(others) <= 1


def test_nearest_tokens_are_those_of_a_full_search(run: Run, story: Story) -> None:
    words = [token_of(run.llm.tokenizer, token_id) for token_id in (260, 300, 7)]
    vectors = vectors_of(run.llm.path, run.llm.tokenizer, words)
    assert vectors is not None
    assert story.vectors is not None  # no word of the prompt is a token: of letters, then
    assert all(word.token.text.strip().isalpha() for word in story.vectors.words)
    model = load_model(run.llm.path)
    matrix = dequantized(model.source)("token_embd.weight").astype(np.float64)
    model.source.close()
    unit = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    assert (vectors.num_tokens, vectors.dim, vectors.type) == (*matrix.shape, "Q8_0")
    for at, word in enumerate(vectors.words):
        cosines = unit @ unit[word.token.id]
        best = [int(index) for index in np.argsort(-cosines) if index != word.token.id][: len(word.nearest)]
        assert [near.token.id for near in word.nearest] == best
        assert [near.cosine for near in word.nearest] == pytest.approx(cosines[best], abs=1e-5)
        assert word.length == pytest.approx(np.linalg.norm(matrix[word.token.id]))
        assert vectors.cosines[at][at] == pytest.approx(1, abs=1e-5)


def test_words_are_whole_and_the_user_s() -> None:
    texts = ["user", " The", " ki", "ngdom", " queen", " sat", ".", " on", " queens", "\n", "Both"]
    tokens = [Token(index, text, is_template=index == 0) for index, text in enumerate(texts)]
    assert [token.text for token in words_of(tokens)] == [" The", " queen", " sat", " queens", "Both"]
    many = [Token(index, f" {'a' * (3 + index)}") for index in range(20)]
    assert [token.id for token in words_of(many)] == [12, 13, 14, 15, 16, 17, 18, 19]


def test_words_of_a_script_without_spaces_are_its_tokens() -> None:
    tokens = [
        Token(index, text, is_template=index == 0) for index, text in enumerate(["user", "你好", "世界", "!", "��"])
    ]
    assert [token.text for token in words_of(tokens)] == ["你好", "世界"]
    assert words_of(tokens[3:]) == []


def test_memory_is_what_was_set_aside(run: Run, story: Story) -> None:
    memory = story.memory
    assert memory.total_bytes == sum(run.llm.memory.parts().values())
    assert memory.left_bytes == run.llm.memory.available_bytes - memory.total_bytes
    assert memory.max_context == run.llm.model_config.context_length


def test_where_prefill_becomes_compute_bound(run: Run) -> None:
    cost = run.model.cost("f16")
    hardware = HardwareSpec("slow", ((1 << 20, 10e9),), {"16bit": 300e9})

    def is_compute_bound(prompt: int) -> bool:
        from twostroke.program.cost import ChunkShape

        step = cost.step([ChunkShape(0, prompt, 1)])
        return step.flops / 300e9 > step.bytes / 10e9

    found = crossover(cost, hardware, 2048, 512)
    assert found == next((prompt for prompt in range(1, 512) if is_compute_bound(prompt)), None)
    assert found is not None
    assert crossover(cost, HardwareSpec("no arithmetic", ((1, 1e9),), {}), 2048, 512) is None
    assert crossover(cost, HardwareSpec("fast", ((1, 1e9),), {"16bit": 1e15}), 2048, 512) is None


def test_the_story_is_json(story: Story) -> None:
    fields = json.loads(json.dumps(story.fields(), allow_nan=False))
    assert fields["source"] == "measured"
    assert fields["decode"]["flops"] == story.decode.flops
    assert fields["steps"][0]["phase"] == "prefill"
    assert set(fields) == set(asdict(story))
