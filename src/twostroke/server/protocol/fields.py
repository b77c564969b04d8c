"""What all request models share: strictness, bounds, and the mark of fields that are known but refused.

Owns what "supported", "no effect" and "refused" mean. Where a field's default is null, null is as good as absent.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MAX_CHOICES = 64
MAX_PROMPTS = 256
MAX_ANSWERS = 1024
MAX_TOKEN_IDS = 2**22
MAX_STOPS = 32
MAX_STOP_CHARS = 1024
MAX_LOGPROBS = 20
MAX_MESSAGES = 4096
MAX_BIASES = 4096
MAX_NAME = 512

_KEY = "x-support"


class RequestModel(BaseModel):
    """A body, or an object in one. Types are exact, numbers finite, and fields that are not here refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True, protected_namespaces=())


def supported(default: Any, text: str, **bounds: Any) -> Any:
    """A field that does what `text` says. `...` as the default makes it required."""
    return Field(default, description=text, **bounds)


def no_effect(text: str, default: Any = None, **bounds: Any) -> Any:
    """A field that is accepted and changes nothing; `text` says why that is right."""
    return Field(default, description=text, json_schema_extra={_KEY: "no effect"}, **bounds)


def refused(text: str, *harmless: Any) -> Any:
    """A field that is known and not supported: anything but null and the `harmless` values is an error that names it.
    `text` says what it would do."""
    extra: dict[str, Any] = {_KEY: "refused", "x-accepted": list(harmless)}
    return Field(None, description=text, json_schema_extra=extra)


def support_of(model: type[BaseModel], name: str) -> str:
    """ "supported", "no effect" or "refused"."""
    extra = model.model_fields[name].json_schema_extra
    return str(extra.get(_KEY, "supported")) if isinstance(extra, dict) else "supported"


def refused_fields(value: object, path: str = "") -> Iterator[str]:
    """Paths of refused fields that a validated body uses."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            inner = getattr(value, name)
            where = f"{path}.{name}" if path else name
            extra = field.json_schema_extra
            if not isinstance(extra, dict) or extra.get(_KEY) != "refused":
                yield from refused_fields(inner, where)
            elif inner is not None and inner != [] and not _is_among(inner, extra["x-accepted"]):
                yield where
    elif isinstance(value, list) and value and not isinstance(value[0], int | str):
        for index, inner in enumerate(value):
            yield from refused_fields(inner, f"{path}[{index}]")


def _is_among(value: object, accepted: object) -> bool:
    """Equality that tells false from 0."""
    return isinstance(accepted, list) and any(type(value) is type(other) and value == other for other in accepted)
