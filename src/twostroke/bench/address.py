"""Address: the parts of a server's URL. Owns which URLs can be asked at all; others are refused before
anything is sent.
"""

from dataclasses import dataclass
from typing import Self
from urllib.parse import SplitResult, urlsplit

from twostroke.errors import ConfigError

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """`authority` is the host as the URL writes it, with its port; `query` begins with its mark, or is empty."""

    scheme: str
    authority: str
    host: str
    port: int
    path: str
    query: str

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises ConfigError."""
        parts = _split(url)
        if "@" in parts.netloc:
            raise ConfigError("url must hold no user and no password: a key goes into api_key")
        if not (url.isascii() and url.isprintable()) or " " in url:
            raise ConfigError(f"url must be of ASCII characters without spaces, others as %XX, not {url!r}")
        try:
            port = parts.port
        except ValueError:
            raise ConfigError(f"url: the port of {url} is no number up to 65535") from None
        host = _host(parts)
        if parts.scheme not in _PORTS or host is None:
            raise _refusal(url)
        query = f"?{parts.query}" if parts.query else ""
        return cls(parts.scheme, parts.netloc, host, port or _PORTS[parts.scheme], parts.path, query)

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"


def _split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        raise _refusal(url) from None


def _host(parts: SplitResult) -> str | None:
    """None where it could be nobody's: without characters, or with a label that is empty or too long."""
    try:
        (parts.hostname or "").encode("idna")  # as it is written when it is looked up
    except UnicodeError:
        return None
    return parts.hostname or None


def _refusal(url: str) -> ConfigError:
    return ConfigError(f"url must look like http://127.0.0.1:8000, not {url!r}")
