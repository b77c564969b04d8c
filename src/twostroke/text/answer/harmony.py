"""Answers in gpt-oss's harmony format: messages with a channel and a recipient. Owns the messages' form; source:
https://cookbook.openai.com/articles/openai-harmony.
"""

import re
from collections.abc import Callable
from typing import Literal

from twostroke.text.answer.events import AnswerEvent, CallArguments, CallEnded, CallStarted, Content, Reasoning
from twostroke.text.answer.marks import Piece

MARKS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.\-]+)")
_MAX_HEADER = 512


class HarmonyReader:
    """Reads one answer, whose prompt ends with `<|start|>assistant`: analysis is reasoning, commentary to a function a
    call, all else content."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._header = ""
        self._channel: Literal["header", "between", "reasoning", "content", "call"] = "header"
        self._has_started = False
        self.num_calls = 0

    @property
    def is_reasoning(self) -> bool:
        """Within a message on the analysis channel."""
        return self._channel == "reasoning"

    def push(self, piece: Piece) -> list[AnswerEvent]:
        if isinstance(piece, str):
            return self._push_text(piece)
        if piece.text == "<|start|>":
            self._channel, self._header = "header", ""
        elif piece.text == "<|message|>" and self._channel == "header":
            return self._open()
        elif piece.text in ("<|end|>", "<|call|>", "<|return|>"):
            return self._close()
        elif self._channel in ("header", "between"):
            self._channel = "header"
            self._header += piece.text
        return []

    def finish(self) -> list[AnswerEvent]:
        """A header without a message, from a model that did not keep to the format, is content."""
        if self._channel == "header" and self._header.strip() and "<|" not in self._header and not self._has_started:
            return [Content(self._header)]
        return []

    def _push_text(self, text: str) -> list[AnswerEvent]:
        if self._channel == "reasoning":
            return [Reasoning(text)]
        if self._channel == "content":
            return [Content(text)]
        if self._channel == "call":
            return [CallArguments(self.num_calls - 1, text)]
        self._header += text
        if len(self._header) > _MAX_HEADER and not self._has_started:
            self._channel, text = "content", self._header
            return [Content(text)]
        return []

    def _open(self) -> list[AnswerEvent]:
        channel, recipient = _CHANNEL.search(self._header), _RECIPIENT.search(self._header)
        self._has_started = True
        if recipient is not None:
            self._channel = "call"
            self.num_calls += 1
            return [CallStarted(self.num_calls - 1, self._new_id(), recipient[1])]
        self._channel = "reasoning" if channel is not None and channel[1] == "analysis" else "content"
        return []

    def _close(self) -> list[AnswerEvent]:
        closed, self._channel, self._header = self._channel, "between", ""
        return [CallEnded(self.num_calls - 1)] if closed == "call" else []
