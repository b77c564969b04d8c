"""Scheduler: what the next step runs, and what its results mean. Owns requests' progress; runs and times nothing."""

from dataclasses import dataclass, field

from twostroke.engine.allowance import Allowance
from twostroke.engine.config import EngineConfig
from twostroke.engine.decode import decode_chunks, goes_on
from twostroke.engine.events import HiddenRows, NewToken
from twostroke.engine.pace import Pace
from twostroke.engine.plan import Chunk, StepPlan
from twostroke.engine.prefill import prefill_chunks
from twostroke.engine.queues import Queues
from twostroke.engine.request import FinishReason, Request, State, TokenScore
from twostroke.engine.speculation import Speculation
from twostroke.errors import ModelOutputError
from twostroke.kvcache.cache import KVCache
from twostroke.native.batch import FloatArray, StepResult
from twostroke.program.cost import CostModel
from twostroke.program.phase import Phase

_NOT_FINITE = "the model's logits are not finite: its weights are damaged, or too large for this precision"
_CHANGED = (
    "logits are not finite with this request's logit_bias or penalties: too large, or the model's weights are damaged"
)


@dataclass(slots=True)
class Progress:
    """What a step brought: tokens and hidden rows in the order of its rows, and requests that ended by them."""

    tokens: list[NewToken] = field(default_factory=list)
    hidden: list[HiddenRows] = field(default_factory=list)
    finished: list[Request] = field(default_factory=list)


class Scheduler:
    """First come, first served. A plan that is never committed loses nothing: its rows are planned again."""

    def __init__(self, cache: KVCache, cost: CostModel, config: EngineConfig) -> None:
        self.queues = Queues(cache)
        self.pace = Pace(cost, config.tpot_target)
        self.speculation = Speculation(enabled=config.speculation)
        self._config = config

    def add(self, request: Request) -> None:
        self.queues.waiting.append(request)

    @property
    def shares_steps(self) -> bool:
        """The next step's time is to be divided between answers and prompts: what the last one took then matters."""
        queues = self.queues
        return bool(queues.waiting) or any(request.state is not State.DECODE for request in queues.running)

    def schedule(self) -> StepPlan:
        """Decode rows first, then prefill chunks with what is left of the step's rows and of its time."""
        config, queues = self._config, self.queues
        decode = decode_chunks(queues, config.max_step_tokens, self.speculation)
        is_alone = len(decode) == len(queues.running) and not queues.waiting
        if is_alone or (decode and self.pace.wants_decode_alone):
            return StepPlan(tuple(decode), len(decode))
        rows = config.max_step_tokens - sum(chunk.length for chunk in decode)
        num_lagging = min(len(queues.running) + len(queues.waiting), config.max_running) - len(decode)
        room = self.pace.room(decode, num_lagging)
        allowance = Allowance(rows, config.max_chunk_tokens, room.seconds, self.pace.step_time.added)
        lagging = prefill_chunks(queues, allowance, config.max_running)
        return StepPlan((*decode, *lagging), len(decode), room.target_s if lagging else None)

    def foresee(self, plan: StepPlan) -> StepPlan | None:
        """The step after `plan`, which is under way, all but its tokens: those that `plan` brings, a row each. None
        where more than the tokens is open: who ends, who comes, what a request may say next, which blocks it gets."""
        queues, chunks = self.queues, plan.chunks
        if queues.waiting or len(chunks) != len(queues.running):
            return None
        if not all(goes_on(chunk, self.queues.cache) for chunk in chunks):
            return None
        for chunk in chunks:
            self.speculation.prepare(chunk.request, len(chunks))
        following = (Chunk(c.start + c.length, 1, 1, c.request, phase=Phase.DECODE) for c in chunks)
        return StepPlan(tuple(following), len(chunks))

    def is_next(self, plan: StepPlan, result: StepResult) -> bool:
        """Whether a plan that was foreseen is what follows now that its tokens are there: none ends a request, and for
        none there are drafts."""
        requests = [chunk.request for chunk in plan.chunks]
        return all(
            token_id >= 0
            and (request.params.ignore_eos or token_id not in request.params.stop_ids)
            and not self.speculation.may_draft(request, len(requests), token_id)
            for request, token_id in zip(requests, result.token_ids.tolist(), strict=True)
        )

    def commit(self, plan: StepPlan, result: StepResult, hidden: FloatArray | None = None) -> Progress:
        """Takes a step's outputs into its requests; those that end give back their blocks. `hidden` is the program's
        output of that name, (num_outputs, dim), where the plan wants it. What ended meanwhile takes nothing."""
        progress, outputs, first = Progress(), _Outputs(result), 0
        for chunk in plan.chunks:
            request = chunk.request
            if request.state is State.FINISHED:
                first += chunk.num_outputs
                continue
            request.num_computed = chunk.start + chunk.length - len(chunk.drafts)
            if hidden is not None and chunk.num_outputs and request.params.num_hidden:
                request.next_output = request.num_computed
                progress.hidden.append(HiddenRows(request, hidden[first : first + chunk.num_outputs]))
            elif outputs.are_finite(first, chunk.num_outputs - len(chunk.drafts)):
                for index in range(chunk.num_outputs - len(chunk.drafts)):
                    row = chunk.start + chunk.length - chunk.num_outputs + index
                    self._take_output(request, row, outputs, first + index, progress)
            else:
                self._end(request, FinishReason.ERROR, progress, _not_finite(request))
            if request.error is None:
                self._offer(request)
                self._settle(chunk, progress)
            if chunk.drafts:
                self._take_drafts(chunk, outputs, first, progress)
            first += chunk.num_outputs
        return progress

    def _take_drafts(self, chunk: Chunk, outputs: "_Outputs", first: int, progress: Progress) -> None:
        """Outputs of drafted rows, while each draft is the token that was chosen and the request goes on."""
        request = chunk.request
        request.num_drafted += len(chunk.drafts)
        for index, draft in enumerate(chunk.drafts, first):
            if request.state is State.FINISHED or outputs.token_ids[index] != draft:
                return
            if not outputs.are_finite(index + 1, 1):
                self._end(request, FinishReason.ERROR, progress, _not_finite(request))
                return
            request.num_computed += 1
            request.num_accepted += 1
            self._take_output(request, request.num_computed - 1, outputs, index + 1, progress)
            self._offer(request)
            self._settle(chunk, progress)

    def _offer(self, request: Request) -> None:
        """Names the request's blocks that are full now, for others to use."""
        cache = self.queues.cache
        num_full = request.num_computed // cache.block_tokens
        if num_full > request.table.num_offered:
            request.chain.extend(request.tokens[: request.num_computed], request.num_prompt)
            cache.offer(request.table, request.chain.keys[:num_full])

    def finish(self, request: Request, reason: FinishReason, error: BaseException | None = None) -> None:
        """Ends the request in whatever state it is; its blocks are free on return."""
        self.queues.remove(request)
        request.finish_reason, request.error = reason, error

    def _take_output(self, request: Request, row: int, outputs: "_Outputs", index: int, progress: Progress) -> None:
        request.next_output = row + 1
        num_logprobs = request.params.sampling.num_logprobs
        alternatives = outputs.alternatives(index, num_logprobs) if num_logprobs > 0 else ()
        token_id, logprob = outputs.token_ids[index], outputs.logprobs[index]
        if row + 1 < request.num_tokens:
            request.scores.append(TokenScore(token_id, logprob, alternatives))
        elif request.num_generated < request.max_tokens:
            request.append(token_id)
            is_stop = token_id in request.params.stop_ids and not request.params.ignore_eos
            scored = logprob if num_logprobs >= 0 else None
            progress.tokens.append(NewToken(request, token_id, scored, alternatives, is_stop))

    def _settle(self, chunk: Chunk, progress: Progress) -> None:
        """Finishes the request if it is done, else names the phase of its next rows."""
        request = chunk.request
        latest = progress.tokens[-1] if progress.tokens else None
        if latest is not None and latest.request is request:
            try:
                is_over = latest.is_stop or _is_complete(request, latest.token_id)
            except Exception as error:
                self._end(request, FinishReason.ERROR, progress, error)
                return
            if is_over:
                self._end(request, FinishReason.STOP, progress)
                return
        is_full = request.num_generated == request.max_tokens
        if is_full and (request.max_tokens or request.num_computed == request.num_tokens):
            self._end(request, FinishReason.LENGTH, progress)
        elif request.next_phase is Phase.DECODE:
            request.state = State.DECODE

    def _end(
        self, request: Request, reason: FinishReason, progress: Progress, error: BaseException | None = None
    ) -> None:
        self.finish(request, reason, error)
        progress.finished.append(request)


def _is_complete(request: Request, token_id: int) -> bool:
    """Whether the request's constraint, told of a new token, allows nothing more. Raises what the constraint does."""
    if request.constraint is None:
        return False
    request.constraint.accept(token_id)
    return request.constraint.is_stopped


class _Outputs:
    """A step's outputs as Python numbers, converted once."""

    __slots__ = ("_result", "logprobs", "token_ids")

    def __init__(self, result: StepResult) -> None:
        self.token_ids: list[int] = result.token_ids.tolist()
        self.logprobs: list[float] = result.logprobs.tolist()
        self._result = result

    def are_finite(self, first: int, count: int) -> bool:
        """Whether the logits of `count` outputs from `first` on were; the executor marks others with token -1."""
        return all(token_id >= 0 for token_id in self.token_ids[first : first + count])

    def alternatives(self, index: int, count: int) -> tuple[tuple[int, float], ...]:
        """The `count` most likely (id, log-probability) of an output row."""
        ids = self._result.top_ids[index, :count].tolist()
        return tuple(zip(ids, self._result.top_logprobs[index, :count].tolist(), strict=True))


def _not_finite(request: Request) -> ModelOutputError:
    sampling = request.params.sampling
    return ModelOutputError(_CHANGED if sampling.logit_bias or sampling.has_penalties else _NOT_FINITE)
