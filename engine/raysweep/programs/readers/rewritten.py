"""Which lines of a file that was written anew were read before.

A program that writes its whole history, or the newest rows of it, repeats lines: those at the beginning that
were the last ones before. Costs what both versions have lines.
"""

from __future__ import annotations

from collections.abc import Sequence


def count_repeated(before: Sequence[int], now: Sequence[int]) -> int | None:
    """How many lines of `now` end `before`; None where `before` has all of them and `now` may continue.

    Lines are given as their hashes. The longest repetition counts (Knuth, Morris and Pratt, 1977).
    """
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
