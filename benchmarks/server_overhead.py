"""What does the server's Python cost a token, beside the engine? Streams of one model over loopback, in CPU time.

    python benchmarks/server_overhead.py [--model smollm2] [--streams 16] [--tokens 128]

Prints one JSON object. `loop_*_us_a_token` is CPU time of the event loop's thread a token: its own
(text, events), and the system's (sockets).
`engine_us_a_token` is time of engine steps outside the native executor. `decode_tok_s` is all streams together.
"""

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
from typing import Any

from twostroke import LLM
from twostroke.engine.account import PhaseTotals
from twostroke.program.phase import Phase
from twostroke.server.auth import Keys
from twostroke.server.config import ServerConfig
from twostroke.server.run import Server, address_of, bind, make_service


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    with LLM(options.model, max_batch=options.streams, context=1024) as llm:
        sys.stdout.write(json.dumps(asyncio.run(measure(llm, options.streams, options.tokens)), indent=1) + "\n")


async def measure(llm: LLM, streams: int, tokens: int) -> dict[str, Any]:
    """Serves in this process while another one reads; the second of two rounds counts."""
    config = ServerConfig(port=0)
    bound = bind(config)
    bound.listen()
    service = make_service(llm, config, ("m",))
    server = Server(service, Keys(), config)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    port = int(address_of(bound).rpartition(":")[2])
    for _ in range(2):
        before, cpu = both(llm), resource.getrusage(resource.RUSAGE_THREAD)
        context = multiprocessing.get_context("spawn")
        reader = context.Process(target=read_all, args=(port, streams, tokens))
        reader.start()
        while reader.is_alive():
            await asyncio.sleep(0.05)
        after, ended = both(llm), resource.getrusage(resource.RUSAGE_THREAD)
    server.should_exit = True
    await serving
    service.serving.stop()
    user, system = ended.ru_utime - cpu.ru_utime, ended.ru_stime - cpu.ru_stime
    return figures(before, after, user, system)


def both(llm: LLM) -> tuple[PhaseTotals, PhaseTotals]:
    return llm.totals(Phase.PREFILL), llm.totals(Phase.DECODE)


def figures(
    before: tuple[PhaseTotals, ...], after: tuple[PhaseTotals, ...], user: float, system: float
) -> dict[str, Any]:
    tokens = after[1].tokens - before[1].tokens
    steps = after[1].steps - before[1].steps
    seconds = sum(b.seconds - a.seconds for a, b in zip(before, after, strict=True))
    native = sum(b.native_seconds - a.native_seconds for a, b in zip(before, after, strict=True))
    return {
        "tokens": tokens,
        "steps": steps,
        "decode_tok_s": tokens / (after[1].seconds - before[1].seconds),
        "loop_user_us_a_token": 1e6 * user / tokens,
        "loop_system_us_a_token": 1e6 * system / tokens,
        "engine_us_a_token": 1e6 * (seconds - native) / tokens,
        "native_us_a_token": 1e6 * native / tokens,
    }


def read_all(port: int, streams: int, tokens: int) -> None:
    """The client: as many streams at once, read to their ends and thrown away."""
    asyncio.run(gather_streams(port, streams, tokens))


async def gather_streams(port: int, streams: int, tokens: int) -> None:
    await asyncio.gather(*(read_stream(port, index, tokens) for index in range(streams)))


async def read_stream(port: int, index: int, tokens: int) -> None:
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": f"Tell me a story about number {index}."}],
            "stream": True,
            "max_tokens": tokens,
            "ignore_eos": True,
        }
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    data = await reader.read()
    if b"data: [DONE]" not in data:
        raise RuntimeError(data[-500:].decode("utf-8", "replace"))
    writer.close()


if __name__ == "__main__":
    main()
