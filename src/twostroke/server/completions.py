"""POST /v1/completions. Owns the way of prompts, continued as they are, through the server."""

from starlette.requests import Request
from starlette.responses import Response

from twostroke.server.answer import Answer
from twostroke.server.completion_form import CompletionForm
from twostroke.server.prepare import prepare_completion
from twostroke.server.protocol.completions import CompletionRequest
from twostroke.server.service import Service
from twostroke.server.streaming import check_stream, counts_on, includes_usage


async def answer_completion(service: Service, request: Request) -> Answer | Response:
    """Prompts' continuations, streamed or whole."""
    body = await service.read(request, CompletionRequest)
    check_stream(body)
    prepared = await service.prepare(lambda: prepare_completion(service.llm, service.dialect, body))
    usage, running = includes_usage(body), counts_on(body)
    head = service.head("cmpl", body.model, prepared, request, usage=usage, counts_on=running)
    form = CompletionForm(head, service.llm.tokenizer, num_logprobs=body.logprobs, echo=bool(body.echo))
    return service.answer(request, prepared, form, stream=bool(body.stream), progress=bool(body.return_progress))
