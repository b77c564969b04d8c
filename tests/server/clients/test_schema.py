"""schemathesis against our own OpenAPI document: nothing it thinks of is answered by a 5xx, or by what the document
does not say. Skipped where it is not installed (`pip install -e '.[clients]'`).
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.running import running

from twostroke import LLM

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
PROGRAM = "from schemathesis.cli import schemathesis; schemathesis()"


@pytest.mark.large
@pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="schemathesis is not installed")
@pytest.mark.parametrize("phase", ["coverage", "fuzzing"])
def test_the_document_is_kept(tiny_path: Path, phase: str, tmp_path: Path) -> None:
    with LLM(tiny_path, threads=1, context=96) as llm, running(llm, max_queued=10_000) as server:
        options = ["--checks", CHECKS, "--max-examples", "40", "--phases", phase, "--seed", "1"]
        options += ["--request-timeout", "120"]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "run", f"{server.url}/openapi.json", *options],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path,  # it keeps what it found
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
        assert server.service.serving.is_alive
