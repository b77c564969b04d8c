"""Other clients, unchanged: LangChain's ChatOpenAI and OpenAIEmbeddings, and the `llm` command line.

Each is skipped where its package is not installed (`pip install -e '.[clients]'`).
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.server.running import RunningServer

from twostroke import LLM

MESSAGES: Any = [{"role": "user", "content": "the rain"}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 16}


def test_langchain(server: RunningServer, tiny: LLM) -> None:
    langchain = pytest.importorskip("langchain_openai")
    chat = langchain.ChatOpenAI(model="tiny", base_url=f"{server.url}/v1", api_key="none", **GREEDY)
    expected = tiny.chat(MESSAGES, **GREEDY).text
    done = chat.invoke("the rain")
    assert done.content == expected
    assert done.usage_metadata["output_tokens"] <= 16 and done.usage_metadata["input_tokens"] > 0
    assert "".join(piece.content for piece in chat.stream("the rain")) == expected
    assert [answer.content for answer in chat.batch(["the rain"] * 3)] == [expected] * 3
    embeddings = langchain.OpenAIEmbeddings(
        model="tiny", base_url=f"{server.url}/v1", api_key="none", check_embedding_ctx_length=False
    )
    vectors = embeddings.embed_documents(["the rain", "x"])
    assert vectors == [pytest.approx(vector) for vector in tiny.embed(["the rain", "x"]).tolist()]


@pytest.mark.skipif(importlib.util.find_spec("llm") is None, reason="the llm package is not installed")
@pytest.mark.parametrize("stream", [True, False])
def test_the_llm_command(server: RunningServer, tiny: LLM, tmp_path: Path, stream: bool) -> None:
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: here\n  model_name: tiny\n  api_base: {server.url}/v1\n"
    )
    options = ["-o", "temperature", "0", "-o", "max_tokens", "16", *([] if stream else ["--no-stream"])]
    done = subprocess.run(
        [sys.executable, "-m", "llm", "-m", "here", "the rain", "--no-log", *options],
        env={**os.environ, "LLM_USER_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == tiny.chat(MESSAGES, **GREEDY).text.strip()
