"""Tool: a function that a request offers. Owns its name, its parameters and whether they are held to."""

from collections.abc import Mapping
from dataclasses import dataclass

# Keywords through which an object may have properties beyond those it lists.
_OPENING = frozenset({"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"})


@dataclass(frozen=True, slots=True)
class Tool:
    """`field` is where the request says so, for messages; `parameters` the JSON schema as it was given."""

    name: str
    parameters: Mapping[str, object]
    field: str
    description: str = ""
    is_strict: bool = False

    @property
    def closed_parameters(self) -> dict[str, object]:
        """The schema that a grammar holds arguments to: an object, and where the schema lists properties without a word
        on others, of these alone. Without a schema there are none."""
        schema = dict(self.parameters) or {"properties": {}}
        if "properties" in schema and _OPENING.isdisjoint(schema):
            schema["additionalProperties"] = False
        return schema if "$ref" in schema else {"type": "object", **schema}

    def template_form(self) -> dict[str, object]:
        """As chat templates expect it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}
