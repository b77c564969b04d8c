"""StopStrings: text as it arrives, up to the first stop string. Owns what must be held back; knows no tokens."""

from collections.abc import Sequence


class StopStrings:
    """Passes text on, except what is, or may yet become, one of `stops`. One object a stream. `included` says that the
    stop string which ended the text is its last part.

    The stop string that is complete first counts, of several the longest; so the result does not depend on how
    the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str] = (), *, included: bool = False) -> None:
        self._stops = tuple(stops)
        self._is_included = included
        self._held = ""
        self.is_stopped = False
        self.found: str | None = None
        """The stop string that ended the text."""

    def push(self, piece: str) -> str:
        """The text that is now certain to be passed on; sets `is_stopped` where a stop string is complete."""
        text = self._held + piece
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        if found:
            self.is_stopped, self._held = True, ""
            end, start = min(found)
            self.found = text[start:end]
            return text[: end if self._is_included else start]
        keep = self._num_held(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """What was held, once no more text comes."""
        held, self._held = self._held, ""
        return held

    def _num_held(self, text: str) -> int:
        """Length of the longest end of `text` that begins a stop string."""
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
