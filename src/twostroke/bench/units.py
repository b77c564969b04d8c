"""Figures of a load test as a reader sees them: three digits and a unit. Owns their form."""


def time_text(seconds: float) -> str:
    """3.12 ms, 123 ms, 1.25 s, 12.3 s."""
    if seconds >= 0.9995:
        return f"{_three_digits(seconds)} s"
    return f"{_three_digits(seconds * 1e3)} ms"


def rate_text(value: float) -> str:
    """0.35, 2.40, 47.8, 1,560."""
    return _three_digits(value)


def _three_digits(value: float) -> str:
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{digits}f}"
