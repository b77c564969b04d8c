"""Prepared: what one HTTP request is to run. Owns its parts; `prepare.py` and `conversation.py` make it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from twostroke.server.job import Choice


@dataclass(frozen=True, slots=True)
class PromptInput:
    """Token ids of one prompt, and its text where there is one."""

    ids: Sequence[int]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What to run: for each prompt its choices, one after the other. `seed` repeats all of it."""

    prompts: tuple[PromptInput, ...]
    choices: tuple[Choice, ...]
    seed: int
    choices_a_prompt: int = field(default=1)

    def prompt_of(self, index: int) -> PromptInput:
        """The prompt of a choice."""
        return self.prompts[index // self.choices_a_prompt]
