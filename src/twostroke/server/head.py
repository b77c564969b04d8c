"""Head: what all chunks and the response of one request share. Owns id, model, usage, timings; choices are a form's."""

import time
from dataclasses import dataclass, field
from typing import Any

from twostroke.server.prepared import Prepared
from twostroke.server.roof_watch import RoofWatch
from twostroke.server.timings import Usage, timings
from twostroke.server.wire import event, text_of


@dataclass(frozen=True, slots=True)
class Head:
    """`model` is the name that the client used. `created` is in seconds since 1970.

    A stream has the usage in a last chunk where `include_usage`, and so far in each where `counts_on`.
    """

    id: str
    model: str
    prepared: Prepared
    roofs: RoofWatch
    include_usage: bool = False
    counts_on: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def num_choices(self) -> int:
        return len(self.prepared.choices)

    def usage(self) -> dict[str, Any]:
        """Tokens so far."""
        return Usage.of(self.prepared.choices, self.prepared.choices_a_prompt).fields()

    def timings(self) -> dict[str, Any]:
        """The ledger's account, once every choice has ended."""
        return timings(self.prepared.choices, self.prepared.seed, self.roofs.hardware)

    def chunk_prefix(self, kind: str) -> str:
        """A chunk of that kind up to and with the bracket that opens its choices."""
        return f'data: {text_of(self._fields(kind))[:-1]},"choices":['

    def chunk_suffix(self) -> str:
        """A chunk from behind the bracket that closes its choices."""
        if self.counts_on:
            return f',"usage":{text_of(self.usage())}}}\n\n'
        return ',"usage":null}\n\n' if self.include_usage else "}\n\n"

    def progress_event(self, kind: str, processed: int, total: int) -> bytes:
        """A chunk without choices that says how far the prompt is."""
        progress = {"total": total, "processed": processed}
        return event(text_of({**self._fields(kind), "choices": [], "prompt_progress": progress}))

    def last_event(self, kind: str) -> bytes:
        """The chunk without choices that has usage and timings; none where usage was not asked for."""
        if not self.include_usage:
            return b""
        fields = {**self._fields(kind), "choices": [], "usage": self.usage(), "twostroke": self.timings()}
        return event(text_of(fields))

    def body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """The whole response."""
        return {**self._fields(kind), "choices": choices, "usage": self.usage(), "twostroke": self.timings()}

    def _fields(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}
