"""Grammars put together at random from their own parts: each is refused in one line, or holds an answer to its end."""

import random
from collections.abc import Callable
from time import process_time

import numpy as np
import pytest
from tests.text.answers import tokenizer_with

from twostroke.errors import InvalidRequestError
from twostroke.text.grammar.compiler import GrammarCompiler
from twostroke.text.grammar.grammar import Grammar

TOKENIZER = tokenizer_with([])
COMPILER = GrammarCompiler(TOKENIZER)
MAPS = ("properties", "patternProperties", "$defs")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
ONES = ("items", "additionalProperties")
OTHERS = ("type", "enum", "const", "$ref", "required", "minItems", "maxItems", "minLength", "maxLength", "pattern")
MORE = ("format", "minimum", "maximum", "exclusiveMinimum", "multipleOf", "minProperties", "default", "title")
ATOMS = (
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    2**63,
    10**30,
    "",
    "a",
    "object",
    "string",
    "integer",
    "array",
    "#",
    "#/$defs/a",
)
TEXTS = ("^a*$", "(", "date-time", "é😀", "\0", "a{3,2}", "\\", [], {}, ["a"], ["string", "null"])
PATTERN = [
    *'ab|*+?()[]{}^$.\\-,019&~/\n"é😀:#',
    "\\d",
    "\\b",
    "{2,3}",
    "[a-z]",
    "(?:",
    "(?i)",
    "\\p{L}",
    "\\x",
    "(?P<n>",
]
LARK = ["start:", " a", " A", '"x"', '"', "/a/", "/", "\n", "a:", "A:", *"|()*+?&~$", "{1,3}", "%json {}", "%ignore"]
LARK += [
    "%import common.WS",
    "<[1]>",
    "<s>",
    "<[9999999]>",
    "@a",
    "%llguidance {}",
    "[lazy]",
    '"a".."z"',
    "%lark {",
    "}",
]


def schema(draw: random.Random, depth: int = 0) -> dict[str, object]:
    made: dict[str, object] = {}
    for _ in range(draw.randint(0, 4)):
        keyword = draw.choice((*MAPS, *LISTS, *ONES, *OTHERS, *MORE))
        inner = [schema(draw, depth + 1) for _ in range(draw.randint(0, 2))] if depth < 4 else []
        if keyword in MAPS and draw.random() < 0.9:
            made[keyword] = dict(zip(("a", "^x"), inner, strict=False))
        elif keyword in LISTS and draw.random() < 0.9:
            made[keyword] = inner
        elif keyword in ONES:
            made[keyword] = draw.choice([*inner, True, False])
        else:
            made[keyword] = draw.choice([*ATOMS, *TEXTS, *inner])
    return made


def some(draw: random.Random, parts: list[str], most: int = 14) -> str:
    return "".join(draw.choice(parts) for _ in range(draw.randint(1, most)))


KINDS: dict[str, Callable[[random.Random], Grammar]] = {
    "schema": lambda draw: Grammar.json_schema(schema(draw)),
    "regex": lambda draw: Grammar.regex(some(draw, PATTERN)),
    "lark": lambda draw: Grammar.lark(f'start: {some(draw, LARK, 4)}\na: "x"\nA: /[yz]/'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_random_grammar_is_refused_in_a_line_or_held_to(kind: str) -> None:
    draw = random.Random(kind)
    mask = np.zeros((TOKENIZER.vocab_size + 31) // 32, np.uint32)
    num_held = 0
    started = process_time()
    for _ in range(150):
        try:
            state = COMPILER.constraint(KINDS[kind](draw))
            for _ in range(20):
                if state.is_stopped:
                    break
                state.fill_mask(mask)
                allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
                token_id = int(allowed[draw.randrange(len(allowed))])
                if token_id in TOKENIZER.eos_ids:
                    break
                state.accept(token_id)
            num_held += 1
        except InvalidRequestError as error:
            assert "\n" not in str(error) and len(str(error)) < 600
    assert num_held >= 5
    assert process_time() - started < 20
