"""Events: what a step tells about its requests. Plain data."""

from typing import NamedTuple

from twostroke.engine.ledger import RequestSummary
from twostroke.engine.request import Request
from twostroke.native.batch import FloatArray


class NewToken(NamedTuple):
    """A token the model chose.

    logprob       natural log; None where `num_logprobs` is -1
    alternatives  the `num_logprobs` most likely (id, log-probability), most likely first
    is_stop       it is a stop id that ends the request, and so no part of the answer's text
    """

    request: Request
    token_id: int
    logprob: float | None
    alternatives: tuple[tuple[int, float], ...]
    is_stop: bool


class HiddenRows(NamedTuple):
    """The program's "hidden" output, (num_rows, dim), for the next of the rows that a request asked for."""

    request: Request
    rows: FloatArray


class Finished(NamedTuple):
    """The request has ended; `request.finish_reason`, `.error` and `.scores` say how. Its blocks are free."""

    request: Request
    summary: RequestSummary


Event = NewToken | HiddenRows | Finished
