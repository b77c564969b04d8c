"""POST /v1/chat/completions. Owns the way of one chat through the server."""

from starlette.requests import Request
from starlette.responses import Response

from twostroke.server.answer import Answer
from twostroke.server.chat_form import ChatForm
from twostroke.server.logprobs import TokenNames
from twostroke.server.prepare import conversation_of
from twostroke.server.protocol.chat import ChatRequest
from twostroke.server.service import Service
from twostroke.server.streaming import check_stream, counts_on, includes_usage


async def answer_chat(service: Service, request: Request) -> Answer | Response:
    """A chat's answer, streamed or whole."""
    body = await service.read(request, ChatRequest)
    check_stream(body)
    prepared = await service.prepare(lambda: conversation_of(body).prepare(service.llm, service.dialect))
    usage, running = includes_usage(body), counts_on(body)
    head = service.head("chatcmpl", body.model, prepared, request, usage=usage, counts_on=running)
    form = ChatForm(head, TokenNames(service.llm.tokenizer), has_logprobs=bool(body.logprobs))
    return service.answer(request, prepared, form, stream=bool(body.stream), progress=bool(body.return_progress))
