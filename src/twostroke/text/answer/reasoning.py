"""What a model thinks before it answers, told from the answer. Owns the tags of each family and the state between them;
gpt-oss has channels instead: `harmony.py`.
"""

from dataclasses import dataclass
from typing import Literal

from twostroke.text.answer.marks import Mark, Piece

Channel = Literal["reasoning", "content"]


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The texts around a model's reasoning."""

    opening: str
    closing: str

    def are_open(self, prompt: str) -> bool:
        """Whether the template itself opened the tag, so that the answer begins inside."""
        return prompt.rstrip().endswith(self.opening)


# As the families' published chat templates write them: Qwen3, DeepSeek-R1, SmolLM3, GLM; Magistral; Command A.
_FAMILIES = (
    ReasoningTags("<think>", "</think>"),
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
)


def reasoning_tags(template: str) -> ReasoningTags | None:
    """The tags of the model that a chat template is for: those it writes, or removes from earlier turns. None where it
    knows none: then nothing is split."""
    return next((tags for tags in _FAMILIES if tags.closing in template), None)


class ReasoningSplitter:
    """Sends each piece of one answer to its channel. Reasoning is only what comes first; the tags and the white space
    beside them belong to neither. What is never closed is reasoning to the end."""

    def __init__(self, tags: ReasoningTags | None, *, is_open: bool = False) -> None:
        self._tags = tags
        self._place: Literal["start", "inside", "after", "content"] = "content" if tags is None else "start"
        if is_open and tags is not None:
            self._place = "inside"
        self._blanks = ""
        self._has_thought = False

    @property
    def is_reasoning(self) -> bool:
        """Within the tags."""
        return self._place == "inside"

    def push(self, piece: Piece) -> list[tuple[Channel, Piece]]:
        if self._place == "content" or self._tags is None:
            return [("content", piece)]
        if isinstance(piece, Mark) and piece.text == self._tags.opening and self._place in ("start", "inside"):
            self._place, self._blanks = "inside", ""
            return []
        if isinstance(piece, Mark) and piece.text == self._tags.closing and self._place != "after":
            self._place, self._blanks = "after", ""
            return []
        if self._place == "inside":
            return self._thought(piece.text if isinstance(piece, Mark) else piece)
        return self._before_content(piece)

    def finish(self) -> list[tuple[Channel, Piece]]:
        """White space still held: the answer has nothing else after it."""
        blanks, self._blanks = self._blanks, ""
        return [("content", blanks)] if blanks and self._place == "start" else []

    def _thought(self, text: str) -> list[tuple[Channel, Piece]]:
        text = self._blanks + text
        text = text if self._has_thought else text.lstrip()
        kept = text.rstrip()
        self._blanks = text[len(kept) :]
        self._has_thought = self._has_thought or bool(kept)
        return [("reasoning", kept)] if kept else []

    def _before_content(self, piece: Piece) -> list[tuple[Channel, Piece]]:
        """Before the first text, or after the reasoning and before the content."""
        if isinstance(piece, str) and not piece.strip():
            self._blanks += piece if self._place == "start" else ""
            return []
        held = [self._blanks] if self._blanks else []
        first = piece.lstrip() if isinstance(piece, str) and self._place == "after" else piece
        self._place, self._blanks = "content", ""
        return [("content", held_or_first) for held_or_first in (*held, first)]
