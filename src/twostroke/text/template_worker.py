"""The process in which chat templates run. Owns its limits and its side of the conversation: one JSON object a line, a
request and its answer. A template comes from a model file and can loop or grow without end in ways that nothing inside
Python can stop; a process can be ended, whatever it does. The other side is `template_process.py`.
"""

import json
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

from twostroke.errors import ChatTemplateError
from twostroke.text.chat_environment import CompiledTemplate

MAX_SECONDS = 0.5
"""Processor time for one request: when it is over, the system ends the process. Templates take a hundredth of it."""
_MAX_MEMORY = 512 << 20  # address space; about a tenth of it is Python itself


def serve() -> None:
    """Answers requests from standard input until it ends."""
    with suppress(ValueError, OSError):  # not every system can limit it
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    sys.stdout.write("\n")  # ready
    sys.stdout.flush()
    compiled = lru_cache(8)(CompiledTemplate)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
        try:
            answer = json.dumps(_answer(json.loads(line), compiled))
        except MemoryError:
            answer = json.dumps({"error": f"the chat template takes more than {_MAX_MEMORY >> 20} MiB of memory"})
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def _answer(request: Mapping[str, Any], compiled: Any) -> dict[str, object]:
    try:
        template: CompiledTemplate = compiled(request["source"])
        if "variables" not in request:
            return {"literals": template.literals}
        return {"text": template.render(request["variables"], datetime.fromisoformat(request["now"]))}
    except ChatTemplateError as error:
        return {"error": str(error)}
