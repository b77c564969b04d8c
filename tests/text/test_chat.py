"""Chat templates: goldens made with `transformers`, what a template may do, and errors."""

import json
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tests.text.byte_vocabulary import metadata

from twostroke.errors import ChatTemplateError, InvalidRequestError
from twostroke.text.chat import ChatTemplate
from twostroke.text.template_process import TemplateRenderer

RENDERER = TemplateRenderer()  # one for all tests: starting a process takes longer than they do
GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "golden" / "chat_templates.json").read_text("utf-8"))
USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("conversation", GOLDEN["conversations"])
@pytest.mark.parametrize("template", GOLDEN["templates"])
def test_renders_as_transformers(template: str, conversation: str) -> None:
    golden = GOLDEN["templates"][template]
    chat = ChatTemplate(
        golden["source"], bos_token=golden["bos_token"], eos_token=golden["eos_token"], renderer=RENDERER
    )
    arguments = {**GOLDEN["conversations"][conversation], "date_string": "26 Jul 2024"}
    expected = golden["rendered"][conversation]
    if "error" in expected:
        with pytest.raises(ChatTemplateError):
            chat.render(arguments.pop("messages"), **arguments)
    else:
        assert chat.render(arguments.pop("messages"), **arguments) == expected["text"]


def test_from_gguf_reads_template_and_token_texts() -> None:
    source = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}{{ unk_token }}"
    keys = {**metadata(padding_token_id=97), "tokenizer.chat_template": source}
    assert ChatTemplate.from_gguf(keys).render(USER) == "<s>hi</s>a"


@pytest.mark.parametrize("source", [None, "", "  \n"])
def test_no_template_is_one_clear_line(source: str | None) -> None:
    with pytest.raises(ChatTemplateError, match=r"no chat template.*--raw"):
        ChatTemplate.from_gguf({**metadata(), "tokenizer.chat_template": source})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}x{% break %}{% endfor %}", ""),
        ("{{ {'b': 'é<', 'a': [1, none]} | tojson }}", '{"b": "é<", "a": [1, null]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ strftime_now('%Y-%m-%d') }}", "2024-02-29"),
        ("{% generation %}a{% endgeneration %}", "a"),
        ("{{ '<b>' }}&", "<b>&"),
        ("  {% if true %}\n  a\n  {% endif %}\n", "  a\n"),
        ("{{ undefined_name }}", ""),
        ("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }}", "True True True"),
    ],
)
def test_what_a_template_has(source: str, text: str) -> None:
    assert ChatTemplate(source, now=lambda: datetime(2024, 2, 29), renderer=RENDERER).render(USER) == text


def test_reasoning_is_seen_under_both_names() -> None:
    source = "{{ messages[0].thinking }} {{ messages[0].reasoning_content }} {{ messages[0].content is defined }}"
    for name in ("thinking", "reasoning", "reasoning_content"):
        assert (
            ChatTemplate(source, renderer=RENDERER).render([{"role": "assistant", name: "hm", "content": None}])
            == "hm hm False"
        )


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no\nsystem') }}",
        "{% for %}",
        "{{ messages[0].content + 1 }}",
        "{{ undefined_name.field }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ (1,).__class__.__base__.__subclasses__() }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 1 / 0 }}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% include 'other' %}",
    ],
)
def test_a_failing_template_is_one_line(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="chat template") as raised:
        ChatTemplate(source, renderer=RENDERER).render(USER)
    assert "\n" not in str(raised.value)


TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"


def test_continuing_the_final_message() -> None:
    chat = [*USER, {"role": "assistant", "content": " Once upon "}]
    flags = {"add_generation_prompt": False, "continue_final_message": True}
    assert ChatTemplate(TURNS, renderer=RENDERER).render(chat, **flags) == "[user]hi[/][assistant] Once upon "
    assert (
        ChatTemplate(TURNS.replace("content", "content | trim"), renderer=RENDERER)
        .render(chat, **flags)
        .endswith("]Once upon")
    )
    parts = [*USER, {"role": "assistant", "content": [{"type": "text", "text": "On"}, {"type": "image"}]}]
    assert (
        ChatTemplate(TURNS.replace("m.content", "m.content[0].text or m.content"), renderer=RENDERER).render(
            parts, **flags
        )[-2:]
        == "On"
    )
    assert parts[-1]["content"][0] == {"type": "text", "text": "On"}  # the caller's messages are not touched


def test_what_cannot_be_continued() -> None:
    with pytest.raises(InvalidRequestError, match=r"continue_final_message.*add_generation_prompt"):
        ChatTemplate(TURNS, renderer=RENDERER).render(USER, continue_final_message=True)
    with pytest.raises(InvalidRequestError, match="no text to continue"):
        ChatTemplate(TURNS, renderer=RENDERER).render(
            [{"role": "user"}], add_generation_prompt=False, continue_final_message=True
        )
    with pytest.raises(ChatTemplateError, match="does not show"):
        ChatTemplate("hello", renderer=RENDERER).render(USER, add_generation_prompt=False, continue_final_message=True)


class Kind(StrEnum):
    PLAIN = "plain"


def test_only_plain_data_reaches_a_template() -> None:
    assert (
        ChatTemplate("{{ messages[0].content }}", renderer=RENDERER).render([{"role": "user", "content": Kind.PLAIN}])
        == "plain"
    )
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content must be plain data, found PosixPath"):
        ChatTemplate(TURNS, renderer=RENDERER).render([{"role": "user", "content": Path("x")}])
    with pytest.raises(InvalidRequestError, match=r"messages\[1\] must be an object"):
        ChatTemplate(TURNS, renderer=RENDERER).render([*USER, "hi"])  # type: ignore[list-item]
    with pytest.raises(InvalidRequestError, match="messages is empty"):
        ChatTemplate(TURNS, renderer=RENDERER).render([])
