"""Facts: checked reading of a model's keys, from GGUF metadata or config.json. Owns types and ranges, no meaning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from twostroke.errors import ModelFileError, UnsupportedModelError

_LEAST, _MOST = 1e-15, 1e15  # of numbers whose kind has no bounds of its own


@dataclass(frozen=True, slots=True)
class Facts:
    """Values by key, each read with `prefix` before it. `where` and the key name a value in messages.

    A key whose value is null counts as absent. A default is what absence means and is not checked; without one, absence
    is an error. Readers raise ModelFileError for a value that is missing, ill-typed or out of range.
    """

    values: Mapping[str, Any]
    where: str
    prefix: str = ""

    def __contains__(self, key: str) -> bool:
        return self.values.get(self.prefix + key) is not None

    def named(self, key: str) -> str:
        return f"{self.where} '{self.prefix}{key}'"

    def error(self, key: str, what: str) -> ModelFileError:
        return ModelFileError(f"{self.named(key)} {what}")

    def unsupported(self, key: str, what: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self.named(key)} {what}")

    def raw(self, key: str) -> Any:
        """The value as it is, None where there is none."""
        return self.values.get(self.prefix + key)

    def integer(self, key: str, limit: int, default: int | None = None) -> int:
        """An integer from 1 to `limit`; an array that gives each layer its own is supported where all are equal."""
        if key not in self and default is not None:
            return default
        value = self._required(key)
        if _is_array(value) and value.ndim == 1 and value.size and value.dtype.kind in "iu":
            if (value != value[0]).any():
                raise self.unsupported(key, "differs from layer to layer, which is not supported")
            value = int(value[0])
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, "is not an integer")
        if not 1 <= value <= limit:
            raise self.error(key, f"is {_shown(value)}, not in 1 to {limit:,}")
        return value

    def count(self, key: str, limit: int) -> int:
        """An integer from 0 to `limit`, 0 where it is absent."""
        return 0 if key not in self or self._is_zero(key) else self.integer(key, limit)

    def number(self, key: str, limit: float, default: float | None = None) -> float:
        """A number above 0 (not under 1e-15) and at most `limit`."""
        if key not in self and default is not None:
            return default
        value = self._required(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.error(key, "is not a number")
        if not _LEAST <= value <= limit:  # so is a NaN
            raise self.error(key, f"is {_shown(value)}, not above 0 and at most {limit:g}")
        return float(value)

    def optional_number(self, key: str, limit: float) -> float | None:
        """As `number`; None where it is absent or 0."""
        return None if key not in self or self._is_zero(key) else self.number(key, limit)

    def boolean(self, key: str, default: bool) -> bool:
        if key not in self:
            return default
        value = self.raw(key)
        if not isinstance(value, bool):
            raise self.error(key, "is not true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        if key not in self and default is not None:
            return default
        value = self._required(key)
        if not isinstance(value, str):
            raise self.error(key, "is not a string")
        return value

    def numbers(self, key: str, length: int) -> tuple[float, ...]:
        """As many finite numbers above 0 as `length`."""
        value = self._required(key)
        items = value.tolist() if _is_array(value) else value
        is_list = isinstance(items, list) and len(items) == length
        if not is_list or any(isinstance(item, bool) or not isinstance(item, int | float) for item in items):
            raise self.error(key, f"is not {length} numbers")
        if not all(_LEAST <= item <= _MOST for item in items):
            raise self.error(key, f"has a number that is not above 0 and at most {_MOST:g}")
        return tuple(map(float, items))

    def sequence(self, key: str, length: int) -> Sequence[Any] | None:
        """A list of at least `length` items, cut to it; None where it is absent."""
        if key not in self:
            return None
        value = self.raw(key)
        items = value.tolist() if _is_array(value) else value
        if not isinstance(items, list) or len(items) < length:
            raise self.error(key, f"is not a list of {length:,} items")
        return items[:length]

    def part(self, key: str) -> "Facts | None":
        """The object under a key; None where it is absent."""
        if key not in self:
            return None
        value = self.raw(key)
        if not isinstance(value, dict):
            raise self.error(key, "is not an object")
        return Facts(value, f"{self.named(key)}:")

    def require_only(self, key: str, *only: object) -> None:
        """Refuse any other value of a key; absence is allowed."""
        if key not in self:
            return
        value = self.raw(key)
        if _is_array(value) or not any(value == one for one in only):
            raise self.unsupported(key, f"is {_shown(value)}, which is not supported")

    def _is_zero(self, key: str) -> bool:
        value = self.raw(key)
        return isinstance(value, int | float) and not isinstance(value, bool) and value == 0

    def _required(self, key: str) -> Any:
        value = self.raw(key)
        if value is None:
            raise self.error(key, "is missing")
        return value


def _is_array(value: Any) -> bool:
    """Whether it is NumPy's, as arrays of a GGUF file are: asked without NumPy, which config.json does without."""
    return type(value).__module__ == "numpy"


def _shown(value: object) -> str:
    """A value as a message shows it: in one short line."""
    if isinstance(value, int) and abs(value) > 1 << 64:
        return "an integer of more than 64 bits"
    if isinstance(value, bool):
        return str(value).lower()  # as JSON has it
    text = f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
