"""Numbers as people read them: sizes, counts and times, three digits and a unit. Owns their form."""

from collections.abc import Sequence

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_DECIMAL = ("", " k", " M", " G", " T", " P", " E")


def bytes_text(num_bytes: float) -> str:
    """A size with a binary unit and three digits: 93.8 MiB."""
    return _scaled(num_bytes, 1024, tuple(f" {unit}" for unit in _BINARY))


def count_text(count: float) -> str:
    """A count with a decimal unit and three digits: 135 M."""
    return _scaled(count, 1000, _DECIMAL)


def rate_text(rate: float, unit: str) -> str:
    """A rate with a decimal unit: 33.6 GB/s."""
    text = count_text(rate)
    return f"{text}{unit}" if " " in text else f"{text} {unit}"


def time_text(seconds: float) -> str:
    """Three digits of s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds / size < 1000 else f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.2g} s"


def _scaled(number: float, step: int, units: Sequence[str]) -> str:
    index = 0
    while round(number) >= step and index + 1 < len(units):
        number, index = number / step, index + 1
    digits = 0 if index == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f}{units[index]}"
