"""A scripted OpenAI-compatible server: every request says how it is to be answered, in a field `script` of its body.

Run as a process of its own: `python mock_server.py [SCRIPT]`; the first line on stdout is its port; SCRIPT, as JSON, is
for requests without one. It keeps the times at which it read each request and wrote each chunk (`GET /log`; the clock
of time.perf_counter is one for all processes), so that a test can compare what was measured with what was, however late
the server itself was.

Fields of a script, times in seconds: first, gap, chunks, per_chunk (tokens), reasoning (chunks that come first), hidden
(reasoning tokens that are counted only), text, usage (False: none), done (False: no [DONE]), finish (False: no
finish_reason), status, stall_at and stall, close_at, malformed_at, error_at, linger, hang_up (after the answer),
cached, plain (no stream), refuse (fields).
Requests for 2 tokens are calibration and are answered plainly. A list of scripts is gone through, request by request.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

LOG: list[dict[str, Any]] = []
SEEN: Counter[str] = Counter()
DEFAULT: dict[str, Any] = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
TEMPLATE_TOKENS = 7


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            arrived = time.perf_counter()
            path, _, query = head.decode().split()[1].partition("?")
            headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if not await answer(path, headers, body, writer, arrived, query):
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def answer(
    path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter, arrived: float, query: str
) -> bool:
    """Whether the connection is kept."""
    if path == "/log":
        return send_json(writer, 200, LOG)
    if path.endswith("/v1/models"):
        return send_json(writer, 200, {"data": [{"id": "mock"}]})
    if path == "/tokenizing/tokenize":
        return send_json(writer, 200, {"tokens": [0] * count_tokens(json.loads(body)["content"])})
    if not path.endswith("/v1/chat/completions") and not path.endswith("/v1/completions"):
        return send_json(writer, 404, {"error": {"message": "no such path"}})
    request = json.loads(body)
    script = pick(request)
    if refused := [name for name in script.get("refuse", ()) if name in request]:
        return send_json(writer, 400, {"error": {"message": f"unknown field {refused[0]}"}})
    if "status" in script:
        return send_json(writer, script["status"], {"error": {"message": "as told"}})
    if script.get("plain"):
        return send_json(writer, 200, {"choices": [{"message": {"content": "all at once"}}]})
    entry: dict[str, Any] = {"read": arrived, "writes": [], "body": request, "key": headers.get("authorization")}
    entry["query"] = query
    LOG.append(entry)
    return await stream(request, script, writer, entry["writes"])


def pick(request: dict[str, Any]) -> dict[str, Any]:
    script = request.get("script", DEFAULT)
    scripts = script if isinstance(script, list) else [script]
    if request.get("max_tokens", request.get("max_completion_tokens")) == 2:
        return {"chunks": 2, "refuse": scripts[0].get("refuse", ()), "usage": scripts[0].get("usage", True)}
    key = json.dumps(scripts)
    SEEN[key] += 1
    found: dict[str, Any] = scripts[(SEEN[key] - 1) % len(scripts)]
    return found


async def stream(
    request: dict[str, Any], script: dict[str, Any], writer: asyncio.StreamWriter, writes: list[float]
) -> bool:
    start = time.perf_counter()
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    is_chat = "messages" in request
    if is_chat:
        send_event(writer, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "usage": None})
    num_chunks, late = script.get("chunks", 10), 0.0
    for index in range(num_chunks):
        if index == script.get("stall_at"):
            late = script["stall"]
        due = start + script.get("first", 0.0) + index * script.get("gap", 0.0) + late
        await asyncio.sleep(due - time.perf_counter())
        if index == script.get("close_at"):
            return False
        if index == script.get("malformed_at"):
            send_chunk(writer, b'data: {"choices": [{"del\n\n')
            continue
        if index == script.get("error_at"):
            send_event(writer, {"error": {"message": "engine fell over", "code": 500}})
            return False
        writes.append(time.perf_counter())
        send_event(writer, {"choices": [choice(index, script, is_chat)], "usage": None})
    if script.get("finish", True):
        send_event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "usage": None})
    if script.get("usage", True):
        send_event(writer, {"choices": [], "usage": usage(request, script, num_chunks)})
    if script.get("done", True):
        send_chunk(writer, b"data: [DONE]\n\n")
    await asyncio.sleep(script.get("linger", 0.0))
    send_chunk(writer, b"")
    return not script.get("hang_up", False)


def choice(index: int, script: dict[str, Any], is_chat: bool) -> dict[str, Any]:
    text = script.get("text", f"w{index} ")
    if not is_chat:
        return {"index": 0, "text": text, "finish_reason": None}
    name = "reasoning_content" if index < script.get("reasoning", 0) else "content"
    return {"index": 0, "delta": {name: text}, "finish_reason": None}


def usage(request: dict[str, Any], script: dict[str, Any], num_chunks: int) -> dict[str, Any]:
    text = request.get("prompt") or " ".join(message["content"] for message in request["messages"])
    hidden = script.get("hidden", 0)
    prompt = count_tokens(text) + TEMPLATE_TOKENS
    found: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": num_chunks * script.get("per_chunk", 1) + hidden,
    }
    if hidden or "reasoning" in script:
        found["completion_tokens_details"] = {"reasoning_tokens": hidden or script["reasoning"]}
    if "cached" in script:
        found["prompt_tokens_details"] = {"cached_tokens": script["cached"]}
    return found


def count_tokens(text: str) -> int:
    """Long words are two tokens."""
    return sum(1 + (len(word) > 8) for word in text.split())


def send_event(writer: asyncio.StreamWriter, value: object) -> None:
    send_chunk(writer, b"data: %s\n\n" % json.dumps(value).encode())


def send_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def send_json(writer: asyncio.StreamWriter, status: int, value: object) -> bool:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return True


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
