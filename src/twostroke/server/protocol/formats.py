"""Fields that say what an answer must look like. Each is enforced token by token."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from twostroke.server.protocol.fields import RequestModel, supported

MAX_CHOICES = 1024


class JsonSchemaSpec(RequestModel):
    """A schema under a name."""

    model_config = ConfigDict(**{**RequestModel.model_config, "validate_by_name": False, "validate_by_alias": True})

    name: str = supported(..., "A name for it.", min_length=1, max_length=64)
    description: str | None = supported(None, "What it is for.")
    schema_: dict[str, Any] = supported(..., "The JSON schema.", alias="schema")
    strict: bool | None = supported(None, "Answers are held to the schema in either case.")


class ResponseFormat(RequestModel):
    """Text, any JSON object, or JSON that a schema describes."""

    type: Literal["text", "json_object", "json_schema"] = supported(..., "Which of the three.")
    json_schema: JsonSchemaSpec | None = supported(None, "The schema; with type json_schema, and needed there.")


ChoiceText = Annotated[str, Field(min_length=1, max_length=4096)]
Choices = Annotated[list[ChoiceText], Field(min_length=1, max_length=MAX_CHOICES)]
