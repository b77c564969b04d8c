"""Answers made of a small vocabulary, and what is read from them. Owns test data only."""

from collections.abc import Iterable

import numpy as np
from tests.text import byte_vocabulary

from twostroke.errors import InvalidRequestError
from twostroke.text.answer.events import AnswerEvent, CallArguments, CallStarted, Content, Reasoning
from twostroke.text.answer_format import AnswerFormat
from twostroke.text.answer_reader import AnswerReader
from twostroke.text.grammar.constraint import Constraint
from twostroke.text.tokenizer import Tokenizer
from twostroke.text.tools.tool import Tool
from twostroke.text.tools.tool_format import ToolFormat

ADD = Tool(
    "add",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["a"],
    },
    "tools[0].function.parameters",
)
NOW = Tool("now", {}, "tools[1].function.parameters")
SCHEMAS = {tool.name: tool.parameters for tool in (ADD, NOW)}

# A text that only that family's chat template would have.
TEMPLATES = {
    "hermes": "tools <tool_call>",
    "qwen3-coder": "tools <tool_call><function=x><parameter=y>",
    "glm": "tools <tool_call> <arg_key>",
    "minimax": "tools <minimax:tool_call>",
    "llama3": "tools <|python_tag|>",
    "mistral": "tools [TOOL_CALLS]",
    "mistral-args": "tools [TOOL_CALLS] [ARGS]",
    "granite": "tools <|tool_call|> <|start_of_role|>",
    "phi4-mini": "tools <|tool|> <|/tool|>",
    "deepseek": "tools <｜tool▁calls▁begin｜> ```json",
    "deepseek-v3.1": "tools <｜tool▁calls▁begin｜>",
    "command": "tools <|START_ACTION|>",
    "command-r": "tools Action: ```json",
    "generic": "{{ messages }}",
    "harmony": "tools <|channel|> <|message|>",
}
# The same two calls, as each family's model writes them.
TWO_CALLS = {
    "hermes": '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "qwen3-coder": "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n"
    "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    "glm": "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>now\n</tool_call>",
    "minimax": '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">1</parameter>\n</invoke>\n'
    '<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    "llama3": '{"name": "add", "parameters": {"a": 1}}; {"name": "now", "parameters": {}}',
    "mistral": '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}, {"name": "now", "arguments": {}}]',
    "mistral-args": '[TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]now[ARGS]{}',
    "granite": '<|tool_call|>[{"name": "add", "arguments": {"a": 1}}, {"name": "now", "arguments": {}}]',
    "phi4-mini": '<|tool_call|>[{"name": "add", "arguments": {"a": 1}}, '
    '{"name": "now", "arguments": {}}]<|/tool_call|>',
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
    '{"a": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n'
    "{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "deepseek-v3.1": '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜>'
    "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "command": '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "add", "parameters": {"a": 1}},\n'
    '    {"tool_call_id": "0", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
    "command-r": 'Action: ```json\n[\n    {\n        "tool_name": "add",\n        "parameters": {"a": 1}\n    },\n'
    '    {\n        "tool_name": "now",\n        "parameters": {}\n    }\n]```',
    "generic": '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
    "harmony": '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>'
    "<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
}


def tokenizer_with(marks: Iterable[str]) -> Tokenizer:
    """Bytes, a few merges, and each mark as one token."""
    marks = sorted(marks)
    plain = [*byte_vocabulary.BYTE_TOKENS, *byte_vocabulary.MERGED]
    control = byte_vocabulary.CONTROL
    return Tokenizer.from_gguf(
        byte_vocabulary.metadata(
            tokens=[*plain, *control, *marks], token_type=[1] * len(plain) + [3] * len(control) + [4] * len(marks)
        )
    )


def read(reader: AnswerReader, tokenizer: Tokenizer, text: str) -> list[AnswerEvent]:
    """Every event as it comes; marks that are tokens are those tokens."""
    ids = tokenizer.encode(text, add_special=False, parse_special=True)
    return [event for token_id in ids for event in reader.push(token_id)] + reader.finish()


def reader_of(name: str, tokenizer: Tokenizer, prompt: str = "") -> AnswerReader:
    return AnswerReader(AnswerFormat.of(TEMPLATES[name]), tokenizer, prompt=prompt, schemas=SCHEMAS)


def calls(events: Iterable[AnswerEvent]) -> list[tuple[str, str]]:
    """Name and joined arguments of each call."""
    found: dict[int, tuple[str, str]] = {}
    for event in events:
        if isinstance(event, CallStarted):
            assert event.index == len(found), "indexes count from 0, each begun once"
            found[event.index] = (event.name, "")
        elif isinstance(event, CallArguments):
            name, arguments = found[event.index]
            found[event.index] = (name, arguments + event.text)
    return list(found.values())


def content(events: Iterable[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Content))


def reasoning(events: Iterable[AnswerEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Reasoning))


def vocabularies(form: ToolFormat | AnswerFormat) -> list[Tokenizer]:
    """One in which the format's marks are tokens, one in which they are spelled."""
    return [tokenizer_with(form.marks), tokenizer_with([])]


def accepted(constraint: Constraint, tokenizer: Tokenizer, text: str) -> str:
    """As much of a text as a constraint allows, taken token by token."""
    mask = np.zeros((tokenizer.vocab_size + 31) // 32, np.uint32)
    taken: list[int] = []
    for token_id in tokenizer.encode(text, add_special=False, parse_special=True):
        try:
            constraint.fill_mask(mask)
        except InvalidRequestError:
            break
        if not mask[token_id // 32] >> (token_id % 32) & 1:
            break
        constraint.accept(token_id)
        taken.append(token_id)
    return tokenizer.decode(taken, skip_special=False)
