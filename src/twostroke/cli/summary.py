"""The account of a run: lines for a reader, and the object of `run --json`. Owns the words and keys; every figure is
the ledger's, the roofline's or the system's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from twostroke.cli.figures import bytes_text
from twostroke.engine.account import PhaseTotals
from twostroke.llm.llm import LLM
from twostroke.llm.locking import locked_bytes
from twostroke.llm.results import Completion
from twostroke.program.phase import Phase
from twostroke.roofline.bound import Attainment, attain
from twostroke.roofline.hardware import HardwareSpec
from twostroke.roofline.memory import peak_rss_bytes, resident_bytes


@dataclass(frozen=True, slots=True)
class RunAccount:
    """What ran, in both phases, and what it held in memory. `hardware` is None where the roofs are not known."""

    prefill: PhaseTotals
    decode: PhaseTotals
    weight_bytes: int
    kv_bytes_per_token: int
    kv_pool_bytes: int
    kv_used_bytes: int
    peak_rss_bytes: int
    hardware: HardwareSpec | None = None

    def attainment(self, totals: PhaseTotals) -> Attainment | None:
        """How close a phase came to the roofs at what one of its steps reads."""
        if self.hardware is None:
            return None
        working_set = step_bytes(totals) or self.weight_bytes
        return attain(totals.flops, totals.bytes, totals.seconds, working_set_bytes=working_set, hardware=self.hardware)


def step_bytes(totals: PhaseTotals) -> int:
    """Bytes of weights and KV that a step of the phase reads, on average; 0 where none ran."""
    return round((totals.weight_bytes + totals.kv_bytes) / totals.steps) if totals.steps else 0


def account_of(llm: LLM, completion: Completion) -> RunAccount:
    """The account of one answer."""
    used = max(0, completion.prompt_tokens + completion.completion_tokens - 1)
    return _account(llm, completion.summary.prefill, completion.summary.decode, used)


def account_of_all(llm: LLM, kv_tokens: int) -> RunAccount:
    """The account of everything since the model was loaded; `kv_tokens` is the most it held at a time."""
    return _account(llm, llm.totals(Phase.PREFILL), llm.totals(Phase.DECODE), kv_tokens)


def _account(llm: LLM, prefill: PhaseTotals, decode: PhaseTotals, kv_tokens: int) -> RunAccount:
    memory = llm.memory
    return RunAccount(
        prefill=prefill,
        decode=decode,
        weight_bytes=llm.weight_bytes,
        kv_bytes_per_token=memory.kv_bytes_per_token,
        kv_pool_bytes=memory.kv_pool_bytes,
        kv_used_bytes=kv_tokens * memory.kv_bytes_per_token,
        peak_rss_bytes=peak_rss_bytes(),
    )


# --- for a reader -----------------------------------------------------------------------------------------------------


def summary_lines(account: RunAccount) -> Iterator[str]:
    """A line for each phase that ran, and one for memory."""
    if account.prefill.tokens:
        yield _phase_line("prefill", account.prefill, account.attainment(account.prefill), "compute")
    if account.decode.tokens:
        yield _phase_line("decode", account.decode, account.attainment(account.decode), "memory")
    pool = f"{bytes_text(account.kv_used_bytes)} of {bytes_text(account.kv_pool_bytes)}"
    yield (
        f"memory     weights {bytes_text(account.weight_bytes)}   KV {pool}"
        f" ({bytes_text(account.kv_bytes_per_token)}/token)   peak RSS {bytes_text(account.peak_rss_bytes)}"
    )


def answer_line(completion: Completion) -> str:
    """How the answer came to be: tokens, why it ended, its seed, the wait for the first token."""
    first = completion.summary.ttft_s
    wait = "" if first is None else f"   first token after {_time(first)}"
    facts = f"{completion.completion_tokens:,} tokens   {completion.finish_reason}   seed {completion.seed}"
    return f"answer     {facts}{wait}"


def resident_line() -> str:
    """What of this process is in memory now: its own, which holds the model, and file pages, which can be dropped."""
    resident = resident_bytes()
    if resident is None:
        return "resident   not known"
    private, of_files = (bytes_text(size) for size in resident)
    return f"resident   private {private}   of files {of_files}{'   locked' if locked_bytes() else ''}"


def paging_line(completion: Completion) -> str | None:
    """A warning where decode waited for the disk again and again."""
    found = completion.paging
    if not found.is_paging:
        return None
    return (
        f"paging     {found.paged_steps:,} of {found.steps:,} decode steps read {found.page_reads:,} pages from disk:"
        " the model does not stay in memory; a smaller --context or --weights q4_0 makes room, --mlock keeps it there"
    )


def short_line(account: RunAccount, cached_tokens: int = 0) -> str:
    """Both phases in a few words, for under an answer of a chat; `cached_tokens` of the prompt were known already."""
    parts = []
    for name, totals in (("prefill", account.prefill), ("decode", account.decode)):
        if totals.tokens:
            reached = account.attainment(totals)
            percent = "" if reached is None or reached.roof_fraction is None else f" ({reached.roof_fraction:.0%})"
            known = f" after {cached_tokens:,} cached" if cached_tokens and name == "prefill" else ""
            parts.append(f"{name} {totals.tokens:,} tokens{known} at {totals.tok_s:,.0f} tok/s{percent}")
    return " · ".join(parts)


def _phase_line(name: str, totals: PhaseTotals, reached: Attainment | None, usual: str) -> str:
    time = _time(totals.seconds) if name == "prefill" else f"{_time(totals.seconds / totals.tokens)}/token"
    figures = f"{name:8} {totals.tokens:6,} tokens   {time:>13}   {totals.tok_s:7,.0f} tok/s"
    if reached is None or reached.bound is None or reached.roof_fraction is None:
        achieved = _rate(totals.flop_s, None, "FLOP/s") if usual == "compute" else _rate(totals.byte_s, None, "B/s")
        return f"{figures}   {achieved}"
    if reached.bound == "compute":
        rate = _rate(reached.achieved_flop_s, reached.roof_flop_s, "FLOP/s")
    else:
        rate = _rate(reached.achieved_byte_s, reached.roof_byte_s, "B/s")
    return f"{figures}   {reached.bound + '-bound':13}   {rate} ({reached.roof_fraction:.0%})"


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.0f} ms" if seconds >= 0.01 else f"{1e3 * seconds:.2f} ms"


def _rate(achieved: float, roof: float | None, unit: str) -> str:
    """Both in the unit that suits the roof: 30.1 of 33.6 GB/s."""
    scale, prefix = next(
        ((scale, prefix) for scale, prefix in ((1e12, "T"), (1e9, "G")) if (roof or achieved) >= scale), (1e6, "M")
    )
    of = "" if roof is None else f" of {_digits(roof / scale)}"
    return f"{_digits(achieved / scale)}{of} {prefix}{unit}"


def _digits(number: float) -> str:
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


# --- for a program ----------------------------------------------------------------------------------------------------


def run_fields(model: str, completion: Completion, account: RunAccount) -> dict[str, Any]:
    """The object of `run --json`: seconds, bytes, bytes and FLOPs a second; null where something was not measured."""
    return {
        "model": model,
        "text": completion.text,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cached_tokens": completion.cached_tokens,
        "finish_reason": completion.finish_reason,
        "seed": completion.seed,
        "ttft_s": completion.summary.ttft_s,
        "tpot_s": completion.summary.tpot_s,
        "prefill": _phase_fields(account, account.prefill),
        "decode": _phase_fields(account, account.decode),
        "memory": {
            "weight_bytes": account.weight_bytes,
            "kv_bytes_per_token": account.kv_bytes_per_token,
            "kv_pool_bytes": account.kv_pool_bytes,
            "peak_rss_bytes": account.peak_rss_bytes,
        },
    }


def _phase_fields(account: RunAccount, totals: PhaseTotals) -> dict[str, Any]:
    reached = account.attainment(totals)
    return {
        "tokens": totals.tokens,
        "seconds": totals.seconds,
        "tok_s": totals.tok_s,
        "flops": totals.flops,
        "weight_bytes": totals.weight_bytes,
        "kv_bytes": totals.kv_bytes,
        "activation_bytes": totals.activation_bytes,
        "achieved_flop_s": totals.flop_s,
        "achieved_byte_s": totals.byte_s,
        "roof_flop_s": None if reached is None else reached.roof_flop_s,
        "roof_byte_s": None if reached is None else reached.roof_byte_s,
        "bound": None if reached is None else reached.bound,
        "roof_fraction": None if reached is None else reached.roof_fraction,
    }
