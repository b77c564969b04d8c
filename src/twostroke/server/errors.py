"""Errors as HTTP has them: a status and the OpenAI API's error body. Owns which error becomes which."""

import json
from dataclasses import dataclass, field
from typing import Any

from twostroke.errors import (
    ChatTemplateError,
    ContextLengthError,
    EngineStoppedError,
    InvalidRequestError,
    NotEnoughMemoryError,
    TwostrokeError,
    UnsupportedModelError,
)

ENGINE_STOPPED = "engine_stopped"
_MAX_MESSAGE = 1000  # characters; messages may quote what a client sent


@dataclass(frozen=True)
class ApiError(Exception):
    """An error to be answered. `param` names the field, `code` the kind for programs."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def type(self) -> str:
        return _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")

    def body(self) -> dict[str, Any]:
        """The error as an object."""
        message = self.message if len(self.message) <= _MAX_MESSAGE else f"{self.message[:_MAX_MESSAGE]}…"
        return {"error": {"message": message, "type": self.type, "param": self.param, "code": self.code}}

    def messages_body(self) -> dict[str, Any]:
        """The error as Anthropic's API has it, for /v1/messages."""
        kind = _MESSAGES_TYPES.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": self.body()["error"]["message"]}}

    def data(self, path: str = "") -> bytes:
        """The body in JSON, in the form of that path's API. In ASCII: a message may quote text that is not Unicode."""
        body = self.messages_body() if path.startswith("/v1/messages") else self.body()
        return json.dumps(body).encode("ascii")


_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_MESSAGES_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_CODES: dict[type[TwostrokeError], str | None] = {
    ContextLengthError: "context_length_exceeded",
    NotEnoughMemoryError: "kv_pool_exceeded",
    ChatTemplateError: "chat_template_error",
    UnsupportedModelError: "unsupported",
    InvalidRequestError: None,
}


def api_error(error: BaseException) -> ApiError:
    """The answer to an error: 400 for what the client can mend, else 500 without a word of what is inside."""
    if isinstance(error, ApiError):
        return error
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return ApiError(400, str(error), code)
    if isinstance(error, EngineStoppedError):
        return ApiError(500, f"{error}; the server's log says why", ENGINE_STOPPED)
    if isinstance(error, TwostrokeError):
        return ApiError(500, str(error), "model_error")
    return ApiError(500, "the server failed to answer; its log says why", "internal_error")


def unknown_model(name: str, served: tuple[str, ...]) -> ApiError:
    """404, with the names there are."""
    shown = ", ".join(served)
    return ApiError(404, f"the model {name!r} is not served here; there is {shown}", "model_not_found", "model")


def too_late(seconds: float) -> ApiError:
    """504: the answer is not complete after the time a request may take."""
    return ApiError(504, f"the answer took longer than {seconds:g} s", "request_timeout")
