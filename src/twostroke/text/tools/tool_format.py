"""ToolFormat: how one family of models writes a tool call. Owns what the fields mean; the families are
`families.py`'s.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.text.tools.headed_calls import HeadedCalls
from twostroke.text.tools.json_calls import JsonCalls
from twostroke.text.tools.steps import CallReader
from twostroke.text.tools.tagged_calls import TaggedCalls, Tags

Schemas = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Written:
    """How calls are to be written, for a grammar: `opening` {head arguments tail} (`between` {...})* `closing`, where
    `{name}` in `head` is the tool's. `parameter` is set where arguments are tagged: what stands before the key,
    between key and value, and after the value. `holds_many`: several calls can follow one another."""

    head: str
    tail: str = ""
    opening: str = ""
    closing: str = ""
    between: str = ""
    parameter: tuple[str, str, str] | None = None
    holds_many: bool = True


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """One format.

    begins     marks that begin a call, or several
    ends       marks that end it
    inner      marks within
    passed     marks that mean nothing of their own
    written    as the model is trained to write it
    header     form of what stands before the arguments' brace, where the name is there
    tags       form of tagged parameters
    has_json   calls are JSON objects with a name; tried first
    is_bare    JSON at the start of the answer, in a fence or not, is a call without any mark where it names a tool that
               there is: Qwen2.5-Coder writes calls so
    num_id     letters of a call's id, where the template wants a number of them
    """

    name: str
    begins: tuple[str, ...]
    ends: tuple[str, ...]
    written: Written
    inner: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    header: str | None = None
    tags: Tags | None = None
    has_json: bool = False
    is_bare: bool = False
    num_id: int | None = None

    @property
    def is_fenced(self) -> bool:
        """A fence of backticks closes the arguments."""
        return "```" in self.written.tail + self.written.closing

    @property
    def marks(self) -> frozenset[str]:
        return frozenset((*self.begins, *self.ends, *self.inner, *self.passed))

    def readers(self, schemas: Schemas) -> list[CallReader]:
        """New readers for what follows a mark that begins a call, in the order to be tried."""
        readers: list[CallReader] = []
        if self.has_json:
            readers.append(JsonCalls())
        if self.header is not None:
            readers.append(HeadedCalls(self.header))
        if self.tags is not None:
            readers.append(TaggedCalls(self.tags, schemas))
        return readers
