"""Routes: which endpoint answers what. Owns the table from which the application and its OpenAPI document are made."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from twostroke.server.chat import answer_chat
from twostroke.server.completions import answer_completion
from twostroke.server.embeddings import answer_embeddings
from twostroke.server.messages import answer_count, answer_message
from twostroke.server.page import answer_activity
from twostroke.server.protocol.chat import ChatRequest
from twostroke.server.protocol.completions import CompletionRequest
from twostroke.server.protocol.embeddings import EmbeddingRequest
from twostroke.server.protocol.fields import RequestModel
from twostroke.server.protocol.messages import CountRequest, MessagesRequest
from twostroke.server.protocol.responses import ResponsesRequest
from twostroke.server.protocol.tokenize import DetokenizeRequest, TokenizeRequest
from twostroke.server.responses import answer_response
from twostroke.server.service import Service
from twostroke.server.status import answer_health, answer_metrics, answer_model, answer_models, answer_ready
from twostroke.server.tokens import answer_detokenize, answer_tokenize

Handler = Callable[[Service, Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path and method. `body` is its request's model, None for a GET; `query` its parameters there: name, and what
    it is."""

    method: str
    path: str
    handler: Handler
    summary: str
    body: type[RequestModel] | None = None
    query: tuple[tuple[str, str], ...] = ()


ENDPOINTS = (
    Endpoint("POST", "/v1/chat/completions", answer_chat, "Answer a chat.", ChatRequest),
    Endpoint("POST", "/v1/completions", answer_completion, "Continue prompts.", CompletionRequest),
    Endpoint("POST", "/v1/responses", answer_response, "Answer text or items.", ResponsesRequest),
    Endpoint("POST", "/v1/messages", answer_message, "Answer a chat, in Anthropic's form.", MessagesRequest),
    Endpoint("POST", "/v1/messages/count_tokens", answer_count, "Count a chat's tokens.", CountRequest),
    Endpoint("POST", "/v1/embeddings", answer_embeddings, "Embed texts.", EmbeddingRequest),
    Endpoint("GET", "/v1/models", answer_models, "The names that the model is served under."),
    Endpoint("GET", "/v1/models/{name:path}", answer_model, "One of them."),
    Endpoint("POST", "/tokenize", answer_tokenize, "Token ids of a text or a chat.", TokenizeRequest),
    Endpoint("POST", "/detokenize", answer_detokenize, "The text of token ids.", DetokenizeRequest),
    Endpoint("GET", "/health", answer_health, "Whether the server runs."),
    Endpoint("GET", "/ready", answer_ready, "Whether it takes requests."),
    Endpoint("GET", "/metrics", answer_metrics, "Figures for Prometheus."),
    Endpoint(
        "GET",
        "/activity",
        answer_activity,
        "What the engine does now, for the live page.",
        query=(("since", "A time of the engine's clock, in seconds: only steps that ended later."),),
    ),
)
