"""Conversations: what is sent. Owns made-up text of a wanted length, and the forms of a dataset's lines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from twostroke.bench.config import SHAPES, LoadTestConfig
from twostroke.bench.lengths import Lengths
from twostroke.errors import ConfigError, InvalidRequestError

Message = Mapping[str, Any]

DEFAULT_SHAPE = "100/300"
_MAX_LINE_BYTES = 64 << 20
_BOUNDS = ("output_tokens", "max_completion_tokens", "max_tokens")  # of an answer; the first that is given
_ASKING = ("user", "tool")  # roles after which an answer is due
_ROLES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant"}


@dataclass(frozen=True, slots=True)
class Turn:
    """What comes before one answer, beside the turns before it; lengths in tokens, None where nothing is asked."""

    messages: tuple[Message, ...]
    prompt_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns that are sent one after another, each with the ones before it."""

    index: int
    turns: tuple[Turn, ...]


class Source(Protocol):
    """Where conversations come from."""

    def conversation(self, index: int) -> Conversation: ...


@dataclass(frozen=True, slots=True)
class Scale:
    """How many words make a prompt of so many tokens: `tokens_per_word` each, and `overhead` a request (BOS, chat
    template), counted by `counter`. All of `words` are one token where the counter is exact."""

    words: tuple[str, ...]
    tokens_per_word: float
    overhead: float
    counter: str

    def num_words(self, tokens: int) -> int:
        return max(1, round((tokens - self.overhead) / self.tokens_per_word))


class MadeUp:
    """Conversations of random words. A text depends on the seed and the conversation's index alone, so that no two
    prompts of a run begin alike, except for the shared prefix."""

    def __init__(self, config: LoadTestConfig, scale: Scale, seed: int) -> None:
        shape = SHAPES[config.shape or DEFAULT_SHAPE]
        self._prompt = Lengths.parse(config.prompt_tokens or str(shape[0]), "prompt_tokens")
        self._output = Lengths.parse(config.output_tokens or str(shape[1]), "output_tokens")
        self._scale, self._seed = scale, seed
        self._num_turns, self._share = config.turns, config.shared_prefix
        self._words = np.array(scale.words)
        longest = scale.num_words(self._prompt.high)
        self._prefix = self._text(np.random.default_rng([seed, 0]), round(longest * self._share)).split()

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "made up",
            "prompt_tokens": self._prompt.text,
            "output_tokens": self._output.text,
            "shared_prefix": self._share,
            "turns": self._num_turns,
        }

    @property
    def mean_prompt_tokens(self) -> float:
        return (self._prompt.low + self._prompt.high) / 2

    def conversation(self, index: int) -> Conversation:
        rng = np.random.default_rng([self._seed, 1, index])
        return Conversation(index, tuple(self._turn(rng, number) for number in range(self._num_turns)))

    def _turn(self, rng: np.random.Generator, number: int) -> Turn:
        prompt_tokens, output_tokens = self._prompt.draw(rng), self._output.draw(rng)
        num_words = self._scale.num_words(prompt_tokens)
        shared = self._prefix[: round(num_words * self._share)] if number == 0 else []
        text = " ".join([*shared, self._text(rng, num_words - len(shared))]).strip()
        return Turn(({"role": "user", "content": text},), prompt_tokens, output_tokens)

    def _text(self, rng: np.random.Generator, num_words: int) -> str:
        return " ".join(self._words[rng.integers(0, len(self._words), num_words)].tolist())


class Dataset:
    """Conversations of a JSONL file, over and over. Each line is an object with `messages` (OpenAI), `conversations`
    (ShareGPT: from, value) or `prompt`, maybe inside `body`; `max_tokens` or `output_tokens` bound its answers.

    An answer in the file is the history of the turns after it; where there is none it is the server's own.
    """

    def __init__(self, path: Path, output_tokens: str | None) -> None:
        self._path = path
        self._output = Lengths.parse(output_tokens or str(SHAPES[DEFAULT_SHAPE][1]), "output_tokens")
        self._lines = list(self._read())
        if not self._lines:
            raise InvalidRequestError(f"{path}: no conversation in it")

    def describe(self) -> dict[str, Any]:
        return {"kind": "dataset", "conversations": len(self._lines), "output_tokens": self._output.text}

    def conversation(self, index: int) -> Conversation:
        groups, asked = self._lines[index % len(self._lines)]
        rng = np.random.default_rng(index)
        turns = [Turn(group, None, asked or self._output.draw(rng)) for group in groups]
        return Conversation(index, tuple(turns))

    def _read(self) -> Iterator[tuple[list[tuple[Message, ...]], int | None]]:
        try:
            with self._path.open("rb") as file:
                for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), 1):
                    if line.strip():
                        yield self._parse(line, number)
        except OSError as error:
            raise InvalidRequestError(f"{self._path}: {error.strerror}") from None

    def _parse(self, line: bytes, number: int) -> tuple[list[tuple[Message, ...]], int | None]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise InvalidRequestError(f"{self._path}: line {number:,} is not sound JSON") from None
        value = value.get("body", value) if isinstance(value, dict) else value
        groups = _groups(_messages(value)) if isinstance(value, dict) else []
        if not groups:
            needed = "prompt, and no messages or conversations with a user's"
            raise InvalidRequestError(f"{self._path}: line {number:,} has no {needed}")
        for name in _BOUNDS:
            if (asked := value.get(name)) is not None:
                if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
                    raise InvalidRequestError(f"{self._path}: line {number:,}: {name} is no whole number above 0")
                return groups, asked
        return groups, None


def open_source(config: LoadTestConfig, scale: Scale, seed: int) -> MadeUp | Dataset:
    """What the configuration asks for. Raises ConfigError and InvalidRequestError."""
    if config.dataset is None:
        return MadeUp(config, scale, seed)
    if config.shared_prefix:
        raise ConfigError("shared_prefix is for prompts that are made up")
    return Dataset(Path(config.dataset), config.output_tokens)


def _messages(value: Mapping[str, Any]) -> list[Message]:
    """Messages of a line in any of its forms; empty where it has none."""
    prompt = value.get("prompt")
    if isinstance(prompt, str) and prompt:
        return [{"role": "user", "content": prompt}]
    listed = value.get("messages") or value.get("conversations") or []
    found: list[Message] = []
    for item in listed if isinstance(listed, list) else []:
        if not isinstance(item, dict):
            return []
        role = item.get("role", item.get("from"))
        content = item.get("content", item.get("value"))
        if not isinstance(role, str) or (content is None and not item.get("tool_calls")):
            return []
        calls = {name: item[name] for name in ("tool_calls", "tool_call_id") if item.get(name)}
        found.append({"role": _ROLES.get(role, role), "content": content, **calls})
    return found


def _groups(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Messages cut after each stretch of users' and tools' ones, where an answer is due; what follows the last is left
    out."""
    groups: list[tuple[Message, ...]] = []
    group: list[Message] = []
    for index, message in enumerate(messages):
        group.append(message)
        is_last = index + 1 == len(messages) or messages[index + 1]["role"] not in _ASKING
        if message["role"] in _ASKING and is_last:
            groups.append(tuple(group))
            group = []
    return groups
