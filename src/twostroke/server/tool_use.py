"""ToolUse: the tools of one request, and what it says of calling them. Owns how the fields go together."""

from collections.abc import Sequence
from dataclasses import dataclass

from twostroke.errors import InvalidRequestError
from twostroke.text.tools.tool import Tool
from twostroke.text.tools.tool_format import Schemas


@dataclass(frozen=True, slots=True)
class ToolUse:
    """`choice` is "none", "auto", "required" or the name of a tool; `holds_many` allows several calls in one answer."""

    tools: tuple[Tool, ...] = ()
    choice: str = "auto"
    holds_many: bool = True
    is_named: bool = False

    @classmethod
    def of(
        cls, tools: Sequence[Tool], choice: str | None, *, named: str | None = None, parallel: bool | None
    ) -> "ToolUse":
        """Raises InvalidRequestError for two tools of one name, or a choice that there is no tool for."""
        names = [tool.name for tool in tools]
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise InvalidRequestError(f"tools: there are two named {twice!r}")
        if named is not None and named not in names:
            raise InvalidRequestError(f"tool_choice: {named!r} is not among tools")
        if choice == "required" and not tools:
            raise InvalidRequestError("tool_choice: 'required' needs tools")
        return cls(tuple(tools), named or choice or "auto", parallel is not False, named is not None)

    @property
    def shown(self) -> tuple[Tool, ...]:
        """The tools that the model is told of."""
        return () if self.choice == "none" and not self.is_named else self.tools

    @property
    def callable(self) -> tuple[Tool, ...]:
        """Those that it may call."""
        return tuple(tool for tool in self.shown if not self.is_named or tool.name == self.choice)

    @property
    def schemas(self) -> Schemas:
        return {tool.name: tool.parameters for tool in self.callable}

    @property
    def must_call(self) -> bool:
        return bool(self.tools) and (self.is_named or self.choice == "required")

    @property
    def needs_grammar(self) -> bool:
        """The model's own will is not enough: it must call, or keep to a schema, or to one call."""
        return bool(self.shown) and (
            self.must_call or not self.holds_many or any(tool.is_strict for tool in self.tools)
        )
