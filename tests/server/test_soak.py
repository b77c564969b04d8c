"""Long runs: hundreds of clients that leave at any time, the same request again and again. Nothing is left behind."""

import random
import threading
from pathlib import Path

import pytest
from tests.server.running import RunningServer, running
from tests.server.test_life import RawClient, until

from twostroke import LLM
from twostroke.roofline.memory import resident_bytes

NUM_THREADS = 4


def leave_at_random(server: RunningServer, count: int, seed: int) -> None:
    """Clients that leave at once, after a moment, or after some of their answer."""
    rng = random.Random(seed)
    for _ in range(count):
        prompt = [rng.randrange(5, 250) for _ in range(rng.choice([2, 40, 1200]))]
        stream = rng.random() < 0.7
        client = RawClient(server, prompt=prompt, stream=stream, max_tokens=700, ignore_eos=True, seed=rng.randrange(9))
        if rng.random() < 0.5:
            threading.Event().wait(rng.random() * 0.05)
        elif stream:
            client.socket.recv(rng.choice([1, 1000]))
        client.socket.close()


def disconnects(llm: LLM, count: int) -> None:
    with running(llm) as server:
        expected = server.complete(max_tokens=50, ignore_eos=True, temperature=0)["choices"]
        threads = [
            threading.Thread(target=leave_at_random, args=(server, count // NUM_THREADS, seed))
            for seed in range(NUM_THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: server.service.lifecycle.num_exchanges == 0 and not server.engine.has_work, 30)
        assert server.engine.cache.num_free == server.engine.cache.num_blocks
        assert server.service.admission.num_queued == 0
        assert server.complete(max_tokens=50, ignore_eos=True, temperature=0)["choices"] == expected


def test_clients_that_leave(tiny: LLM) -> None:
    disconnects(tiny, 24)


@pytest.mark.large
def test_five_hundred_clients_that_leave(tiny_path: Path) -> None:
    with LLM(tiny_path, threads=1, max_batch=4) as llm:
        disconnects(llm, 500)


@pytest.mark.large
def test_memory_is_flat(server: RunningServer) -> None:
    """The same requests 300 times, after as many to fill caches: a few hundred bytes of each stay at most (SRV-08)."""

    def rounds(count: int) -> None:
        for number in range(count):
            server.complete("the rain", max_tokens=8, ignore_eos=True, logprobs=2, seed=number)
            server.chat(max_tokens=8, stop="q", n=2)

    def private_bytes() -> int:
        found = resident_bytes()
        assert found is not None
        return found[0]

    rounds(300)
    before = private_bytes()
    rounds(300)
    assert private_bytes() - before < 1 << 19
