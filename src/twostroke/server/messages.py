"""POST /v1/messages and /v1/messages/count_tokens. Owns the way of such a request through the server."""

from starlette.requests import Request
from starlette.responses import Response

from twostroke.server.answer import Answer
from twostroke.server.message_input import message_conversation
from twostroke.server.messages_form import MessagesForm
from twostroke.server.prepared import Prepared
from twostroke.server.protocol.messages import CountRequest, MessagesRequest
from twostroke.server.service import Service
from twostroke.server.wire import json_bytes


async def answer_message(service: Service, request: Request) -> Answer | Response:
    """An answer in blocks, streamed or whole."""
    body = await service.read(request, MessagesRequest)

    def prepare() -> Prepared:
        return message_conversation(body, service.dialect).prepare(service.llm, service.dialect)

    prepared = await service.prepare(prepare)
    form = MessagesForm(service.head("msg", body.model, prepared, request, usage=True))
    return service.answer(request, prepared, form, stream=bool(body.stream), progress=False)


async def answer_count(service: Service, request: Request) -> Response:
    """How many tokens a chat's prompt has."""
    body = await service.read(request, CountRequest)

    def count() -> int:
        conversation = message_conversation(body, service.dialect)
        return len(service.dialect.render(conversation.messages, conversation.use, conversation.options).ids)

    counted = await service.prepare(count)
    return Response(json_bytes({"input_tokens": counted}), media_type="application/json")
