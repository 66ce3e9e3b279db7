"""The lines of a file that was written anew which were read before.

A program that writes its whole history, or the newest rows of it, repeats lines: those at the beginning that
were the last ones before. Costs what the versions of the file have lines, however many were read before.
"""

from __future__ import annotations

from collections.abc import Sequence


def count_repeated(before: Sequence[int], now: Sequence[int], newest: int) -> int | None:
    """The number of lines of `now` that end `before`; None where `now` may begin lines that were read.

    That is where `before` begins with `now`, or where the newest lines of it have all of `now`.

    Args:
        before, now: Lines, as their hashes.
        newest: The most lines that the file had at once.
    """
    if list(before[: len(now)]) == list(now):
        return None
    return _end_that_begins(before[-max(newest, len(now)) :], now)


def _end_that_begins(before: Sequence[int], now: Sequence[int]) -> int | None:
    """The longest end of `before` that begins `now`; None: `now` is in it (Knuth, Morris, Pratt, 1977)."""
    border = [0] * len(now)
    length = 0
    for index in range(1, len(now)):
        while length and now[index] != now[length]:
            length = border[length - 1]
        length += now[index] == now[length]
        border[index] = length
    length = 0
    for line in before:
        while length and line != now[length]:
            length = border[length - 1]
        length += line == now[length]
        if length == len(now):
            return None
    return length
