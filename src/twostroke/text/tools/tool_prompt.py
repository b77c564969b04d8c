"""Messages with tools, as a chat template can take them. Owns what is said to a model whose template knows no tools,
and in what form earlier calls are given to one that does.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.text.tools.families import GENERIC
from twostroke.text.tools.tool import Tool
from twostroke.text.tools.tool_format import ToolFormat

Messages = Sequence[Mapping[str, Any]]

_INTRODUCTION = """You may call functions to help with the user's request. These are the functions, as JSON:
<tools>
{tools}
</tools>
To call one, answer with its name and its arguments, a JSON object, in this form and nothing else:
{form}"""


def with_arguments(messages: Messages, *, as_objects: bool) -> list[dict[str, Any]]:
    """Arguments of earlier calls as objects, which most templates write as JSON, or as texts of JSON, as the API has
    them. Arguments that are no JSON stay texts."""
    return [_with_arguments(message, as_objects) for message in messages]


def with_tools_told(messages: Messages, tools: Sequence[Tool], form: ToolFormat) -> list[dict[str, Any]]:
    """For a template that does not show tools: a system message tells of them. Where it knows no calls either, those in
    `messages` are texts as the model would write them, and results are the user's."""
    told = [_told(message) if form is GENERIC else dict(message) for message in messages]
    if not tools:
        return told
    listed = "\n".join(json.dumps(tool.template_form(), ensure_ascii=False) for tool in tools)
    text = _INTRODUCTION.format(tools=listed, form=_form(form))
    if told and told[0]["role"] == "system":
        own = _text(told[0].get("content"))
        return [{**told[0], "content": f"{own}\n\n{text}"}, *told[1:]]
    return [{"role": "system", "content": text}, *told]


def _form(form: ToolFormat) -> str:
    written = form.written
    head = written.head.replace("{name}", "<function-name>")
    return f"{written.opening}{head}<args-json-object>{written.tail}{written.closing}"


def _with_arguments(message: Mapping[str, Any], as_objects: bool) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    return {**message, "tool_calls": [_call(call, as_objects) for call in calls]}


def _call(call: Mapping[str, Any], as_objects: bool) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if as_objects and isinstance(arguments, str):
        arguments = _object(arguments)
    elif not as_objects and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _object(text: str) -> Any:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _told(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{_text(message.get('content'))}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    texts = [_text(message.get("content")), *map(_written, calls)]
    others = {key: value for key, value in message.items() if key not in ("tool_calls", "content")}
    return {**others, "content": "\n".join(text for text in texts if text)}


def _written(call: Mapping[str, Any]) -> str:
    function = call["function"]
    arguments = function["arguments"]
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {json.dumps(function["name"])}, "arguments": {written or "{}"}}}\n</tool_call>'


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return content or ""
