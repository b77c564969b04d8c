import pytest
from tests.text.answers import ADD, NOW, TEMPLATES, TWO_CALLS, accepted, calls, read, reader_of, vocabularies

from twostroke.errors import InvalidRequestError
from twostroke.text.answer_format import AnswerFormat
from twostroke.text.answer_grammar import AnswerGrammar
from twostroke.text.grammar.grammar import Grammar
from twostroke.text.tools.call_rules import MAX_CALLS
from twostroke.text.tools.tool import Tool

TOOLS = [ADD, NOW]
ONE_CALL = {
    "llama3": '{"name": "add", "parameters": {"a": 1}}',
    "harmony": '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}',
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_are_enforced_in_every_format(name: str) -> None:
    form = AnswerFormat.of(TEMPLATES[name])
    text = ONE_CALL.get(name, TWO_CALLS[name])
    for tokenizer in vocabularies(form):
        grammars = AnswerGrammar(form, tokenizer)
        compiler = grammars.compiler()
        required = grammars.calling(TOOLS, "", holds_many=True)
        state = compiler.constraint(required)
        assert accepted(state, tokenizer, text) == text
        assert state.is_accepting
        assert calls(read(reader_of(name, tokenizer), tokenizer, text))[0] == ("add", '{"a": 1}')
        wrong = text.replace("1", '"x"', 1)
        assert accepted(compiler.constraint(required), tokenizer, wrong) == wrong[: wrong.index('"x"')]
        assert accepted(compiler.constraint(required), tokenizer, "Hello") == ""
        named = compiler.constraint(grammars.calling([NOW], "", holds_many=False))
        assert "add" not in accepted(named, tokenizer, text)


@pytest.mark.parametrize("name", TEMPLATES)
def test_where_a_call_is_free_text_is_too(name: str) -> None:
    form = AnswerFormat.of(TEMPLATES[name])
    for tokenizer in vocabularies(form):
        grammars = AnswerGrammar(form, tokenizer)
        free = grammars.allowing(TOOLS, "", holds_many=True)
        compiler = grammars.compiler()
        for text in (
            ONE_CALL.get(name, TWO_CALLS[name]),
            ("<|channel|>final<|message|>" if form.is_harmony else "") + "é.",
        ):
            state = compiler.constraint(free)
            assert accepted(state, tokenizer, text) == text
            assert state.is_accepting
        if form.tools.is_bare:  # nothing that would be read as a call without being held to its schema
            for begin in ("{", " [", "```json\n{", "```\n["):
                assert "z" not in accepted(compiler.constraint(free), tokenizer, begin + '"z": 1')
        wrong = ONE_CALL.get(name, TWO_CALLS[name]).replace("1", '"x"', 1)
        assert accepted(compiler.constraint(free), tokenizer, wrong) == wrong[: wrong.index('"x"')]


def test_a_call_without_marks_is_held_to_its_schema_too() -> None:
    form = AnswerFormat.of(TEMPLATES["hermes"])
    tokenizer = vocabularies(form)[0]
    grammars = AnswerGrammar(form, tokenizer)
    compiler = grammars.compiler()
    free = grammars.allowing(TOOLS, "", holds_many=False)
    call = '{\n  "name": "add",\n  "arguments": {\n    "a": 1\n  }\n}'
    for text in (call, f"```json\n{call}\n```"):
        state = compiler.constraint(free)
        assert accepted(state, tokenizer, text + "\n") == text
        assert state.is_stopped
        assert len(calls(read(reader_of("hermes", tokenizer), tokenizer, text))) == 1
        wrong = text.replace("1", "true")
        assert accepted(compiler.constraint(free), tokenizer, wrong) == wrong[: wrong.index("true")]


def test_text_before_a_call_where_a_token_begins_it() -> None:
    form = AnswerFormat.of(TEMPLATES["hermes"])
    tokenizer, spelled = vocabularies(form)
    text = f"I add.\n{TWO_CALLS['hermes']}"
    grammars = AnswerGrammar(form, tokenizer)
    assert (
        accepted(grammars.compiler().constraint(grammars.allowing(TOOLS, "", holds_many=True)), tokenizer, text) == text
    )
    grammars = AnswerGrammar(form, spelled)
    taken = accepted(grammars.compiler().constraint(grammars.allowing(TOOLS, "", holds_many=True)), spelled, text)
    assert taken == "I add.\n<tool_call"  # no call that is not held to its schema


def test_one_call_or_so_many() -> None:
    form = AnswerFormat.of(TEMPLATES["hermes"])
    tokenizer = vocabularies(form)[0]
    grammars = AnswerGrammar(form, tokenizer)
    compiler = grammars.compiler()
    one = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    state = compiler.constraint(grammars.calling(TOOLS, "", holds_many=False))
    assert accepted(state, tokenizer, one + "\n") == one
    assert state.is_stopped
    state = compiler.constraint(grammars.calling(TOOLS, "", holds_many=True))
    most = "\n".join([one] * MAX_CALLS)
    assert accepted(state, tokenizer, most + "\n") == most
    assert state.is_stopped


@pytest.mark.parametrize("template", ["<think> </think> <tool_call>", "[THINK] [/THINK] [TOOL_CALLS]"])
def test_what_a_model_thinks_is_free(template: str) -> None:
    form = AnswerFormat.of(template)
    assert form.reasoning is not None
    opening, closing = form.reasoning.opening, form.reasoning.closing
    for tokenizer in vocabularies(form):
        grammars = AnswerGrammar(form, tokenizer)
        compiler = grammars.compiler()
        for prompt, answer, is_whole in (
            ("", '{"a": 1}', True),
            ("", f"{opening}\nhm {{ é\n{closing}\n\n" + '{"a": 1}', True),
            (opening + "\n", f"hm {{\n{closing}\n\n" + '{"a": 1}', True),
            (opening + "\n", '{"a": 1}', False),
            (f"{opening}\n\n{closing}\n\n", '{"a": 1}', True),
        ):
            state = compiler.constraint(grammars.holding(Grammar.json_object(), prompt))
            assert accepted(state, tokenizer, answer) == answer
            assert state.is_stopped == is_whole
        state = compiler.constraint(grammars.holding(Grammar.json_object(), f"{opening}\n\n{closing}\n\n"))
        assert opening not in accepted(state, tokenizer, f"{opening}\n")
        state = compiler.constraint(grammars.holding(Grammar.regex("a+"), opening))
        assert accepted(state, tokenizer, f"b{closing}ab") == f"b{closing}a"


def test_harmony_keeps_its_channels() -> None:
    form = AnswerFormat.of(TEMPLATES["harmony"])
    tokenizer = vocabularies(form)[0]
    grammars = AnswerGrammar(form, tokenizer)
    text = '<|channel|>analysis<|message|>hm {<|end|><|start|>assistant<|channel|>final<|message|>{"a": 1}'
    state = grammars.compiler().constraint(grammars.holding(Grammar.json_object(), ""))
    assert accepted(state, tokenizer, text + " ") == text
    assert state.is_stopped


def test_what_tagged_arguments_cannot_be_held_to_is_named() -> None:
    form = AnswerFormat.of(TEMPLATES["qwen3-coder"])
    grammars = AnswerGrammar(form, vocabularies(form)[0])
    tool = Tool("put", {"properties": {"a": {"type": "string", "pattern": "x"}}}, "tools[0].function.parameters")
    with pytest.raises(InvalidRequestError, match=r"tools\[0\]\.function\.parameters\.properties\.a: pattern"):
        grammars.calling([tool], "", holds_many=True)
    tool = Tool("put", {"properties": {"a": {"not": {}}}}, "tools[0].function.parameters")
    with pytest.raises(InvalidRequestError, match="'not'"):
        grammars.calling([tool], "", holds_many=True)


def test_tagged_arguments_of_each_kind() -> None:
    form = AnswerFormat.of(TEMPLATES["qwen3-coder"])
    tokenizer = vocabularies(form)[0]
    grammars = AnswerGrammar(form, tokenizer)
    parameters = {
        "properties": {
            "unit": {"enum": ["C", "F"]},
            "days": {"type": "array", "items": {"type": "integer"}},
            "text": {"type": "string"},
        },
        "required": ["unit", "text"],
    }
    state = grammars.compiler().constraint(grammars.calling([Tool("put", parameters, "p")], "", holds_many=False))
    text = (
        "<tool_call>\n<function=put>\n<parameter=unit>\nC\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n"
        "<parameter=text>\na <b>\n\nc\n</parameter>\n</function>\n</tool_call>"
    )
    assert accepted(state, tokenizer, text) == text
    assert state.is_stopped


def test_parameters_that_are_not_listed_are_closed_unless_the_schema_opens_them() -> None:
    assert Tool("a", {}, "p").closed_parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert Tool("a", {"type": "object"}, "p").closed_parameters == {"type": "object"}
    opened = {"properties": {"x": {}}, "additionalProperties": True}
    assert Tool("a", opened, "p").closed_parameters == {"type": "object", **opened}
