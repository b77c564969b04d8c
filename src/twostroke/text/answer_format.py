"""AnswerFormat: how one model sets reasoning and tool calls apart. Owns what its chat template tells of that."""

from dataclasses import dataclass

from twostroke.text.answer import harmony
from twostroke.text.answer.reasoning import ReasoningTags, reasoning_tags
from twostroke.text.tools.families import HARMONY, knows_tools, tool_format
from twostroke.text.tools.tool_format import ToolFormat


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """A model's format. `shows_tools`: its template tells the model which tools there are; else the prompt has to."""

    tools: ToolFormat
    reasoning: ReasoningTags | None
    shows_tools: bool

    @classmethod
    def of(cls, template: str) -> "AnswerFormat":
        """What the text of a chat template tells."""
        tools = tool_format(template)
        return cls(tools, None if tools is HARMONY else reasoning_tags(template), knows_tools(template))

    @property
    def is_harmony(self) -> bool:
        return self.tools is HARMONY

    @property
    def reasons(self) -> bool:
        """Whether the model may think before it answers."""
        return self.is_harmony or self.reasoning is not None

    @property
    def marks(self) -> frozenset[str]:
        """Every text that is a mark."""
        if self.is_harmony:
            return frozenset(harmony.MARKS)
        tags = () if self.reasoning is None else (self.reasoning.opening, self.reasoning.closing)
        return self.tools.marks.union(tags)
