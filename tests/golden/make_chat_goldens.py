"""Makes chat_templates.json: what `transformers` renders for each template and conversation. Owns the conversations
and the two templates written for this test; the others come from the model files named on the command line.

    python make_chat_goldens.py smollm2=FILE.gguf qwen2.5=FILE.gguf

Needs transformers, jinja2 and gguf; the tests need none of them, only the JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jinja2
import transformers
from gguf import GGUFReader
from tokenizers import Tokenizer
from tokenizers.models import BPE

LLAMA3_PLAIN = """{% set turns = messages %}{% for turn in turns %}
{%- set text = '<|start_header_id|>' + turn['role'] + '<|end_header_id|>\n\n' + turn['content'] | trim + '<|eot_id|>' %}
{%- if loop.first %}{% set text = bos_token + text %}{% endif %}
{{- text }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
"""

LLAMA3_TOOLS = """{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- macro text_of(content) %}
    {%- if content is string %}{{ content | trim }}
    {%- else %}{% for part in content %}{{ part['text'] | trim }}{% endfor %}{% endif %}
{%- endmacro %}
{%- set state = namespace(system='', calls=0) %}
{%- if messages[0].role == 'system' %}
    {%- set state.system = text_of(messages[0].content) %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set turns = messages %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\nToday: " ~ date_string ~ "\n" }}
{%- if tools %}
    {{- "Answer with a function call in JSON where one helps.\n" }}
    {%- for tool in tools %}
        {{- tool | tojson(indent=4) }}
        {{- "\n" }}
    {%- endfor %}
{%- endif %}
{{- state.system ~ "<|eot_id|>" }}
{%- for turn in turns %}
    {%- if turn.role == 'comment' %}{% continue %}{% endif %}
    {%- if turn.tool_calls %}
        {%- if turn.tool_calls | length != 1 %}{{ raise_exception('One tool call a turn') }}{% endif %}
        {%- set call = turn.tool_calls[0].function %}
        {%- set state.calls = state.calls + 1 %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {%- generation %}
        {{- '{"name": "' ~ call.name ~ '", "parameters": ' ~ call.arguments | tojson ~ '}' }}
        {{- '<|eot_id|>' }}
        {%- endgeneration %}
    {%- elif turn.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\n\n' ~ turn.content | tojson ~ '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' ~ turn.role ~ '<|end_header_id|>\n\n' ~ text_of(turn.content) ~ '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

FERRY_TOOL = {
    "type": "function",
    "function": {
        "name": "next_ferry",
        "description": "When the next ferry leaves <for> a harbour & back.",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string", "enum": ["Łeba", "Travemünde"]}},
            "required": ["harbour"],
        },
    },
}
FERRY_CALL = {"type": "function", "function": {"name": "next_ferry", "arguments": {"harbour": "Łeba", "after": 7}}}

CONVERSATIONS: dict[str, dict[str, Any]] = {
    "system": {
        "messages": [
            {"role": "system", "content": "  Answer in one word.\n"},
            {"role": "user", "content": "What floats?"},
        ],
        "add_generation_prompt": True,
    },
    "multi-turn": {
        "messages": [
            {"role": "user", "content": "Name a <b>knot</b> & its use."},
            {"role": "assistant", "content": "Bowline: a loop that holds.\n\n"},
            {"role": "user", "content": "'Another', \"please\" 🪢"},
        ],
        "add_generation_prompt": True,
    },
    "tools": {
        "messages": [
            {"role": "system", "content": "You keep the timetable."},
            {"role": "user", "content": "When is the next ferry from Łeba?"},
            {"role": "assistant", "content": "", "tool_calls": [FERRY_CALL]},
            {"role": "tool", "name": "next_ferry", "content": '{"leaves": "07:40"}'},
        ],
        "tools": [FERRY_TOOL],
        "add_generation_prompt": True,
    },
    "content parts": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": " Two parts: "}, {"type": "text", "text": "one text"}],
            }
        ],
        "add_generation_prompt": True,
    },
    "null content": {
        "messages": [
            {"role": "user", "content": "And from Travemünde?"},
            {"role": "assistant", "content": None, "tool_calls": [FERRY_CALL]},
            {"role": "tool", "content": "none today"},
            {"role": "assistant", "content": "None today."},
        ],
        "tools": [FERRY_TOOL],
        "add_generation_prompt": False,
    },
    "continued": {
        "messages": [
            {"role": "user", "content": "Write the log of the day."},
            {"role": "assistant", "content": "Wind from the west, "},
        ],
        "continue_final_message": True,
        "add_generation_prompt": False,
    },
}


def render(source: str, tokens: dict[str, str], conversation: dict[str, Any]) -> dict[str, str]:
    """The text, or the kind of error, that `transformers` gives."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()), **tokens)
    try:
        arguments = {**conversation, "date_string": "26 Jul 2024"}
        messages = arguments.pop("messages")
        text = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **arguments)
        return {"text": text}
    except (TypeError, jinja2.TemplateError) as error:
        return {"error": type(error).__name__}


def template_of(path: str) -> tuple[str, dict[str, str]]:
    """A GGUF file's template, and its BOS and EOS texts."""
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"]
    ids = {name: fields[f"tokenizer.ggml.{name}_id"].contents() for name in ("bos_token", "eos_token")}
    texts = {name: bytes(tokens.parts[tokens.data[token_id]]).decode() for name, token_id in ids.items()}
    return str(fields["tokenizer.chat_template"].contents()), texts


def main() -> None:
    """Writes chat_templates.json beside this file."""
    llama3 = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    templates = {name: template_of(path) for name, path in (argument.split("=", 1) for argument in sys.argv[1:])}
    templates |= {"llama3-plain": (LLAMA3_PLAIN, llama3), "llama3-tools": (LLAMA3_TOOLS, llama3)}
    golden = {
        "made_with": f"transformers {transformers.__version__}",
        "conversations": CONVERSATIONS,
        "templates": {
            name: {
                "source": source,
                **tokens,
                "rendered": {title: render(source, tokens, chat) for title, chat in CONVERSATIONS.items()},
            }
            for name, (source, tokens) in templates.items()
        },
    }
    text = json.dumps(golden, ensure_ascii=False, indent=1)
    Path(__file__).with_name("chat_templates.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
