"""Numbers, tables and strangers' texts as a terminal shows them. Owns their form; measures and prints nothing."""

from collections.abc import Iterator, Sequence

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_DECIMAL = ("", " k", " M", " G", " T", " P")


def bytes_text(num_bytes: float) -> str:
    """A size with a binary unit and three digits: 93.8 MiB."""
    return _scaled(num_bytes, 1024, tuple(f" {unit}" for unit in _BINARY))


def count_text(count: float) -> str:
    """A count with a decimal unit and three digits: 135 M."""
    return _scaled(count, 1000, _DECIMAL)


def seconds_text(seconds: float) -> str:
    """A stretch of time to wait for: 16 s, 2:05 min, 1:02 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes}:{whole % 60:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02} h"


def printable(text: str) -> str:
    """Text from a model file on one line: what a terminal would obey is spelled out."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shortened(text: str, width: int) -> str:
    """At most `width` characters, the cut shown."""
    return text if len(text) <= width else text[: width - 1] + "…"


def table(rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """Rows of equally many cells as aligned lines: the first `left` columns to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _scaled(number: float, step: int, units: Sequence[str]) -> str:
    index = 0
    while round(number) >= step and index + 1 < len(units):
        number, index = number / step, index + 1
    digits = 0 if index == 0 or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{number:.{digits}f}{units[index]}"
