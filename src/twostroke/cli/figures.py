"""Numbers, tables and strangers' texts as a terminal shows them. Owns their form; sizes and counts are written as on
pages. Measures and prints nothing.
"""

from collections.abc import Iterator, Sequence

from twostroke.explain.figures import bytes_text, count_text

__all__ = ["bytes_text", "count_text", "printable", "seconds_text", "shortened", "table"]


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
