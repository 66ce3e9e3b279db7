"""The brackets of HyperBand: how many trials begin in each, and how much time they get at each rung."""

from __future__ import annotations

from math import ceil


def halvings(max_t: float, reduction_factor: float) -> int:
    """The halvings of the first bracket: the largest s with `reduction_factor ** s <= max_t`."""
    s = 0
    while reduction_factor ** (s + 1) <= max_t * (1 + 1e-9):
        s += 1
    return s


def bracket_size(s: int, s_max: int, reduction_factor: float) -> int:
    """The number of trials with which a bracket of s halvings begins (Li et al., line 2 of algorithm 1)."""
    return ceil((s_max + 1) / (s + 1) * reduction_factor**s - 1e-9)


def milestone(max_t: float, reduction_factor: float, halvings_left: int) -> float:
    """The time of the rung before so many halvings: whole, as times mostly are."""
    return float(max(1, int(max_t / reduction_factor**halvings_left + 1e-9)))


def rungs_of_brackets(max_t: float, reduction_factor: float) -> tuple[float, ...]:
    """The times of all rungs of HyperBand's brackets, the last one first."""
    count = halvings(max_t, reduction_factor) + 1
    return tuple(milestone(max_t, reduction_factor, left) for left in range(count))
