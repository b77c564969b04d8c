"""Lines of a batch's input file, as OpenAI's batch API has them."""

from typing import Any, Literal

from twostroke.server.protocol.fields import MAX_NAME, RequestModel, supported


class BatchRequest(RequestModel):
    """One request of a batch."""

    custom_id: str = supported(
        ..., "What its answer is found by; no two of a file's are the same.", min_length=1, max_length=MAX_NAME
    )
    method: Literal["POST"] = supported(..., "The only method there is: POST.")
    url: Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings"] = supported(..., "Who answers it.")
    body: dict[str, Any] = supported(..., "The request, as that endpoint takes it; it is never streamed.")
