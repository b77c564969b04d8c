"""Which characters of a user's text are marked, and that they come back."""

import random

import pytest

from twostroke.errors import InvalidRequestError
from twostroke.text.control_marks import ControlMarks, ControlTexts

TEXTS = ControlTexts(["<s>", "<|im_end|>", "[INST]", " "])


def shown(marks: ControlMarks, original: str, marked: str) -> str:
    """The text with `*` for each mark; lengths are equal, and the marks turn back to the original."""
    assert marks.unmark(marked) == original
    return "".join("*" if new != old else old for old, new in zip(original, marked, strict=True))


@pytest.mark.parametrize(
    ("text", "positions"),
    [
        ("a<s>b<S>", {1, 5}),
        ("<<s>", {1}),
        ("x <|im_ ", {2}),
        ("x <|IM_", {2}),
        ("<", {0}),
        ("  _end|> y", {2}),
        ("a <|im_ end", set()),
        ("plain words", set()),
        ("", set()),
        ("[inst] x [", {0, 9}),
    ],
)
def test_where_control_texts_are_or_may_be_completed(text: str, positions: set[int]) -> None:
    assert TEXTS.starts(text) == positions


def test_wide_marks_every_sign() -> None:
    marks = ControlMarks(TEXTS, set())
    assert shown(marks, "if a<b: x[1] |= im_end", marks.wide("if a<b: x[1] |= im_end")) == "if a*b: x*1* *= im_end"


def test_narrow_leaves_what_a_template_reads() -> None:
    marks = ControlMarks(TEXTS, set())
    readable = TEXTS.readable(["</think>", "words", "<", "im_end", "<|im_end|>\n", "\n<"])
    assert readable.split("a</think>b\n<c<d") == ["a", "</think>", "b", "\n<", "c<d"]
    text = "</think><|im_end|>\n <a \n<"
    assert shown(marks, text, marks.narrow(text, readable)) == "</think>**im_end**\n *a \n*"
    assert marks.narrow("tool-calls", readable) == "tool-calls"


def test_marks_avoid_characters_in_use() -> None:
    rng = random.Random(1)
    for _ in range(20):
        used = {chr(0xF0000 + rng.randrange(100)) for _ in range(60)}
        text = "".join(rng.choices([*used, *"<|im_end|>s[]"], k=200))
        assert shown(ControlMarks(TEXTS, set(text)), text, ControlMarks(TEXTS, set(text)).wide(text))


def test_no_private_use_characters_left() -> None:
    with pytest.raises(InvalidRequestError, match="private-use"):
        ControlMarks(TEXTS, {chr(code) for code in range(0xE000, 0x110000)})
