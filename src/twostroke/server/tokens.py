"""POST /tokenize and /detokenize. Owns their responses; ids are the tokenizer's."""

from starlette.requests import Request
from starlette.responses import Response

from twostroke.errors import InvalidRequestError
from twostroke.server.prepare import messages_of, render_options
from twostroke.server.protocol.tokenize import DetokenizeRequest, TokenizeRequest
from twostroke.server.service import Service
from twostroke.server.wire import json_bytes


async def answer_tokenize(service: Service, request: Request) -> Response:
    """The ids of a text or a chat, and how many there may be."""
    body = await service.read(request, TokenizeRequest)
    ids = await service.prepare(lambda: _ids(service, body))
    fields = {"tokens": ids, "count": len(ids), "max_model_len": service.llm.context}
    return Response(json_bytes(fields), media_type="application/json")


async def answer_detokenize(service: Service, request: Request) -> Response:
    """The text of ids."""
    body = await service.read(request, DetokenizeRequest)
    skip = bool(body.skip_special_tokens)
    text = await service.prepare(lambda: service.llm.tokenizer.decode(body.tokens, skip_special=skip))
    return Response(json_bytes({"prompt": text}), media_type="application/json")


def _ids(service: Service, body: TokenizeRequest) -> list[int]:
    llm = service.llm
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError("one of prompt and messages is needed")
    if body.messages is not None:
        return llm.render(messages_of(body.messages), **render_options(body)).ids
    add_special = body.add_special_tokens is not False
    return llm.tokenizer.encode(body.prompt or "", add_special=add_special, parse_special=bool(body.parse_special))
