import pytest
from tests.text.answers import TEMPLATES, calls, content, read, reasoning, tokenizer_with, vocabularies

from twostroke.text.answer.marks import MarkedText
from twostroke.text.answer_format import AnswerFormat
from twostroke.text.answer_reader import AnswerReader

FORMS = [
    AnswerFormat.of(template)
    for template in (
        "<think> </think>",
        "[THINK] [/THINK] [TOOL_CALLS]",
        "<|START_THINKING|> <|END_THINKING|> <|START_ACTION|>",
    )
]


@pytest.mark.parametrize("form", FORMS)
def test_reasoning_is_split_off_by_token_and_by_text(form: AnswerFormat) -> None:
    assert form.reasoning is not None
    opening, closing = form.reasoning.opening, form.reasoning.closing
    for tokenizer in vocabularies(form):
        for prompt, answer, expected in (
            ("", f"{opening}\nhm, é\n{closing}\n\nSo é.", ("hm, é", "So é.")),
            ("", "So.\n", ("", "So.\n")),
            ("", " \n So.", ("", " \n So.")),
            (f"x{opening}\n", f"hm\n\nhm {closing}So.", ("hm\n\nhm", "So.")),
            (f"x{opening}\n", "hm and no end \n", ("hm and no end", "")),
            ("", f"{opening}hm and no end", ("hm and no end", "")),
            (f"x{opening}\n\n{closing}\n\n", "So.", ("", "So.")),
            ("", f"{opening}{closing}", ("", "")),
            ("", f"{opening}a{closing}b{opening}c{closing}", ("a", f"b{opening}c{closing}")),
        ):
            events = read(AnswerReader(form, tokenizer, prompt=prompt), tokenizer, answer)
            assert (reasoning(events), content(events)) == expected, (prompt, answer)


def test_a_model_whose_template_knows_no_reasoning_is_left_alone() -> None:
    tokenizer = tokenizer_with([])
    events = read(AnswerReader(AnswerFormat.of("{{ messages }}"), tokenizer), tokenizer, "<think>a</think>b")
    assert content(events) == "<think>a</think>b"


def test_a_call_after_reasoning_and_none_within_it() -> None:
    form = AnswerFormat.of("tools <think> </think> <tool_call>")
    tokenizer = tokenizer_with(form.marks)
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    reader = AnswerReader(form, tokenizer, schemas={"add": {}})
    events = read(reader, tokenizer, f"<think>\nShall I write {call}?\n</think>\n\n{call}")
    assert reasoning(events) == f"Shall I write {call}?"
    assert (content(events), calls(events)) == ("", [("add", '{"a": 1}')])


def test_harmony_has_a_channel_for_each() -> None:
    form = AnswerFormat.of(TEMPLATES["harmony"])
    tokenizer = tokenizer_with(form.marks)
    events = read(
        AnswerReader(form, tokenizer),
        tokenizer,
        "<|channel|>analysis<|message|>hm é<|end|><|start|>assistant<|channel|>commentary<|message|>Wait.<|end|>"
        "<|start|>assistant<|channel|>final<|message|>So é.<|return|>",
    )
    assert (reasoning(events), content(events)) == ("hm é", "Wait.So é.")
    events = read(
        AnswerReader(form, tokenizer),
        tokenizer,
        "<|channel|>analysis<|message|>h<|end|><|start|>assistant to=functions.add<|channel|>commentary json<|message|>"
        '{"a": ',
    )
    assert (reasoning(events), calls(events)) == ("h", [("add", '{"a": ')])
    assert content(read(AnswerReader(form, tokenizer), tokenizer, "no format at all")) == "no format at all"


def test_texts_and_marks_joined_are_the_text() -> None:
    marks = ["<tool_call>", "</tool_call>", "functools"]
    text = "a<tool_call é></tool_call>functool functoolsfunctools 日<"
    for tokenizer in (tokenizer_with(marks), tokenizer_with([])):
        stream = MarkedText(tokenizer, marks)
        ids = tokenizer.encode(text, parse_special=True)
        pieces = [piece for token_id in ids for piece in stream.push(token_id)] + stream.finish()
        assert "".join(piece if isinstance(piece, str) else piece.visible for piece in pieces) == text
        assert [piece.text for piece in pieces if not isinstance(piece, str)] == [
            "</tool_call>",
            "functools",
            "functools",
        ]
