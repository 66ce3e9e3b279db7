"""The one way in which a number is shown, wherever a person reads it."""

from __future__ import annotations

DIGITS = 6


def show_number(value: object) -> str:
    """A value in few characters: floats with six digits."""
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)


def rounded(value: float) -> float:
    """The number that is shown: one of 32 bits still shows the same six digits."""
    return float(f"{value:.{DIGITS}g}")
