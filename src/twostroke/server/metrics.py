"""Metrics: what /metrics says. Owns names and buckets; figures are the engine's, the ledger's, and those of answers."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from twostroke.engine.engine import Engine
from twostroke.program.phase import Phase
from twostroke.server.answer import ClientGone
from twostroke.server.job import Job
from twostroke.server.recent import NUM_STEPS, RecentPhase
from twostroke.server.roof_watch import RoofWatch

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)


class Metrics:
    """The server's metrics in a registry of their own. Belongs to the event loop's thread."""

    def __init__(self, engine: Engine, model: str, roofs: RoofWatch) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(engine, model, roofs))

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"twostroke_{name}", text, buckets=buckets, registry=self._registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"twostroke_{name}", text, labels, registry=self._registry)

        self._ttft = histogram("time_to_first_token_seconds", "From submission to the first token.", _SECONDS)
        self._tpot = histogram("time_per_output_token_seconds", "Mean time between an answer's tokens.", _TOKEN_SECONDS)
        self._e2e = histogram("e2e_request_latency_seconds", "From submission to the answer's end.", _SECONDS)
        self._queue = histogram("request_queue_time_seconds", "From submission to the first step.", _SECONDS)
        self._prompt = counter("prompt_tokens", "Prompt tokens of answered requests, cached ones included.")
        self._cached = counter("cached_prompt_tokens", "Prompt tokens that did not have to be computed.")
        self._generated = counter("generation_tokens", "Tokens generated.")
        self._preemptions = counter("num_preemptions", "Requests whose blocks were taken, to be computed again.")
        self._success = counter("request_success", "Answers that ended, by reason.", ("finished_reason",))
        self._cancelled = counter("request_cancelled", "Answers that did not end by themselves.", ("cause",))
        self._http = counter("http_requests", "HTTP requests, by path and status.", ("path", "status"))
        self._rejected = counter("request_rejected", "Requests refused before they ran, by status.", ("status",))

    def job_ended(self, job: Job, error: BaseException | None) -> None:
        """Accounts for the choices of a job, whole or not."""
        for choice in job.choices:
            self._generated.inc(choice.completion_tokens)
            summary = choice.summary
            if summary is None or choice.reason == "cancelled":
                self._cancelled.labels("disconnect" if isinstance(error, ClientGone) else "error").inc()
            else:
                self._success.labels(choice.reason).inc()
            if summary is None:
                continue
            self._prompt.inc(summary.prompt_tokens)
            self._cached.inc(choice.cached_tokens)
            self._preemptions.inc(summary.num_preemptions)
            self._e2e.observe(summary.total_s)
            for seen, seconds in (
                (self._ttft, summary.ttft_s),
                (self._tpot, summary.tpot_s),
                (self._queue, summary.queue_s),
            ):
                if seconds is not None:
                    seen.observe(seconds)

    def answered(self, path: str, status: int) -> None:
        """An HTTP request is over; status 0 where none was sent."""
        self._http.labels(path, str(status or 499)).inc()
        if status in (401, 413, 429, 503):
            self._rejected.labels(str(status)).inc()

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """What the engine and its ledger say at the time of asking; another thread's numbers, each read at once."""

    def __init__(self, engine: Engine, model: str, roofs: RoofWatch) -> None:
        self._engine = engine
        self._model = model
        self._roofs = roofs

    def collect(self) -> Iterator[Metric]:
        cache = self._engine.cache
        used = cache.num_blocks - cache.num_free
        gauges = {
            "num_requests_running": ("Requests that hold KV blocks.", self._engine.num_running),
            "num_requests_waiting": ("Requests that wait for blocks.", self._engine.num_waiting),
            "kv_cache_usage_ratio": ("Share of the KV pool's blocks in use.", used / cache.num_blocks),
            "kv_cache_used_tokens": ("Tokens that the blocks in use hold.", used * cache.block_tokens),
            "kv_cache_total_tokens": ("Tokens that the KV pool holds.", cache.num_blocks * cache.block_tokens),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"twostroke_{name}", text, value=value)
        info = GaugeMetricFamily("twostroke_model_info", "The model that is served.", labels=("model",))
        info.add_metric((self._model,), 1)
        yield info
        yield from self._totals()
        yield from self._recent()

    def _totals(self) -> Iterator[Metric]:
        kinds = ("weight", "kv", "activation")
        tokens = CounterMetricFamily("twostroke_phase_tokens", "Tokens computed.", labels=("phase",))
        seconds = CounterMetricFamily("twostroke_phase_seconds", "Seconds of steps.", labels=("phase",))
        flops = CounterMetricFamily("twostroke_phase_flops", "Floating-point operations.", labels=("phase",))
        moved = CounterMetricFamily("twostroke_phase_bytes", "Bytes moved.", labels=("phase", "kind"))
        for phase in Phase:
            totals = self._engine.ledger.summary(phase)
            tokens.add_metric((phase,), totals.tokens)
            seconds.add_metric((phase,), totals.seconds)
            flops.add_metric((phase,), totals.flops)
            for kind in kinds:
                moved.add_metric((phase, kind), getattr(totals, f"{kind}_bytes"))
        yield from (tokens, seconds, flops, moved)

    def _recent(self) -> Iterator[Metric]:
        """Rates of the latest steps: what is reached now, rather than since the start."""
        about = f"over the phase's part of the latest {NUM_STEPS} steps"
        byte_s = GaugeMetricFamily("twostroke_achieved_bytes_per_second", f"Bytes moved, {about}.", labels=("phase",))
        flop_s = GaugeMetricFamily("twostroke_achieved_flops_per_second", f"FLOP/s, {about}.", labels=("phase",))
        share = GaugeMetricFamily(
            "twostroke_roof_fraction", f"Share of the roof that limits, {about}.", labels=("phase",)
        )
        steps = list(self._engine.ledger.recent)
        for phase in Phase:
            recent = RecentPhase.of(steps, phase, self._roofs.hardware)
            if recent is None:
                continue
            byte_s.add_metric((phase,), recent.totals.byte_s)
            flop_s.add_metric((phase,), recent.totals.flop_s)
            if recent.reached is not None:
                share.add_metric((phase,), recent.reached.roof_fraction or 0.0)
        yield from (byte_s, flop_s, share)
