"""Logs on stderr, as lines of text or of JSON. Owns their form; what is logged is said where it happens."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logs(form: str) -> None:
    """Sends the server's log to stderr: "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name, level in (("twostroke", logging.INFO), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, and what was given beside it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(fields, default=str)


class TextLines(logging.Formatter):
    """A time, the message, and what was given beside it as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        line = f"{moment} {record.getMessage()}{facts}".replace("\n", "\\n")
        if record.exc_info:
            line += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        return line


def _facts(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
