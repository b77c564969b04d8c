"""The formats of tool calls that models are trained in. Owns the table, and which of it a chat template means.

The forms are those of the families' published chat templates and model cards.
"""

import re

from twostroke.text.tools.tagged_calls import Tags
from twostroke.text.tools.tool_format import ToolFormat, Written

_NAME = r"\s*(?P<name>[\w.\-/]+)\s*"

HERMES = ToolFormat(
    name="hermes",
    begins=("<tool_call>",),
    ends=("</tool_call>",),
    written=Written('<tool_call>\n{"name": "{name}", "arguments": ', "}\n</tool_call>", between="\n"),
    has_json=True,
    is_bare=True,
)
QWEN3_CODER = ToolFormat(
    name="qwen3-coder",
    begins=("<tool_call>",),
    ends=("</tool_call>",),
    written=Written(
        "<tool_call>\n<function={name}>\n",
        "</function>\n</tool_call>",
        between="\n",
        parameter=("<parameter=", ">\n", "\n</parameter>\n"),
    ),
    tags=Tags(
        begin="<function=",
        name=r"\s*<function=(?P<name>[^>\n]+)>",
        parameter=r"\s*<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>",
        end=r"\s*</function>",
    ),
)
GLM = ToolFormat(
    name="glm",
    begins=("<tool_call>",),
    ends=("</tool_call>",),
    inner=("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
    written=Written(
        "<tool_call>{name}\n",
        "</tool_call>",
        between="\n",
        parameter=("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
    ),
    tags=Tags(
        begin="",
        name=r"\s*(?P<name>[\w.\-/]+)(?:\n|\s*(?=<arg_key>))",
        parameter=r"\s*<arg_key>(?P<key>[^<]+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>",
        end="",
    ),
)
MINIMAX = ToolFormat(
    name="minimax",
    begins=("<minimax:tool_call>",),
    ends=("</minimax:tool_call>",),
    written=Written(
        '<invoke name="{name}">\n',
        "</invoke>\n",
        opening="<minimax:tool_call>\n",
        closing="</minimax:tool_call>",
        parameter=('<parameter name="', '">', "</parameter>\n"),
    ),
    tags=Tags(
        begin="<invoke name=",
        name=r'\s*<invoke name="?(?P<name>[^">\n]+)"?>',
        parameter=r'\s*<parameter name="?(?P<key>[^">\n]+)"?>(?P<value>.*?)</parameter>',
        end=r"\s*</invoke>",
    ),
)
LLAMA3 = ToolFormat(
    name="llama3",
    begins=("<|python_tag|>",),
    ends=(),
    written=Written('{"name": "{name}", "parameters": ', "}", holds_many=False),
    has_json=True,
    is_bare=True,
)
MISTRAL = ToolFormat(
    name="mistral",
    begins=("[TOOL_CALLS]",),
    ends=(),
    inner=("[ARGS]", "[CALL_ID]"),
    written=Written('{"name": "{name}", "arguments": ', "}", opening="[TOOL_CALLS][", between=", ", closing="]"),
    header=_NAME + r"(?:\[CALL_ID\]\w*)?\s*(?:\[ARGS\])?\s*",
    has_json=True,
    num_id=9,
)
MISTRAL_ARGS = ToolFormat(
    name="mistral-args",
    begins=MISTRAL.begins,
    ends=(),
    inner=MISTRAL.inner,
    written=Written("[TOOL_CALLS]{name}[ARGS]"),
    header=MISTRAL.header,
    has_json=True,
    num_id=9,
)
GRANITE = ToolFormat(
    name="granite",
    begins=("<|tool_call|>", "<tool_call>"),
    ends=("</tool_call>",),
    written=Written('{"name": "{name}", "arguments": ', "}", opening="<|tool_call|>[", between=", ", closing="]"),
    has_json=True,
)
PHI4_MINI = ToolFormat(
    name="phi4-mini",
    begins=("<|tool_call|>", "functools"),
    ends=("<|/tool_call|>",),
    written=Written(
        '{"name": "{name}", "arguments": ', "}", opening="<|tool_call|>[", between=", ", closing="]<|/tool_call|>"
    ),
    has_json=True,
)
_DEEPSEEK_OUTER = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
DEEPSEEK = ToolFormat(
    name="deepseek",
    begins=("<｜tool▁call▁begin｜>",),
    ends=("<｜tool▁call▁end｜>",),
    inner=("<｜tool▁sep｜>",),
    passed=_DEEPSEEK_OUTER,
    written=Written(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
        "\n```<｜tool▁call▁end｜>",
        opening=_DEEPSEEK_OUTER[0],
        between="\n",
        closing=_DEEPSEEK_OUTER[1],
    ),
    header=r"(?:\s*function\s*<｜tool▁sep｜>)?" + _NAME + r"(?:<｜tool▁sep｜>)?\s*(?:```(?:json)?\s*)?",
)
DEEPSEEK_V31 = ToolFormat(
    name="deepseek-v3.1",
    begins=DEEPSEEK.begins,
    ends=DEEPSEEK.ends,
    inner=DEEPSEEK.inner,
    passed=_DEEPSEEK_OUTER,
    written=Written(
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        opening=_DEEPSEEK_OUTER[0],
        closing=_DEEPSEEK_OUTER[1],
    ),
    header=DEEPSEEK.header,
)
COMMAND = ToolFormat(
    name="command",
    begins=("<|START_ACTION|>",),
    ends=("<|END_ACTION|>",),
    written=Written(
        '{"tool_call_id": "0", "tool_name": "{name}", "parameters": ',
        "}",
        opening="<|START_ACTION|>[\n    ",
        between=",\n    ",
        closing="\n]<|END_ACTION|>",
    ),
    has_json=True,
)
COMMAND_R = ToolFormat(
    name="command-r",
    begins=("Action: ```json", "Action:```json"),
    ends=(),
    written=Written(
        '{\n        "tool_name": "{name}",\n        "parameters": ',
        "\n    }",
        opening="Action: ```json\n[\n    ",
        between=",\n    ",
        closing="\n]```",
    ),
    has_json=True,
)
# For a template that knows no tools: `tool_prompt.py` asks for Hermes' form, the one most models have seen.
GENERIC = ToolFormat(
    name="generic",
    begins=HERMES.begins,
    ends=HERMES.ends,
    written=HERMES.written,
    has_json=True,
    is_bare=True,
)
HARMONY = ToolFormat(
    name="harmony",
    begins=(),
    ends=(),
    written=Written("<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>", holds_many=False),
)

# Texts that only this family's template has, the more telling first.
_TELLING: tuple[tuple[tuple[str, ...], ToolFormat], ...] = (
    (("<|channel|>", "<|message|>"), HARMONY),
    (("<function=", "<parameter="), QWEN3_CODER),
    (("<arg_key>",), GLM),
    (("<minimax:tool_call>",), MINIMAX),
    (("[TOOL_CALLS]", "[ARGS]"), MISTRAL_ARGS),
    (("[TOOL_CALLS]",), MISTRAL),
    (("<｜tool▁calls▁begin｜>", "```json"), DEEPSEEK),
    (("<｜tool▁calls▁begin｜>",), DEEPSEEK_V31),
    (("<|START_ACTION|>",), COMMAND),
    (("Action: ```json",), COMMAND_R),
    (("Action:```json",), COMMAND_R),
    (("<|/tool_call|>",), PHI4_MINI),
    (("<|tool_call|>", "<|start_of_role|>"), GRANITE),
    (("<|tool_call|>",), PHI4_MINI),
    (("<|/tool|>",), PHI4_MINI),
    (("<tool_call>",), HERMES),
    (("<|python_tag|>",), LLAMA3),
    (('"parameters": ', "ipython"), LLAMA3),
)


def tool_format(template: str) -> ToolFormat:
    """The format that a chat template's text means; GENERIC where it tells of none."""
    return next((found for texts, found in _TELLING if all(text in template for text in texts)), GENERIC)


def knows_tools(template: str) -> bool:
    """Whether a template shows a model the tools that there are."""
    return re.search(r"\b(?:xml_)?tools\b", template) is not None
