"""The comparison as text for a terminal. Owns its layout."""

from collections.abc import Iterator, Sequence

from .turns import Answer, Range


def lines(answers: Sequence[Answer], own: str) -> Iterator[str]:
    """A row a question and engine: median tok/s with least and most, and for others what `own` is to them."""
    yield f"{'':16}{'':12}{'tok/s':>8}   {'min-max':15}{own + ' to it':>16}   min-max"
    for answer in answers:
        for number, (name, rates) in enumerate(answer.rates.items()):
            speed = Range.of(rates)
            row = f"{answer.question.name if not number else '':16}{name:12}{speed.median:>8,.{_digits(speed.median)}f}"
            row += f"   {_between(speed):15}"
            if name != own:
                ratio = answer.ratio(own, name)
                row += f"{ratio.median:>15.2f}x   {ratio.least:.2f}-{ratio.most:.2f}"
            yield row.rstrip()


def _digits(rate: float) -> int:
    return 0 if rate >= 100 else 1


def _between(speed: Range) -> str:
    digits = _digits(speed.median)
    return f"{speed.least:,.{digits}f}-{speed.most:,.{digits}f}"
