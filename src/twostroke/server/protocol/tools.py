"""Tools in a body: functions that the model may call, and which it has to."""

from typing import Annotated, Any, Literal

from pydantic import Field

from twostroke.server.protocol.fields import RequestModel, supported

MAX_TOOLS = 128
FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class FunctionSpec(RequestModel):
    """A function, as the model is told of it."""

    name: FunctionName = supported(..., "Its name: letters, digits, `_`, `-` and `.`, at most 64.")
    description: str | None = supported(None, "What it does, for the model.")
    parameters: dict[str, Any] | None = supported(None, "The JSON schema of its arguments; absent, it has none.")
    strict: bool | None = supported(None, "Hold the arguments to the schema also where a call is the model's choice.")


class ToolSpec(RequestModel):
    """A tool. A function is the only kind."""

    type: Literal["function"] = supported(..., "The only kind there is: function.")
    function: FunctionSpec = supported(..., "The function.")


class FunctionChoice(RequestModel):
    """The name of a function to be called."""

    name: FunctionName = supported(..., "A name among `tools`.")


class ToolChoice(RequestModel):
    """A function that is to be called."""

    type: Literal["function"] = supported(..., "The only kind there is: function.")
    function: FunctionChoice = supported(..., "Which one.")


Tools = Annotated[list[ToolSpec], Field(max_length=MAX_TOOLS)]
Choice = Literal["none", "auto", "required"] | ToolChoice


class CalledFunction(RequestModel):
    """What an earlier answer called."""

    name: str = supported(..., "The function's name.", min_length=1, max_length=256)
    arguments: str = supported(..., "Its arguments, a text of JSON.")


class EarlierCall(RequestModel):
    """A call in an earlier answer."""

    id: str | None = supported(None, "The call's id, which its result names.", max_length=512)
    type: Literal["function"] = supported("function", "The only kind there is: function.")
    function: CalledFunction = supported(..., "What was called.")
    index: int | None = supported(None, "As streams have it; the order counts.", ge=0, lt=2**31)
