"""Chat templates: goldens made with `transformers`, what a template may do, and errors."""

import json
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tests.text.byte_vocabulary import metadata

from twostroke.errors import ChatTemplateError, InvalidRequestError, ModelFileError
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
        golden["source"],
        bos_token=golden["bos_token"],
        eos_token=golden["eos_token"],
        now=lambda: datetime.fromisoformat(GOLDEN["now"]),
        renderer=RENDERER,
    )
    arguments = {**GOLDEN["conversations"][conversation], "date_string": "26 Jul 2024"}
    expected = golden["rendered"][conversation]
    if "error" in expected and conversation == "content parts":
        joined = [{"role": "user", "content": " Two parts: \none text"}]
        assert chat.render(arguments.pop("messages"), **arguments) == chat.render(joined, **arguments)
    elif "error" in expected:
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
    for value in ("a\udcff", Kind.PLAIN + "\ud800"):
        with pytest.raises(InvalidRequestError, match=r"messages\[0\]\.content has a lone surrogate at position"):
            ChatTemplate(TURNS, renderer=RENDERER).render([{"role": "user", "content": value}])
    with pytest.raises(InvalidRequestError, match="messages is empty"):
        ChatTemplate(TURNS, renderer=RENDERER).render([])


def test_the_goldens_are_of_a_dozen_families_and_of_every_conversation() -> None:
    assert len(GOLDEN["templates"]) >= 15
    texts = [entry for golden in GOLDEN["templates"].values() for entry in golden["rendered"].values()]
    assert len(texts) == 6 * len(GOLDEN["templates"])
    assert sum("text" in entry for entry in texts) > 80


NAMED = {"default": "plain", "tool_use": "tools: {{ tools | length }}", "rag": "documents"}


def test_the_template_for_tools_is_used_with_tools() -> None:
    template = ChatTemplate(NAMED, renderer=RENDERER)
    assert template.render(USER) == "plain"
    assert template.render(USER, tools=[{}]) == "tools: 1"
    assert template.render(USER, tools=[]) == "tools: 0"
    assert ChatTemplate({"default": "plain"}, renderer=RENDERER).render(USER, tools=[{}]) == "plain"
    with pytest.raises(ChatTemplateError, match="no default chat template, only named ones: rag"):
        ChatTemplate({"rag": "x"}, renderer=RENDERER).render(USER)


def test_named_templates_of_a_gguf_file() -> None:
    keys = {f"tokenizer.chat_template{f'.{name}' if name != 'default' else ''}": text for name, text in NAMED.items()}
    template = ChatTemplate.from_gguf({**metadata(), "tokenizer.chat_templates": ["tool_use", "rag"], **keys})
    assert template.render(USER, tools=[{}, {}]) == "tools: 2"
    assert template.render(USER) == "plain"


CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "add_bos_token": True}
SOURCE = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"


def hf_files(**files: object) -> dict[str, str]:
    """Files by name, `__` for a dot and `___` for a slash; objects as JSON."""
    return {
        name.replace("___", "/").replace("__", "."): text if isinstance(text, str) else json.dumps(text)
        for name, text in files.items()
    }


@pytest.mark.parametrize(
    "files",
    [
        hf_files(tokenizer_config__json={**CONFIG, "chat_template": SOURCE}),
        hf_files(tokenizer_config__json={**CONFIG, "chat_template": [{"name": "default", "template": SOURCE}]}),
        hf_files(tokenizer_config__json={**CONFIG, "chat_template": "unused"}, chat_template__jinja=SOURCE),
        hf_files(tokenizer_config__json=CONFIG, chat_template__json={"chat_template": SOURCE}),
        hf_files(tokenizer_config__json={"chat_template": SOURCE}, special_tokens_map__json=CONFIG),
    ],
)
def test_templates_of_a_directory(files: dict[str, str], tmp_path: Path) -> None:
    assert ChatTemplate.from_hf(files).render(USER) == "<s>hi</s>"
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert ChatTemplate.from_hf(tmp_path).render(USER) == "<s>hi</s>"


def test_named_templates_of_a_directory(tmp_path: Path) -> None:
    files = hf_files(chat_template__jinja="plain", additional_chat_templates___tool_use__jinja="tools")
    assert ChatTemplate.from_hf(files).render(USER, tools=[{}]) == "tools"
    (tmp_path / "additional_chat_templates").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert ChatTemplate.from_hf(tmp_path).render(USER, tools=[{}]) == "tools"


@pytest.mark.parametrize("files", [{}, hf_files(tokenizer_config__json=CONFIG), hf_files(chat_template__jinja=" ")])
def test_a_directory_without_a_template_is_one_clear_line(files: dict[str, str]) -> None:
    with pytest.raises(ChatTemplateError, match=r"no chat template.*--raw"):
        ChatTemplate.from_hf(files)


@pytest.mark.parametrize("value", [[1], [{"template": "x"}]])
def test_a_malformed_list_of_templates_is_named(value: object) -> None:
    with pytest.raises(ModelFileError, match=r"tokenizer_config\.json: chat_template"):
        ChatTemplate.from_hf(hf_files(tokenizer_config__json={"chat_template": value}))


def test_an_unknown_global_fails_only_where_it_is_used() -> None:
    source = "{% if tools %}{{ no_such_function() }}{% endif %}{{ messages[0].content }}"
    template = ChatTemplate(source, renderer=RENDERER)
    assert template.render(USER) == "hi"
    with pytest.raises(ChatTemplateError, match="no_such_function"):
        template.render(USER, tools=[{}])
    assert template.render(USER) == "hi"


def test_keys_must_be_text() -> None:
    with pytest.raises(InvalidRequestError, match="has a key that is no text"):
        ChatTemplate(TURNS, renderer=RENDERER).render([{"role": "user", "content": {1: 2}}])


def test_parts_are_joined_only_where_the_template_fails_on_them() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    message = {"role": "user", "content": parts}
    assert ChatTemplate("{{ 'user: ' + messages[0].content }}", renderer=RENDERER).render([message]) == "user: one\ntwo"
    reads = "{% for part in messages[0].content %}{{ part.text }}{% endfor %}"
    assert ChatTemplate(reads, renderer=RENDERER).render([message]) == "onetwo"
    image = {"role": "user", "content": [*parts, {"type": "image", "url": "x"}]}
    with pytest.raises(ChatTemplateError, match="can only concatenate str"):
        ChatTemplate("{{ 'user: ' + messages[0].content }}", renderer=RENDERER).render([image])
    assert message["content"] is parts
