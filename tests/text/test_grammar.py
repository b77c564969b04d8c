import json
from threading import Thread
from time import process_time
from typing import Any

import numpy as np
import pytest
from tests.text.answers import accepted, tokenizer_with

from twostroke.errors import InvalidRequestError
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.grammar.constraint import Constraint
from twostroke.text.grammar.grammar import Grammar
from twostroke.text.grammar.json_schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH

TOKENIZER = tokenizer_with(["<mark>"])
COMPILER = GrammarCompiler(TOKENIZER)


def constraint(schema: object) -> Constraint:
    return COMPILER.constraint(Grammar.json_schema(schema, "schema"))


def is_whole(schema: object, text: str) -> bool:
    """The constraint allows all of the text, and then nothing but an end."""
    state = constraint(schema)
    return accepted(state, TOKENIZER, text) == text and state.is_accepting and state.is_stopped


def test_an_enum_behind_a_reference_is_enforced() -> None:
    """Case JSN-01."""
    schema = {
        "type": "object",
        "properties": {"colour": {"$ref": "#/$defs/colour"}},
        "required": ["colour"],
        "additionalProperties": False,
        "$defs": {"colour": {"enum": ["red", "blue"]}},
    }
    assert is_whole(schema, '{"colour": "blue"}')
    assert accepted(constraint(schema), TOKENIZER, '{"colour": "bread"}') == '{"colour": "b'


def test_references_to_several_definitions_and_to_oneself() -> None:
    schema = {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "point": {"$ref": "#/$defs/point"},
                    "next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]},
                },
                "required": ["point", "next"],
                "additionalProperties": False,
            },
            "point": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        },
    }
    assert is_whole(schema, '{"point": [1, 2.5], "next": {"point": [0, -1e3], "next": null}}')
    assert accepted(constraint(schema), TOKENIZER, '{"point": [1]') == '{"point": [1'


def test_blanks_between_tokens_are_bounded_and_none_follow_the_last_brace() -> None:
    """Case JSN-05."""
    for blanks in ("  ", "\n\n", "\n" + " " * 25, "\t", " \n"):
        assert accepted(constraint({}), TOKENIZER, f'{{"a":{blanks}1') != f'{{"a":{blanks}1'
    for schema in ({"type": "object"}, {"type": "array", "items": {"type": "integer"}, "minItems": 1}):
        opening = '{"a":' if schema["type"] == "object" else "["
        state = constraint(schema)
        assert accepted(state, TOKENIZER, opening + " " * 50) == opening + " "
    pretty = '{\n    "a": {\n        "b": [1, 2]\n    }\n}'
    state = constraint({"type": "object"})
    assert accepted(state, TOKENIZER, pretty + "\n\n") == pretty
    assert state.is_stopped


def test_a_string_that_is_closed_can_only_be_followed_by_more_json() -> None:
    """Case JSN-12."""
    state = constraint({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
    assert accepted(state, TOKENIZER, '{"a": "x" ') == '{"a": "x" '
    mask = np.zeros((TOKENIZER.vocab_size + 31) // 32, np.uint32)
    state.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: TOKENIZER.vocab_size]
    assert {TOKENIZER.token_bytes(int(one)) for one in np.flatnonzero(bits)} == {b",", b"}"}


@pytest.mark.parametrize("most", [100, 1000])
def test_arrays_with_large_bounds_cost_little(most: int) -> None:
    """Case JSN-07."""
    started = process_time()
    state = constraint({"type": "array", "items": {"type": "number"}, "minItems": 10, "maxItems": most})
    compiled = process_time() - started
    assert accepted(state, TOKENIZER, json.dumps([1.5] * 9) + " ") == json.dumps([1.5] * 9)[:-1]
    rest = ", 1.5" * (most - 9)
    started = process_time()
    assert accepted(state, TOKENIZER, f"{rest}]") == f"{rest}]"
    a_token = (process_time() - started) / len(rest)
    assert state.is_stopped
    assert compiled < 0.5
    assert a_token < 2e-3


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"properties": {"a": {"not": {"type": "string"}}}}, "schema.properties.a: the JSON schema keyword 'not'"),
        ({"items": {"anyOf": [{"uniqueItems": True}]}}, "schema.items.anyOf[0]: the JSON schema keyword 'uniqueItems'"),
        ({"type": "string", "minlength": 3}, "'minlength'"),
        ({"type": "string", "nullable": True}, "'nullable'"),
        ({"type": "string", "format": "tax-number"}, "tax-number"),
        ({"type": "string", "pattern": "(?=a)b"}, "look"),
        ({"oneOf": [{"type": "string"}, {"minLength": 3}]}, "oneOf"),
        ({"$ref": "https://example.invalid/a.json"}, "example.invalid"),
        ({"$ref": "#/$defs/a"}, "$defs/a"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "no text satisfies it"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum"),
        ({"enum": []}, "schema"),
        ({"type": "text"}, "text"),
        ({"multipleOf": True}, "schema"),
        ({"type": "string", "format": {"maximum": "é😀" * 50}}, "schema"),
        ({"pattern": {"maximum": {"minLength": "x" * 50 + "é😀" * 50}}}, "schema"),
        ({"x-guidance": {"lenient": True}}, "x-guidance"),
        (False, "must be a JSON schema"),
        (None, "must be a JSON schema, an object, not null"),
        ([], "not an array"),
        ({"properties": {"a": 3}}, "schema.properties.a must be a JSON schema, an object, not a number"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, f"at most {MAX_SCHEMA_BYTES}"),
    ],
)
def test_what_cannot_be_enforced_is_named(schema: Any, named: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        constraint(schema)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_schema_that_is_nested_deeply_is_refused() -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(MAX_SCHEMA_DEPTH):
        schema = {"items": schema}
    with pytest.raises(InvalidRequestError, match="nested"):
        constraint(schema)


def test_annotations_and_property_names_are_no_keywords() -> None:
    schema = {
        "title": "T",
        "x-order": 1,
        "type": "object",
        "properties": {"not": {"type": "integer", "examples": [1], "default": {"if": 1}}},
        "required": ["not"],
        "additionalProperties": False,
    }
    assert is_whole(schema, '{"not": 1}')


def test_regular_expressions_match_as_a_whole() -> None:
    state = COMPILER.constraint(Grammar.regex("[a-c]{2}/\\d"))
    assert accepted(state, TOKENIZER, "ab/7x") == "ab/7"
    assert state.is_stopped
    for pattern, named in (("(a", "unclosed"), ("", "empty"), ("(?=a)", "look")):
        with pytest.raises(InvalidRequestError, match=named):
            COMPILER.constraint(Grammar.regex(pattern))


def test_grammars_in_lark() -> None:
    state = COMPILER.constraint(Grammar.lark('start: "a" more\nmore: "b" | "c" more\n'))
    assert accepted(state, TOKENIZER, "accbb") == "accb"
    for text, named in (('x: "a"', "start"), ("start: b", '"b"'), ('start: "a', "grammar")):
        with pytest.raises(InvalidRequestError, match=named):
            COMPILER.constraint(Grammar.lark(text))


def test_control_tokens_and_their_text() -> None:
    """A control token is none of the text of its letters, and never in a string."""
    state = COMPILER.constraint(Grammar.json_object())
    assert accepted(state, TOKENIZER, '{"a": "') == '{"a": "'
    mask = np.zeros((TOKENIZER.vocab_size + 31) // 32 + 2, np.uint32)
    mask[-2:] = 7
    state.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    for text in ("<s>", "</s>", "<|im_start|>", "<|im_end|>"):
        assert not bits[TOKENIZER.encode(text, parse_special=True)[0]]
    assert bits[TOKENIZER.encode("<")[0]]
    assert not bits[TOKENIZER.vocab_size :].any()
    assert accepted(COMPILER.constraint(Grammar.regex("<s>")), TOKENIZER, "<s>") == ""
    spelled = COMPILER.constraint(Grammar.regex("<s>"))
    for char in "<s>":
        spelled.accept(TOKENIZER.encode(char)[0])
    assert spelled.is_stopped


def test_an_end_is_allowed_where_the_text_is_whole_and_only_there() -> None:
    state = COMPILER.constraint(Grammar.regex("a+"))
    mask = np.zeros((TOKENIZER.vocab_size + 31) // 32, np.uint32)
    end = min(TOKENIZER.eos_ids)
    for expected in (False, True, True):
        state.fill_mask(mask)
        assert bool(mask[end // 32] >> (end % 32) & 1) == expected
        state.accept(TOKENIZER.encode("a")[0])


def test_constraints_of_one_grammar_are_apart_and_compile_once() -> None:
    grammar = Grammar.regex("(ab)+")
    first, second = COMPILER.constraint(grammar), COMPILER.constraint(grammar)
    first.accept(TOKENIZER.encode("a")[0])
    assert accepted(second, TOKENIZER, "b") == ""
    assert accepted(first, TOKENIZER, "ba") == "ba"
    assert accepted(first.copy(), TOKENIZER, "b") == accepted(first, TOKENIZER, "b") == "b"


def test_a_token_that_is_not_allowed_is_an_error_and_stays_one() -> None:
    state = COMPILER.constraint(Grammar.regex("ab"))
    with pytest.raises(InvalidRequestError):
        state.accept(TOKENIZER.encode("x")[0])


def test_threads_compile_together() -> None:
    compiler = GrammarCompiler(TOKENIZER)
    results: list[str] = []

    def work(number: int) -> None:
        for index in range(10):
            state = compiler.constraint(Grammar.regex(f"x{index % 5}|y{number}"))
            results.append(accepted(state, TOKENIZER, f"y{number}z"))

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(set(results)) == ["y0", "y1", "y2", "y3"]
    assert len(results) == 40


@pytest.mark.parametrize(
    "pattern",
    [
        "a{100000}",
        "(a{99}){99}{2}",
        "((((a{99}){99}){99}){99})",
        "([ab]\\d{1,200}){1,99}",
        "x{0,20000}",
        "(a|(b{101})){100,}",
    ],
)
def test_repeats_that_multiply_are_refused(pattern: str) -> None:
    started = process_time()
    for make in (
        lambda: Grammar.regex(pattern),
        lambda: Grammar.json_schema({"items": {"pattern": pattern}}),
        lambda: Grammar.json_schema({"patternProperties": {pattern: {}}}),
        lambda: Grammar.lark(f"start: A\nA: /{pattern}/\n"),
        lambda: Grammar.lark('start: C\nA: "a"{99}\nB: A{99}\nC: (B | "x"){9}\n'),
    ):
        with pytest.raises(InvalidRequestError, match="written out"):
            make()
    for step in (999983, 0.123457, 0, -1):
        with pytest.raises(InvalidRequestError, match="multipleOf"):
            Grammar.json_schema({"multipleOf": step})
    assert process_time() - started < 1


def test_work_is_bounded() -> None:
    started = process_time()
    for grammar in (
        Grammar.regex("(.*a){300}"),
        Grammar.regex("(a|b)*a(a|b){4000}"),
        Grammar.regex("(a{1,99}){1,99}"),
        Grammar.json_schema({"multipleOf": 9999}),
        Grammar.json_schema({"multipleOf": 0.07}),
        Grammar.json_schema({"type": "string", "minLength": 10**9}),
        Grammar.json_schema({"const": "a" * 60_000}),
        Grammar.json_schema(
            {"anyOf": [{"properties": {f"{i}": {"const": i + j}}} for i in range(40) for j in range(9)]}
        ),
        Grammar.lark('start: a\na: a a | "x" | b\nb: a | b b\n'),
    ):
        try:
            state = COMPILER.constraint(grammar)
            accepted(state, TOKENIZER, '{"0": "aaaa' if "json" in grammar.text else "aaaaaaabab")
        except InvalidRequestError as error:
            assert len(str(error)) < 500
    assert process_time() - started < 8
