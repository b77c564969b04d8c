"""Lark rules for tool calls in one model's format. Owns their shape; what may stand around them is
`answer_grammar.py`'s.
"""

from collections.abc import Mapping, Sequence

from twostroke.errors import InvalidRequestError
from twostroke.text.grammar.grammar import Spelling, json_rule, literal
from twostroke.text.grammar.json_schema import checked_schema
from twostroke.text.tools.tagged_calls import schema_types
from twostroke.text.tools.tool import Tool
from twostroke.text.tools.tool_format import ToolFormat

MAX_CALLS = 16  # in one answer that a grammar holds: a model may not go on forever
_OF_TEXT = ("pattern", "format", "minLength", "maxLength")


def call_rules(form: ToolFormat, tools: Sequence[Tool], spelling: Spelling, *, holds_many: bool) -> str:
    """The rule `calls`, and those it uses. Raises InvalidRequestError naming what cannot be enforced."""
    written = form.written
    once = spelling.of(written.opening), "call"
    again = f"({spelling.of(written.between)} call){{0,{MAX_CALLS - 1}}}" if holds_many and written.holds_many else ""
    rules = [f"calls: {' '.join(part for part in (*once, again, spelling.of(written.closing)) if part)}"]
    rules.append("call: " + " | ".join(f"call_{index}" for index in range(len(tools))))
    for index, tool in enumerate(tools):
        name, schema = f"call_{index}", checked_schema(tool.closed_parameters, tool.field)
        head, tail = spelling.of(written.head.replace("{name}", tool.name)), spelling.of(written.tail)
        if written.parameter is None:
            rules.append(f"{name}: {head} {name}_arguments {tail}")
            rules.append(f"{name}_arguments: {json_rule(schema)}")
        else:
            rules.append(f"{name}: {head} {name}_arguments {tail}")
            rules += _Tagged(name, schema, written.parameter, spelling, tool.field).rules()
    return "\n".join(rules) + "\n"


def bare_rules(tools: Sequence[Tool]) -> str:
    """The rule `bare`: one call without marks, its JSON in a fence or not, white space bounded. It uses the rules for
    arguments of `call_rules`."""
    named = literal('"name":'), literal('"arguments":')
    rules = ["bare: json_call | " + f"{literal('```json')} BLANK json_call BLANK {literal('```')}"]
    rules.append("json_call: " + " | ".join(f"json_call_{index}" for index in range(len(tools))))
    for index, tool in enumerate(tools):
        name = literal(f'"{tool.name}"')
        inner = f'{named[0]} BLANK? {name} BLANK? "," BLANK? {named[1]} BLANK? call_{index}_arguments'
        rules.append(f'json_call_{index}: "{{" BLANK? {inner} BLANK? "}}"')
    return "\n".join([*rules, r"BLANK: /[ ]|\n[ \t]{0,24}/", ""])


class _Tagged:
    """Rules for arguments that are tagged texts, those that are required and those that are not, in the schema's
    order."""

    def __init__(
        self,
        name: str,
        schema: Mapping[str, object],
        tags: tuple[str, str, str],
        spelling: Spelling,
        field: str,
    ) -> None:
        self._name, self._schema, self._tags = name, schema, tags
        self._spelling, self._field = spelling, field

    def rules(self) -> list[str]:
        properties = self._schema.get("properties")
        if not isinstance(properties, Mapping):
            properties = {}
        required = self._schema.get("required")
        required = required if isinstance(required, list) else []
        missing = [key for key in required if key not in properties]
        if missing:
            raise InvalidRequestError(f"{self._field}.required: {missing[0]!r} is not among the properties")
        rules, order = [], []
        for index, (key, part) in enumerate(properties.items()):
            rule = f"{self._name}_{index}"
            order.append(rule if key in required else f"{rule}?")
            rules += self._parameter(rule, key, part)
        return [f"{self._name}_arguments: {' '.join(order) or literal('')}", *rules]

    def _parameter(self, rule: str, key: str, part: object) -> list[str]:
        before, between, after = self._tags
        head = self._spelling.of(f"{before}{key}{between}")
        part = part if isinstance(part, Mapping) else {}
        options = part.get("enum", [part["const"]] if "const" in part else None)
        if isinstance(options, list) and options and all(isinstance(option, str) for option in options):
            texts = " | ".join(self._spelling.of(option) for option in options)
            return [f"{rule}: {head} ({texts}) {self._spelling.of(after)}"]
        if "string" not in schema_types(part):
            own = {**part, **{key: self._schema[key] for key in ("$defs", "definitions") if key in self._schema}}
            return [f"{rule}: {head} {rule}_value {self._spelling.of(after)}", f"{rule}_value: {json_rule(own)}"]
        for keyword in _OF_TEXT:
            if keyword in part:
                field = f"{self._field}.properties.{key}"
                raise InvalidRequestError(f"{field}: {keyword} cannot be enforced in this model's format of tool calls")
        return [f"{rule}: {head} {rule}_value", *self._spelling.text_until(f"{rule}_value", after)]
