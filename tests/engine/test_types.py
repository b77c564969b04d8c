"""Wrong types are refused before a request is queued: inside a step they would take its other requests with them."""

from typing import Any

import pytest

from twostroke.engine.request import GenerationParams, Request
from twostroke.engine.validation import check_request
from twostroke.errors import InvalidRequestError
from twostroke.native.batch import Sampling


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "x"),
        ("temperature", True),
        ("top_p", None),
        ("top_k", 1.5),
        ("seed", 1.5),
        ("seed", "7"),
        ("logit_bias", ((3, "x"),)),
        ("logit_bias", ((1.5, 1.0),)),
        ("frequency_penalty", "0"),
    ],
)
def test_sampling(field: str, value: Any) -> None:
    params = GenerationParams(sampling=Sampling(**{field: value}))
    with pytest.raises(InvalidRequestError, match=f"{field}.* must be a .*number"):
        check_request(Request("r", [1, 2], params), 16)


def test_max_tokens_and_ids() -> None:
    with pytest.raises(InvalidRequestError, match="max_tokens must be a whole number"):
        check_request(Request("r", [1], GenerationParams(max_tokens=1.5)), 16)  # type: ignore[arg-type]
    assert check_request(Request("r", [1, 2], GenerationParams(max_tokens=1)), 16) is None
