"""Endpoint: the address and form of requests. Owns paths, bodies, and which optional fields a server takes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twostroke.bench.address import Address
from twostroke.bench.config import LoadTestConfig
from twostroke.errors import ConfigError

Message = Mapping[str, Any]

_PATHS = {"chat": "/chat/completions", "completions": "/completions"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """Optional fields that not every server takes."""

    ignore_eos: bool
    max_tokens: str = "max_tokens"
    wants_usage: bool = True

    def fallbacks(self) -> list["Dialect"]:
        """This, then what to try where a server refuses it, the nearest first."""
        plain = replace(self, ignore_eos=False)
        newer = replace(plain, max_tokens="max_completion_tokens")
        found = [self, plain, newer, replace(plain, wants_usage=False)]
        return [dialect for index, dialect in enumerate(found) if dialect not in found[:index]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go and what is in them. `root` is the server's, `base` the API's path, usually ending in /v1."""

    root: str
    base: str
    kind: str
    model: str | None
    dialect: Dialect
    extra: Mapping[str, Any]

    @classmethod
    def of(cls, config: LoadTestConfig) -> "Endpoint":
        """Raises ConfigError for a URL that is none, and for extra fields that are no JSON object, or are this
        generator's own."""
        path = Address.parse(config.url).path.rstrip("/")
        for ending in _PATHS.values():
            path = path.removesuffix(ending)
        base = path or "/v1"
        ignore_eos = config.dataset is None if config.ignore_eos is None else config.ignore_eos
        root = base.removesuffix("/v1")
        return cls(root, base, config.endpoint, config.model, Dialect(ignore_eos), _extra(config.extra))

    @property
    def path(self) -> str:
        return self.base + _PATHS[self.kind]

    def body(self, messages: Sequence[Message], output_tokens: int | None) -> bytes:
        """A streaming request. Chat takes the messages, completions their texts one after another."""
        fields: dict[str, Any] = {"model": self.model or "default"}
        if self.kind == "chat":
            fields["messages"] = list(messages)
        else:
            fields["prompt"] = "\n".join(_text(message) for message in messages)
        fields["stream"] = True
        if self.dialect.wants_usage:
            fields["stream_options"] = {"include_usage": True}
        if output_tokens is not None:
            fields[self.dialect.max_tokens] = output_tokens
        if self.dialect.ignore_eos:
            fields["ignore_eos"] = True
        return json.dumps({**fields, **self.extra}).encode()


def _text(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else json.dumps(content)


def _extra(text: str | None) -> dict[str, Any]:
    try:
        value = {} if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"extra is not sound JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError("extra must be a JSON object, such as '{\"temperature\": 0}'")
    for name in ("stream", "messages", "prompt", "n"):
        if name in value:
            raise ConfigError(f"extra: {name} is the load generator's own")
    return value
