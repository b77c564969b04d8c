"""POST /v1/responses. Owns the way of one such answer through the server."""

from starlette.requests import Request
from starlette.responses import Response

from twostroke.server.answer import Answer
from twostroke.server.errors import ApiError
from twostroke.server.protocol.responses import ResponsesRequest
from twostroke.server.response_input import response_conversation
from twostroke.server.responses_form import ResponsesForm
from twostroke.server.service import Service


async def answer_response(service: Service, request: Request) -> Answer | Response:
    """An answer as items, streamed or whole."""
    body = await service.read(request, ResponsesRequest)
    if body.stream_options is not None and not body.stream:
        raise ApiError(400, "stream_options needs stream: true", "invalid_parameter", "stream_options")
    prepared = await service.prepare(lambda: response_conversation(body).prepare(service.llm, service.dialect))
    head = service.head("resp", body.model, prepared, request, usage=True)
    return service.answer(request, prepared, ResponsesForm(head, body), stream=bool(body.stream), progress=False)
