"""ServerConfig: everything about serving that can be chosen, flat. Owns names, defaults and ranges.

The command line makes its options from these fields: a field's `help` (and `choices`) are its option's.
"""

from dataclasses import dataclass, field
from typing import Any

from twostroke.errors import ConfigError

METRICS = ("open", "key", "off")
LOGS = ("text", "json")


def _option(default: Any, text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How to serve. Times in seconds. Raises ConfigError where a number is out of its range or a name unknown."""

    host: str = _option("127.0.0.1", "Address to listen on; 0.0.0.0 is every one.")
    port: int = _option(8000, "Port to listen on; 0 lets the system choose.")
    served_model_name: tuple[str, ...] = _option((), "Name of the model in the API; may be given more than once.")
    api_key_file: str | None = _option(None, "File of keys, one a line, of which clients must send one.")
    cors_origin: tuple[str, ...] = _option((), "Origin whose web pages may call, or '*'; may be given more than once.")
    metrics: str = _option("open", "Who may read /metrics: all, those with a key, or nobody.", METRICS)
    lenient: bool = _option(False, "Leave out unknown fields of a request instead of refusing it.")
    max_queued: int = _option(256, "Requests that wait at most; more are refused with 429.")
    max_queued_tokens: int = _option(1_000_000, "Prompt tokens that wait at most, all requests together.")
    max_body: int = _option(4 * 2**20, "Bytes of a request's body at most.")
    request_timeout: float = _option(600.0, "Seconds that a request may take, queue included.")
    keep_alive: float = _option(5.0, "Seconds of silence after which a stream gets a comment.")
    stall_timeout: float = _option(30.0, "Seconds after which a reader that takes nothing is cut.")
    prepare_timeout: float = _option(20.0, "Seconds that reading, rendering and tokenising a request may take.")
    drain: float = _option(30.0, "Seconds that running requests get to finish after SIGTERM.")
    log_format: str = _option("text", "Form of the log on stderr.", LOGS)

    def __post_init__(self) -> None:
        for name in ("max_queued", "max_queued_tokens", "max_body"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("request_timeout", "keep_alive", "stall_timeout", "prepare_timeout"):
            if not 0 < getattr(self, name) < 1e9:
                raise ConfigError(f"{name} must be seconds above 0, not {getattr(self, name)}")
        if not 0 <= self.drain < 1e9:
            raise ConfigError(f"drain must be seconds from 0 on, not {self.drain}")
        if not 0 <= self.port < 65536:
            raise ConfigError(f"port must be from 0 to 65535, not {self.port}")
        for name, known in (("metrics", METRICS), ("log_format", LOGS)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
