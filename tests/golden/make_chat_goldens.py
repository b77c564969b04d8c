"""Makes chat_templates.json: what `transformers` renders for each template and conversation. Owns the conversations
and where each template comes from; those written for this test are in `chat_templates.py`, the others are data of
models under permissive licences, in the files named on the command line, or as the JSON already has them.

    python make_chat_goldens.py smollm2=FILE.gguf qwen2.5=FILE.gguf qwen3=FILE.jinja ...

Needs transformers, jinja2 and gguf; the tests need none of them, only the JSON.
"""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import jinja2
import transformers
from chat_templates import WRITTEN
from gguf import GGUFReader
from tokenizers import Tokenizer
from tokenizers.models import BPE

# The model whose template it is, and the licence of both.
ORIGINS = {
    "smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0",
    "qwen2.5": "Qwen/Qwen2.5-Coder-1.5B-Instruct, Apache-2.0",
    "qwen3": "Qwen/Qwen3-8B, Apache-2.0",
    "qwen3-2507": "Qwen/Qwen3-4B-Instruct-2507, Apache-2.0",
    "qwen3.5": "Qwen/Qwen3.5, Apache-2.0",
    "phi-3": "microsoft/Phi-3-mini-4k-instruct, MIT",
    "phi-3.5": "microsoft/Phi-3.5-mini-instruct, MIT",
    "deepseek-r1-distill": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B, MIT",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3, MIT",
    "glm-4.5": "zai-org/GLM-4.5, MIT",
    "gpt-oss": "openai/gpt-oss-20b, Apache-2.0",
    "smolvlm": "HuggingFaceTB/SmolVLM-Instruct, Apache-2.0",
    "smollm3": "HuggingFaceTB/SmolLM3-3B, Apache-2.0",
    "granite-3.0": "ibm-granite/granite-3.0-8b-instruct, Apache-2.0",
    "granite-3.3": "ibm-granite/granite-3.3-2b-instruct, Apache-2.0",
    "granite-4.0": "ibm-granite/granite-4.0, Apache-2.0",
    "mistral-v0.2": "mistralai/Mistral-7B-Instruct-v0.2 and Mixtral-8x7B-Instruct-v0.1, Apache-2.0",
    "mistral-nemo": "mistralai/Mistral-Nemo-Instruct-2407, Apache-2.0",
    "mistral-small-3.2": "mistralai/Mistral-Small-3.2-24B-Instruct-2506, Apache-2.0",
    "qwq": "Qwen/QwQ-32B, Apache-2.0",
    "qwen3-coder": "Qwen/Qwen3-Coder, Apache-2.0",
    "phi-4": "microsoft/phi-4, MIT",
    "deepseek-v3.1": "deepseek-ai/DeepSeek-V3.1, MIT",
    "glm-4.6": "zai-org/GLM-4.6, MIT",
    "minimax-m2": "MiniMaxAI/MiniMax-M2, MIT",
    "zephyr": "HuggingFaceH4/zephyr-7b-beta, MIT",
}
BOS_AND_EOS = {
    "phi-3": ("<s>", "<|endoftext|>"),
    "phi-3.5": ("<s>", "<|endoftext|>"),
    "deepseek-r1-distill": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "deepseek-v3": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "glm-4.5": ("", "<|endoftext|>"),
    "gpt-oss": ("<|startoftext|>", "<|return|>"),
    "smolvlm": ("<|im_start|>", "<end_of_utterance>"),
    "granite-3.0": ("<|end_of_text|>", "<|end_of_text|>"),
    "granite-3.3": ("<|end_of_text|>", "<|end_of_text|>"),
    "granite-4.0": ("<|end_of_text|>", "<|end_of_text|>"),
    **dict.fromkeys(("mistral-v0.2", "mistral-nemo", "mistral-small-3.2", "zephyr"), ("<s>", "</s>")),
    "deepseek-v3.1": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    "glm-4.6": ("", "<|endoftext|>"),
    "minimax-m2": ("", "[e~["),
}
OUT = Path(__file__).with_name("chat_templates.json")
NOW = datetime(2024, 7, 26, 12)

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
    given = {name: text for name, text in tokens.items() if text}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()), **given)
    try:
        arguments = {**conversation, "date_string": "26 Jul 2024"}
        messages = arguments.pop("messages")
        text = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **arguments)
        return {"text": text}
    except (TypeError, ValueError, jinja2.TemplateError) as error:
        return {"error": type(error).__name__}


def template_of(name: str, path: str) -> tuple[str, dict[str, str]]:
    """A template, and its BOS and EOS texts: of a GGUF file, or a file by itself."""
    if not path.endswith(".gguf"):
        bos, eos = BOS_AND_EOS.get(name, ("", "<|im_end|>"))
        return Path(path).read_text("utf-8"), {"bos_token": bos, "eos_token": eos}
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"]
    ids = {name: fields[f"tokenizer.ggml.{name}_id"].contents() for name in ("bos_token", "eos_token")}
    texts = {name: bytes(tokens.parts[tokens.data[token_id]]).decode() for name, token_id in ids.items()}
    return str(fields["tokenizer.chat_template"].contents()), texts


def main() -> None:
    """Writes chat_templates.json beside this file."""
    named = dict(argument.split("=", 1) for argument in sys.argv[1:])
    known = json.loads(OUT.read_text("utf-8"))["templates"] if OUT.exists() else {}
    kept = {
        name: (entry["source"], {key: entry[key] for key in ("bos_token", "eos_token")})
        for name, entry in known.items()
        if name in ORIGINS and name not in named
    }
    templates = {name: kept[name] if name in kept else template_of(name, named[name]) for name in ORIGINS} | WRITTEN
    with patch("transformers.utils.chat_template_utils.datetime", Mock(now=lambda: NOW)):
        rendered = {
            name: {title: render(source, tokens, chat) for title, chat in CONVERSATIONS.items()}
            for name, (source, tokens) in templates.items()
        }
    golden = {
        "made_with": f"transformers {transformers.__version__}",
        "now": NOW.isoformat(),
        "conversations": CONVERSATIONS,
        "templates": {
            name: {
                "origin": ORIGINS.get(name, "written for this test"),
                "source": source,
                **tokens,
                "rendered": rendered[name],
            }
            for name, (source, tokens) in templates.items()
        },
    }
    text = json.dumps(golden, ensure_ascii=False, indent=1)
    OUT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
