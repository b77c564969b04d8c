"""Does `twostroke serve` keep what it promises under load? One line a bar: the measured value, and the bar.

    python benchmarks/serving_soak.py [--model smollm2] [--seconds 60] [--only streams --only overload]

    streams   64 requests of mixed lengths together say what each says alone; 64 streams decode faster than one
    prompt    running streams go on while a long prompt is admitted
    shared    a long prompt seen before starts at once, and after a restart from the disk
    overload  requests at four times the capacity: goodput, refusals, memory

Each part has a server of its own, loaded from this process over loopback. Needs a machine that does nothing else: about
six minutes on two cores. The exit status is 1 where a bar is not kept.
"""

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any, NamedTuple

import click
from peers.own import COMMAND
from peers.served import free_port, running
from serving_streams import Answer, Client

STREAMS, TOKENS = 64, 64
TURNS, ALONE = 5, 3  # turns of 64 streams together, and of one alone before and after each
SPELLS, UNDER_WAY_S = 5, 3  # of overload; seconds of each that are not counted
LONG_PROMPT, SHARED_PROMPT = 4000, 3000  # tokens
MIB = 1 << 20


class Bars:
    """Prints each bar as it is measured, and keeps whether all were kept."""

    def __init__(self) -> None:
        self.all_kept = True

    def at_most(self, what: str, value: float, bar: float, unit: str) -> None:
        self._tell(what, value, f"at most {bar:.4g}", unit, is_kept=value <= bar)

    def at_least(self, what: str, value: float, bar: float, unit: str) -> None:
        self._tell(what, value, f"at least {bar:.4g}", unit, is_kept=value >= bar)

    def _tell(self, what: str, value: float, bar: str, unit: str, *, is_kept: bool) -> None:
        self.all_kept &= is_kept
        click.echo(f"{'kept  ' if is_kept else 'MISSED'}  {what:58}{value:10.4g} {unit:6}  {bar}")


class Machine:
    """Starts servers of one model, each on a port of its own."""

    def __init__(self, model: str) -> None:
        self._model = model

    @contextmanager
    def serve(self, *options: str) -> Iterator[tuple[str, int]]:
        """URL and process id."""
        port = free_port()
        command = [*COMMAND, "serve", self._model, "--port", str(port), "--no-probe", *options]
        with running(command, f"http://127.0.0.1:{port}") as process:
            yield f"http://127.0.0.1:{port}", process.pid


async def client_of(url: str) -> Client:
    """A client, once a first request has been answered."""
    client = Client(url)
    await client.ask(prompt_of(8, 0), 8)
    return client


def prompt_of(count: int, seed: int) -> list[int]:
    """Token ids that every vocabulary here has, and that are text."""
    draw = random.Random(seed)
    return [draw.randrange(1000, 20_000) for _ in range(count)]


async def streams(machine: Machine, bars: Bars, _: float) -> None:
    """Every second request is drawn with a seed. Salts keep those together from the cache of those alone."""
    draw = random.Random(1)
    mixed = [(prompt_of(draw.randint(5, 400), n), draw.randint(4, 48), None if n % 2 else n) for n in range(STREAMS)]

    def ask(client: Client, number: int, salt: str) -> Awaitable[Answer]:
        prompt, tokens, seed = mixed[number]
        return client.ask(prompt, tokens, seed=seed, salt=salt)

    options = "--max-batch", str(STREAMS), "--context", "1024"
    with machine.serve(*options) as (url, _), machine.serve(*options, "--no-speculation") as (plain_url, _):
        client, plain = await client_of(url), await client_of(plain_url)
        alone = [(await ask(client, number, "alone")).text for number in range(STREAMS)]
        together = await asyncio.gather(*(ask(client, number, "together") for number in range(STREAMS)))
        turns = [(await one_and_many(plain, turn), await one_and_many(client, turn)) for turn in range(TURNS)]
    same = sum(answer.text == text for answer, text in zip(together, alone, strict=True))
    bars.at_least("texts of 64 mixed requests together that are as alone", same, STREAMS, "of 64")
    without, drafted = zip(*turns, strict=True)
    bars.at_least("decode of 64 streams together, to one stream's", median(gains(drafted)), 3, "x")
    for name, figures in (("", without), ("; with drafts, which one stream has and 64 have not", drafted)):
        ratios = gains(figures)
        one, many, chunks = (median(each) for each in zip(*figures, strict=True))
        click.echo(
            f"        ({median(ratios):.2f}, {ratios[0]:.2f} to {ratios[-1]:.2f} in {TURNS} turns; one {one:.0f} tok/s,"
            f" its {TOKENS} tokens in {chunks:.0f} chunks; 64 together {many:.0f} tok/s{name})"
        )


def gains(figures: Sequence[tuple[float, float, float]]) -> list[float]:
    return sorted(many / one for one, many, _ in figures)


async def one_and_many(client: Client, turn: int) -> tuple[float, float, float]:
    """Tokens a second of one stream, before and after 64 together; of those, while all run; and the one's chunks: fewer
    than tokens where drafts came true."""

    async def alone(number: int) -> tuple[float, int]:
        one = await client.ask(prompt_of(16, 1000 * turn + number), TOKENS)
        first, last = one.times[0], one.times[-1]
        return one.tokens_between(first, last) / (last - first), len(one.times)

    ones = [await alone(number) for number in range(ALONE)]
    many = await asyncio.gather(*(client.ask(prompt_of(16, 1000 * turn + 100 + n), TOKENS) for n in range(STREAMS)))
    ones += [await alone(ALONE + number) for number in range(ALONE)]
    since, until = max(answer.times[0] for answer in many), min(answer.times[-1] for answer in many)
    if since >= until:
        raise click.ClickException("the streams did not run together")
    together = sum(answer.tokens_between(since, until) for answer in many) / (until - since)
    return median(rate for rate, _ in ones), together, median(chunks for _, chunks in ones)


async def prompt(machine: Machine, bars: Bars, _: float) -> None:
    """Gaps between chunks as the client sees them while the prompt is computed: the slow ones to the usual ones."""
    draw, over = random.Random(2), asyncio.Event()
    mixed = [prompt_of(draw.randint(5, 400), 2000 + n) for n in range(STREAMS)]
    with machine.serve("--max-batch", str(STREAMS + 1), "--context", "4608") as (url, _pid):
        client = await client_of(url)
        answers = [Answer(perf_counter()) for _ in mixed]
        asked = [client.ask(given, 2000, until=over, into=into) for given, into in zip(mixed, answers, strict=True)]
        many = asyncio.gather(*asked)
        while not all(answer.times for answer in answers):
            await asyncio.sleep(0.1)
        began = perf_counter()
        await asyncio.sleep(8)
        since = perf_counter()
        admitted = await client.ask(prompt_of(LONG_PROMPT, 99), 1)
        until = admitted.times[0]
        over.set()
        await many
    if any(answer.times[-1] < until for answer in answers):
        raise click.ClickException("a stream ended before the long prompt was admitted")
    before = [gap for answer in answers for gap in answer.gaps(began, since)]
    during = [gap for answer in answers for gap in answer.gaps(since, until)]
    p99 = quantiles(during, n=100)[98]
    usual = median(during)
    bars.at_most("p99 gap of 64 streams during a 4,000-token prompt, to median", p99 / usual, 2.5, "x")
    click.echo(
        f"        (median {1e3 * usual:.1f} ms, p99 {1e3 * p99:.1f} ms; the prompt took {until - since:.2f} s; before"
        f" it the median was {1e3 * median(before):.1f} ms, of which p99 is {p99 / median(before):.2f}x)"
    )


async def shared(machine: Machine, bars: Bars, _: float) -> None:
    """The same request three times: at first, again, and after a restart."""
    given = prompt_of(SHARED_PROMPT, 7)
    with tempfile.TemporaryDirectory() as folder:
        options = ("--max-batch", "4", "--context", "4608", "--kv-disk", folder)
        with machine.serve(*options) as (url, _pid):
            client = await client_of(url)
            first, second = await client.ask(given, 32), await client.ask(given, 32)
        with machine.serve(*options) as (url, _pid):
            client = await client_of(url)
            again = await client.ask(given, 32)
    bars.at_most("TTFT of a 3,000-token prompt seen before", 1e3 * second.ttft, max(100 * first.ttft, 60), "ms")
    bars.at_most("TTFT of it after a restart, from the disk", 1e3 * again.ttft, max(250 * first.ttft, 150), "ms")
    bars.at_least("texts that are as at first", (second.text == first.text) + (again.text == first.text), 2, "of 2")


async def overload(machine: Machine, bars: Bars, seconds: float) -> None:
    """A closed loop finds the capacity, then requests arrive at random at four times its rate, and so on in turn: a
    machine's speed changes, and a spell's goodput is compared with the mean of the capacity before it and after it.

    The context is short so that every page of the KV pool has been used before memory is first read.
    """
    with machine.serve("--max-batch", "16", "--context", "96", "--max-queued", "32") as (url, pid):
        client = await client_of(url)
        capacities, spells = [await saturate(client, 15)], list[Spell]()
        before = private_bytes(pid)
        for number in range(SPELLS):
            spells.append(await flood(client, 4 * capacities[-1], seconds / SPELLS, number))
            capacities.append(await saturate(client, 15))
        grown = private_bytes(pid) - before
    answers = [answer for spell in spells for answer in spell.answers]
    refused = [answer.seconds for answer in answers if answer.status == 429]
    others = len(answers) - sum(answer.status in (200, 429) for answer in answers)
    if len(refused) < 2:
        raise click.ClickException("nothing was refused: the load was no overload")
    saturated = [(one + other) / 2 for one, other in pairwise(capacities)]
    shares = sorted(100 * spell.goodput / rate for spell, rate in zip(spells, saturated, strict=True))
    click.echo(
        f"        (goodput {shares[0]:.0f} to {shares[-1]:.0f}% in {SPELLS} spells; {min(capacities):.1f} to"
        f" {max(capacities):.1f} requests/s saturated; {len(answers)} asked in {seconds:.0f} s)"
    )
    bars.at_least("goodput at 4x the capacity, to saturated", median(shares), 90, "%")
    bars.at_most("p99 time to a refusal (429)", 1e3 * quantiles(refused, n=100)[98], 150, "ms")
    bars.at_most("answers that are neither whole nor refused", others, 0, "")
    bars.at_most("growth of the server's private memory", grown / MIB, 16, "MiB")


class Spell(NamedTuple):
    """Requests of an open loop, and those answered a second once it was under way."""

    answers: list[Answer]
    goodput: float


async def flood(client: Client, rate: float, seconds: float, number: int) -> Spell:
    """Each request is sent when it is due, however late the one before was."""
    draw, asked = random.Random(number), list[asyncio.Task[Answer]]()
    started = due = perf_counter()
    while (due := due + draw.expovariate(rate)) < started + seconds:
        await asyncio.sleep(due - perf_counter())
        asked.append(asyncio.create_task(client.ask(prompt_of(32, 10**5 * (1 + number) + len(asked)), 32)))
    await asyncio.sleep(started + seconds - perf_counter())
    answers = await asyncio.gather(*asked)
    return Spell(answers, rate_of([answer.ended for answer in answers if answer.status == 200], started, seconds))


async def saturate(client: Client, seconds: float, num_clients: int = 24) -> float:
    """Requests a second of a closed loop that always keeps some waiting."""
    started = perf_counter()
    ends: list[float] = []

    async def loop(number: int) -> None:
        while perf_counter() < started + seconds:
            answer = await client.ask(prompt_of(32, 10**7 + 1000 * number + len(ends)), 32)
            if answer.status != 200:
                raise click.ClickException(f"a closed loop of {num_clients} clients was answered {answer.status}")
            ends.append(answer.ended)

    await asyncio.gather(*(loop(number) for number in range(num_clients)))
    return rate_of(ends, started, seconds)


def rate_of(ends: Sequence[float], started: float, seconds: float) -> float:
    """A second, of those within the time, once the first have run through."""
    return sum(started + UNDER_WAY_S < end <= started + seconds for end in ends) / (seconds - UNDER_WAY_S)


def private_bytes(pid: int) -> int:
    """Memory of the process that no file backs."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("RssAnon:")]
    return 1024 * int(line.split()[1])


PARTS: dict[str, Callable[[Machine, Bars, float], Awaitable[None]]] = {
    "streams": streams,
    "prompt": prompt,
    "shared": shared,
    "overload": overload,
}


@click.command(help=__doc__)
@click.option("--model", default="smollm2", show_default=True, help="Alias or GGUF file.")
@click.option("--seconds", default=60.0, show_default=True, help="Of overload, in five spells.")
@click.option("--only", type=click.Choice(list(PARTS)), multiple=True, help="Parts to run; all by default.")
def main(model: str, seconds: float, only: Sequence[str]) -> None:
    bars, machine = Bars(), Machine(model)
    click.echo(f"{model}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")

    async def run(part: Callable[[Machine, Bars, float], Any]) -> None:
        await part(machine, bars, seconds)

    for name in only or PARTS:
        asyncio.run(run(PARTS[name]))
    sys.exit(not bars.all_kept)


if __name__ == "__main__":
    main()
