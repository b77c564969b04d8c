"""Engine: several requests at once, one step at a time. Owns the step's sequence; used by one thread at a time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from twostroke.engine.config import EngineConfig
from twostroke.engine.constraint import fill, new_mask
from twostroke.engine.events import Event, Finished
from twostroke.engine.executor import Executor
from twostroke.engine.ledger import Ledger
from twostroke.engine.plan import StepPlan
from twostroke.engine.request import FinishReason, Request, State
from twostroke.engine.scheduler import Scheduler
from twostroke.engine.under_way import TakenIn, UnderWay
from twostroke.engine.validation import check_request, resolve_max_tokens
from twostroke.errors import UnsupportedModelError
from twostroke.kvcache.cache import KVCache
from twostroke.kvcache.chain import BlockChain
from twostroke.native.batch import FloatArray, StepResult
from twostroke.program.program import Program

if TYPE_CHECKING:
    from twostroke.engine.spill import Spill


class Engine:
    """Submit requests, then call `step` until each has a Finished event.

    Raises UnsupportedModelError for a program with recurrent states: they have no blocks to share, keep or give up, and
    a chunk may end anywhere.
    """

    def __init__(self, executor: Executor, config: EngineConfig) -> None:
        _check_program(executor.cost.program)
        self.config = replace(config, max_step_tokens=min(config.max_step_tokens, executor.max_step_tokens))
        self._spill = _spill_of(executor, config)
        self.cache = KVCache(
            executor.block_tokens, executor.num_blocks, prefix_cache=config.prefix_cache, store=self._spill
        )
        self.ledger = Ledger(executor.cost)
        self._executor = executor
        self._scheduler = Scheduler(self.cache, executor.cost, self.config)
        self._events: list[Event] = []
        self._under_way: UnderWay | None = None
        self._taken_in: TakenIn | None = None
        self._uncounted_s = 0.0  # what entering a step took while no other was under way: the next one's

    @property
    def has_work(self) -> bool:
        """Some request is not finished, or an event has not been taken."""
        queues = self._scheduler.queues
        return bool(queues.running or queues.waiting or self._events or self._taken_in)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.queues.waiting)

    @property
    def num_running(self) -> int:
        return len(self._scheduler.queues.running)

    @property
    def running(self) -> list[Request]:
        """Requests that hold blocks, in the order of admission: a copy, which any thread may take."""
        return list(self._scheduler.queues.running)

    def prepare(self, request: Request) -> None:
        """Checks a request and sets up its arrays. Touches nothing of the engine's: any thread may call it.

        Raises InvalidRequestError naming the field, ContextLengthError, or NotEnoughMemoryError where the whole KV
        pool could not hold the request, each with its numbers.
        """
        check_request(request, self.config.vocab_size)
        pool_tokens = self.cache.num_blocks * self.cache.block_tokens
        max_tokens = resolve_max_tokens(request, self.config.context_length, pool_tokens)
        if request.constraint is not None:
            request.mask = new_mask(self.config.vocab_size)
        known = len(request.prompt_ids) + len(request.forced_ids)
        scope = (self.config.model_id, request.cache_salt)
        chain = BlockChain(self.cache.block_tokens, scope, all_prompt=self.config.reuse_generated)
        request.accept(max_tokens, self.cache.new_table(known + max_tokens), chain, perf_counter())

    def submit(self, request: Request) -> None:
        """Queues a request, preparing it first if that was not done. Raises what `prepare` raises."""
        if not request.is_prepared:
            self.prepare(request)
        self.ledger.open(request)
        self._scheduler.add(request)

    def cancel(self, request: Request) -> None:
        """Ends the request, waiting or running; its blocks are free on return. A finished one stays as it is."""
        if request.state is not State.FINISHED:
            self._end(request, FinishReason.CANCELLED)

    def step(self) -> list[Event]:
        """One whole step: `begin`, `finish`. Returns what happened since the last call."""
        self.begin()
        self.finish()
        return self.take_events()

    def begin(self) -> None:
        """Plans the next step and starts it, unless one is under way: the executor's threads are then at work while the
        caller's is free. Until `finish`, requests may be submitted, which the step does not have, and cancelled.

        Where the executor raises, here or in `finish`, the step's requests end with finish reason "error"; the others
        go on. An interrupt is no failure: what has not happened is planned again, what runs is waited for again.
        """
        if self._under_way is not None:
            return
        if self._scheduler.shares_steps:
            self._enter()
        started = perf_counter()
        plan = self._scheduler.schedule()
        if not plan.chunks and self.num_waiting:
            raise RuntimeError("nothing was scheduled although requests wait")
        plan = self._constrain(plan)
        if not plan.chunks:
            return
        batch, output = plan.batch(self.cache.block_tokens), "hidden" if plan.wants_hidden else None
        try:
            handle = self._executor.submit(batch, output)
        except Exception as error:
            self._fail(plan, error)
            return
        self._under_way = UnderWay(plan, handle, started, perf_counter(), self._uncounted_s)
        self._uncounted_s = 0.0

    def finish(self, goes_on: Callable[[], bool] | None = None) -> None:
        """Waits for the step under way, where there is one, and takes in what it brought.

        Where `goes_on`, asked when the step is done, says so, and nothing of the next one was open but its tokens, that
        one was laid out beside it, and is started with them at once.
        """
        step = self._under_way
        if step is None:
            return
        self._enter()
        called = perf_counter()
        try:
            following = None if goes_on is None else self._foresee(step.plan)
            result, hidden = self._collect(step)
            collected, self._under_way = perf_counter(), None
            if following is not None and goes_on is not None and goes_on():
                self._run_on(*following, result, collected)
            progress = self._scheduler.commit(step.plan, result, hidden)
        except BaseException as error:  # some of it may have been taken in, unless it is still under way
            is_under_way = self._under_way is step
            if isinstance(error, Exception) or not is_under_way:
                self._under_way = None if is_under_way else self._under_way
                self._fail(step.plan, error)
            if not isinstance(error, Exception):
                raise
            return
        ended = perf_counter() if self._under_way is None else collected
        self._taken_in = TakenIn(step, progress, result.seconds, step.seconds(result.seconds, called, collected, ended))

    def take_events(self) -> list[Event]:
        """Events not returned yet, those of cancellations among them."""
        self._enter()
        events, self._events = self._events, []
        if self._under_way is not None:
            self._under_way.left = perf_counter()
        return events

    def close(self) -> None:
        """Keeps on disk, where there is a directory for it, what the prefix cache holds. No step may follow."""
        self.finish()
        if self._spill is not None and self.cache.prefix is not None:
            for block in self.cache.prefix.idle:
                self._spill.save(block.key, block.block_ids, wait=True)
            self._spill.close()
            self._spill = None

    def _constrain(self, plan: StepPlan) -> StepPlan:
        """Masks for the rows that sample under a constraint; requests whose constraint fails or is complete end."""
        ended: set[Request] = set()
        for chunk in plan.chunks:
            request = chunk.request
            if request.constraint is None or request.mask is None or not chunk.samples:
                continue
            try:
                if not request.constraint.is_stopped:
                    fill(request.constraint, request.mask, self.config.vocab_size)
                    continue
                self._end(request, FinishReason.STOP)
            except Exception as error:
                self._end(request, FinishReason.ERROR, error)
            ended.add(request)
        return plan.without(ended) if ended else plan

    def _collect(self, step: UnderWay) -> tuple[StepResult, FloatArray | None]:
        """The step's outputs, and the hidden rows of all of them where the plan wants some."""
        if step.plan.wants_hidden:
            return self._executor.collect_value(step.handle)
        return self._executor.collect(step.handle), None

    def _foresee(self, plan: StepPlan) -> tuple[StepPlan, Any] | None:
        """The step after the one under way, laid out but for its tokens, where that can be."""
        following = self._scheduler.foresee(plan)
        if following is None:
            return None
        return following, self._executor.lay_out(following.batch_of_unknown(self.cache.block_tokens))

    def _run_on(self, plan: StepPlan, handle: Any, result: StepResult, started: float) -> None:
        """Starts the step that was foreseen with the tokens that came, if it is what follows them."""
        if self._scheduler.is_next(plan, result):
            self._executor.start(handle, result.token_ids)
            self._under_way = UnderWay(plan, handle, started, perf_counter())

    def _enter(self) -> None:
        """Enters the step that was taken in: in the ledger, with those who learn from it, and as events.

        That can wait until the next step is under way, and then costs no time.
        """
        taken, self._taken_in = self._taken_in, None
        if taken is None:
            return
        now, plan, progress = perf_counter(), taken.step.plan, taken.progress
        self.ledger.record(plan, taken.native_s, taken.step.started, taken.seconds)
        is_mixed = plan.num_decode < len(plan.chunks)
        self._scheduler.pace.observe(self.ledger.recent[-1], is_mixed=is_mixed)
        self._scheduler.speculation.observe(plan, taken.seconds)
        for token in progress.tokens:
            self.ledger.record_token(token.request, now)
        self._events += progress.tokens
        self._events += progress.hidden
        self._events += [Finished(request, self.ledger.close(request, now)) for request in progress.finished]
        if self._under_way is None:
            self._uncounted_s += perf_counter() - now

    def _fail(self, plan: StepPlan, error: BaseException) -> None:
        for chunk in plan.chunks:
            if self.ledger.is_open(chunk.request):
                self._end(chunk.request, FinishReason.ERROR, error)

    def _end(self, request: Request, reason: FinishReason, error: BaseException | None = None) -> None:
        self._enter()
        if request.state is not State.FINISHED:
            self._scheduler.finish(request, reason, error)
        self._events.append(Finished(request, self.ledger.close(request, perf_counter())))


def _check_program(program: Program) -> None:
    if program.chunk_alignment > 1 or any(group.kind == "state" for group in program.cache_groups):
        raise UnsupportedModelError(
            "the engine schedules no programs with recurrent states:"
            f" chunks would have to be multiples of {program.chunk_alignment} tokens, and states be kept with blocks"
        )


def _spill_of(executor: Executor, config: EngineConfig) -> "Spill | None":
    if config.kv_disk is None or not config.prefix_cache or not executor.num_blocks:
        return None
    from twostroke.engine.spill import Spill  # which few engines have
    from twostroke.kvcache.disk import DiskTier

    return Spill(executor, DiskTier(Path(config.kv_disk), config.kv_disk_bytes, executor.block_bytes))
