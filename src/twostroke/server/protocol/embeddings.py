"""Bodies of /v1/embeddings."""

from typing import Annotated, Literal

from pydantic import Field

from twostroke.server.protocol.completions import TokenIds
from twostroke.server.protocol.fields import MAX_NAME, RequestModel, no_effect, refused, supported
from twostroke.server.protocol.sampling import Name

MAX_INPUTS = 2048


class EmbeddingRequest(RequestModel):
    """Texts to be embedded."""

    model: Name | None = supported(None, "A name that /v1/models lists; absent, the model that is served.")
    input: (
        str
        | TokenIds
        | Annotated[list[str], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_INPUTS, fail_fast=True)]
    ) = supported(..., "A text, its token ids, or a list of either.")
    encoding_format: Literal["float", "base64"] | None = supported(
        None, "`base64` is the vector's float32 numbers in little-endian order."
    )
    dimensions: int | None = refused("Shorter vectors.")
    user: str | None = no_effect("A label for the caller's own use.", max_length=MAX_NAME)
