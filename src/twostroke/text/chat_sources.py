"""Where a model keeps its chat templates and the texts of its named tokens. Owns the keys and files they are under."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from twostroke.errors import ChatTemplateError, ModelFileError
from twostroke.text.model_files import ModelFiles

_GGUF_KEY = "tokenizer.chat_template"
_GGUF_TOKENS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "sep_token": "seperator_token_id",
}
_NONE = "the model has no chat template; use --raw to give it the prompt as it is"


class ChatSources(NamedTuple):
    """Templates by name (`default`, `tool_use`, ...), and texts by token name (`bos_token`, ...)."""

    templates: Mapping[str, str]
    tokens: Mapping[str, str]

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, object]) -> "ChatSources":
        """From a GGUF file's metadata. Raises ChatTemplateError when there is no template."""
        named = {key.removeprefix(f"{_GGUF_KEY}."): text for key, text in metadata.items() if _is_named(key)}
        found = {"default": metadata.get(_GGUF_KEY), **named}
        tokens = {name: _gguf_token(metadata, key) for name, key in _GGUF_TOKENS.items()}
        return cls(_templates(found), tokens)

    @classmethod
    def from_hf(cls, source: str | Path | Mapping[str, str]) -> "ChatSources":
        """From a Hugging Face directory or its text files by name: template files, else tokenizer_config.json. Raises
        ChatTemplateError when there is no template, ModelFileError naming a file that is malformed."""
        return cls.from_files(ModelFiles(source))

    @classmethod
    def from_files(cls, files: ModelFiles) -> "ChatSources":
        """`from_hf` of files that are open."""
        config = files.json("tokenizer_config.json") or {}
        named = {Path(name).stem: files.text(name) for name in files.names("additional_chat_templates", ".jinja")}
        alone = files.text("chat_template.jinja")
        found: Mapping[str, object] = {"default": alone, **named}
        if alone is None and not named:
            found = _listed(config.get("chat_template", (files.json("chat_template.json") or {}).get("chat_template")))
        tokens = {**(files.json("special_tokens_map.json") or {}), **config}
        texts = {name: _text(token) for name, token in tokens.items() if name.endswith("_token")}
        return cls(_templates(found), texts)


def _is_named(key: str) -> bool:
    return key.startswith(f"{_GGUF_KEY}.")


def _templates(found: Mapping[str, object]) -> dict[str, str]:
    templates = {name: text for name, text in found.items() if isinstance(text, str) and text.strip()}
    if not templates:
        raise ChatTemplateError(_NONE)
    return templates


def _listed(value: object) -> Mapping[str, object]:
    """`chat_template` of tokenizer_config.json: a text, or a list of objects with name and template."""
    if not isinstance(value, list):
        return {"default": value}
    if not all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in value):
        raise ModelFileError("tokenizer_config.json: chat_template must be a text or a list of names and templates")
    return {entry["name"]: entry.get("template") for entry in value}


def _text(token: object) -> str:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""


def _gguf_token(metadata: Mapping[str, object], key: str) -> str:
    """The token a `tokenizer.ggml.*_token_id` key names, empty when it names none."""
    token_id = metadata.get(f"tokenizer.ggml.{key}")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(token_id, int) or not isinstance(tokens, Sequence) or not 0 <= token_id < len(tokens):
        return ""
    return str(tokens[token_id])
