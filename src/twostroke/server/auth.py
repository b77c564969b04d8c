"""Keys: who may call. Owns reading them from a file and comparing them in constant time."""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers

from twostroke.errors import ConfigError, in_words
from twostroke.server.errors import ApiError


class Keys:
    """The keys of a server; with none, everybody may call. Only their digests are kept."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def from_file(cls, path: str | Path) -> "Keys":
        """One key a line; empty lines and those that begin with # are none. Raises ConfigError where there is none."""
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the keys in {path}: {in_words(error)}") from None
        keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        if not keys:
            raise ConfigError(f"{path} has no key")
        return cls(keys)

    @property
    def are_needed(self) -> bool:
        return bool(self._digests)

    def check(self, headers: Headers) -> None:
        """Raises ApiError (401) unless `Authorization: Bearer KEY` or `x-api-key: KEY` has one of the keys."""
        if not self._digests:
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not given:
            raise _refusal("an API key is needed: Authorization: Bearer KEY")
        digest = _digest(given)
        matches = [hmac.compare_digest(digest, known) for known in self._digests]  # all: time tells nothing
        if not any(matches):
            raise _refusal("the API key is not known")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _refusal(message: str) -> ApiError:
    return ApiError(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
