"""Malformed requests by the thousand, from one seed: no 5xx, no broken connection; a neighbour's text is the same."""

import json
import random
import threading
from typing import Any

import httpx
import pytest
from tests.server.running import RunningServer

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "tiny",
        "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "max_tokens": 1,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["a", "b"],
        "logit_bias": {"5": 1},
        "stream_options": {"include_usage": True},
        "stream": True,
        "logprobs": True,
        "top_logprobs": 2,
        "seed": 1,
    },
    "/v1/completions": {"prompt": [[5, 6], [7]], "max_tokens": 1, "echo": True, "logprobs": 1, "n": 1, "top_k": 5},
    "/v1/embeddings": {"input": ["x", "y"], "encoding_format": "base64"},
    "/tokenize": {"prompt": "x", "add_special_tokens": True},
    "/detokenize": {"tokens": [1, 2, 3]},
}
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**300, 1e308, -1e308, "", "x", "\x00", "🙂" * 50, "<|im_end|>"),
    *([], {}, [[]], [None], {"a": {"b": []}}, ["x"] * 300, [1] * 5000, [-1], [1e9], "9" * 400, {"": ""}, [[1], ["x"]]),
]
BYTES = [b"\x00", b"\xff", b"\xc3", b"NaN", b"1e999", b"-", b'"', b"\\ud800", b"{", b"[", b"]", b",", b"9" * 400]


def mutated(rng: random.Random) -> tuple[str, bytes, bool]:
    """A path, a body, and whether it is certain to be refused."""
    path = rng.choice(list(BODIES))
    body = json.loads(json.dumps(BODIES[path]))
    kind = rng.randrange(6)
    if kind == 0:
        body["".join(rng.choices("abcdefgh_", k=rng.randrange(4, 12)))] = rng.choice(ODD)
        return path, json.dumps(body).encode(), True
    if kind == 1:
        return path, rng.randbytes(rng.randrange(1, 200)), True
    if kind == 2:
        return path, json.dumps(body).encode()[: -rng.randrange(1, 20)], True
    if kind == 3:
        depth = rng.choice([1, 10, 300, 20_000])
        return path, b'{"x":' + b"[" * depth + b"]" * depth + b"}", True
    if kind == 4:
        data = bytearray(json.dumps(body).encode())
        at = rng.randrange(len(data))
        data[at : at + rng.randrange(3)] = rng.choice(BYTES)
        return path, bytes(data), False
    place = replace_in(body, rng)
    body = place if isinstance(place, dict) else body
    return path, json.dumps(body).encode(), False


def replace_in(value: Any, rng: random.Random) -> Any:
    """One of the values in it replaced by an odd one."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        return {**value, key: replace_in(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        index = rng.randrange(len(value))
        return [*value[:index], replace_in(value[index], rng), *value[index + 1 :]]
    return rng.choice(ODD)


def bombard(server: RunningServer, count: int, seed: int) -> dict[int, int]:
    """Sends so many from one seed; statuses and how often."""
    rng = random.Random(seed)
    seen: dict[int, int] = {}
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for _ in range(count):
            path, data, is_wrong = mutated(rng)
            headers = {"x-request-id": "".join(map(chr, rng.choices(range(0x20, 0x7F), k=rng.randrange(200)))).strip()}
            response = client.post(path, content=data, headers=headers)
            status = response.status_code
            assert status == 200 or 400 <= status < 500, (path, data, response.text)
            assert not (is_wrong and status == 200), (path, data)
            if status != 200:
                assert response.json()["error"]["message"]
            seen[status] = seen.get(status, 0) + 1
    return seen


def check(server: RunningServer, count: int, num_threads: int, first_seed: int = 0) -> None:
    neighbour = {"prompt": "the rain", "max_tokens": 300, "ignore_eos": True, "temperature": 1, "seed": 3}
    expected = server.complete(**neighbour)["choices"]
    results: list[dict[int, int]] = []

    def job(seed: int) -> None:
        results.append(bombard(server, count // num_threads, seed))

    threads = [threading.Thread(target=job, args=(first_seed + number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    rounds = 0
    while rounds == 0 or any(thread.is_alive() for thread in threads):
        assert server.complete(**neighbour)["choices"] == expected
        rounds += 1
    assert len(results) == num_threads and sum(sum(seen.values()) for seen in results) == count
    assert all(seen[400] > count // num_threads // 2 for seen in results)
    assert server.service.serving.is_alive and server.engine.cache.num_free == server.engine.cache.num_blocks


def test_malformed_requests(server: RunningServer) -> None:
    check(server, 300, 2)


@pytest.mark.large
@pytest.mark.parametrize("quarter", range(4))
def test_twenty_thousand_malformed_requests(server: RunningServer, quarter: int) -> None:
    check(server, 5_000, 4, 4 * quarter)
