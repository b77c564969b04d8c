"""The `openai` package, unchanged: schemas and tools that it parses into types, and the Responses API.

Skipped where the package is not installed (`pip install -e '.[clients]'`).
"""

from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field
from tests.server.running import RunningServer

openai = pytest.importorskip("openai")

DRAW: dict[str, Any] = {"model": "tiny", "temperature": 1}
MESSAGES: Any = [{"role": "user", "content": "the rain"}]


class Weather(BaseModel):
    """The weather of a city."""

    city: str = Field(max_length=5)
    unit: Literal["C", "F"]


class Report(BaseModel):
    """Several, with a definition of their own."""

    days: list[Weather] = Field(min_length=1, max_length=2)
    total: int | None


FLAT_TOOL: dict[str, Any] = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "strict": True,
    "parameters": {**Weather.model_json_schema(), "additionalProperties": False},
}


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_an_answer_parsed_into_a_type(client: Any) -> None:
    """Case JSN-10."""
    done = client.chat.completions.parse(messages=MESSAGES, response_format=Report, seed=1, max_tokens=600, **DRAW)
    report = done.choices[0].message.parsed
    assert isinstance(report, Report) and 1 <= len(report.days) <= 2


def test_a_call_parsed_into_a_type(client: Any) -> None:
    tool = openai.pydantic_function_tool(Weather)
    options = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "seed": 1, "max_tokens": 400}
    done = client.chat.completions.parse(messages=MESSAGES, **options, **DRAW)
    assert done.choices[0].finish_reason == "tool_calls"
    [call] = done.choices[0].message.tool_calls
    assert isinstance(call.function.parsed_arguments, Weather)
    with client.chat.completions.stream(messages=MESSAGES, **options, **DRAW) as stream:
        ended = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        [streamed] = stream.get_final_completion().choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments == ended[0].arguments
    assert isinstance(streamed.function.parsed_arguments, Weather)


def test_a_call_and_its_result(client: Any) -> None:
    tool = openai.pydantic_function_tool(Weather)
    options: dict[str, Any] = {"tools": [tool], "seed": 1, "max_tokens": 400, **DRAW}
    named = {"type": "function", "function": {"name": "Weather"}}
    message = client.chat.completions.create(messages=MESSAGES, tool_choice=named, **options).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "18 C"}
    done = client.chat.completions.create(messages=[*MESSAGES, message, result], **options)
    assert done.choices[0].message.content or done.choices[0].message.tool_calls


def test_a_response(client: Any) -> None:
    options = {"input": "the rain", "model": "tiny", "temperature": 0, "max_output_tokens": 40}
    whole = client.responses.create(**options)
    assert whole.output_text and whole.usage.output_tokens > 0
    with client.responses.stream(**options) as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(pieces) == whole.output_text


def test_a_response_parsed_into_a_type(client: Any) -> None:
    done = client.responses.parse(input="the rain", text_format=Report, max_output_tokens=600, **DRAW)
    assert isinstance(done.output_parsed, Report)


def test_a_response_with_a_call_and_its_result(client: Any) -> None:
    options: dict[str, Any] = {"tools": [FLAT_TOOL], "max_output_tokens": 400, "parallel_tool_calls": False, **DRAW}
    begun: list[Any] = list(MESSAGES)
    with client.responses.stream(input=begun, tool_choice="required", **options) as stream:
        events = [event.type for event in stream]
        response = stream.get_final_response()
    assert "response.function_call_arguments.done" in events
    [call] = response.output
    Weather.model_validate_json(call.arguments)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "18 C"}
    again = client.responses.create(
        input=[*begun, call.model_dump(exclude_none=True, exclude={"parsed_arguments"}), result], **options
    )
    assert again.output


def test_what_is_refused_is_an_exception_of_the_package(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(model="tiny", input="x", previous_response_id="resp-1")
    with pytest.raises(openai.BadRequestError, match="'not' cannot be enforced"):
        client.chat.completions.create(
            model="tiny",
            messages=MESSAGES,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}},
        )
