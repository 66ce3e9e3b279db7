"""The brackets of HyperBand: how many trials begin in each, and how much time they get at each rung."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor


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


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a trial in DEHB's brackets.

    `band`: how many times all brackets were gone through before. `rung`: 0 is the one of the least time.
    `pool`: how many of the rung below (`is_first`: of the same rung) are parents. `slot`: whose place in the
    rung's population it competes for.
    """

    band: int
    rung: int
    is_first: bool
    pool: int
    slot: int


class Brackets:
    """DEHB's brackets: each trial has one rung, and so one time, that follow from its number.

    As in the authors' code, the bracket of s halvings begins with floor((s_max + 1) / (s + 1)) * eta ** s
    trials, and 1 / eta of those stand at each rung above.

    Args:
        max_t: the time of the highest rung.
        reduction_factor: eta, the quotient of the times of neighbouring rungs. Greater than 1.
    """

    def __init__(self, max_t: float, reduction_factor: float) -> None:
        s_max = halvings(max_t, reduction_factor)
        self.times = [milestone(max_t, reduction_factor, s_max - rung) for rung in range(s_max + 1)]
        # The rung of each trial of a band, whether it is its bracket's first one, and the rung's size there.
        self._band = [
            (s_max - s + index, index == 0, size)
            for s in range(s_max, -1, -1)
            for index, size in enumerate(_sizes(s, s_max, reduction_factor))
            for _ in range(size)
        ]
        self.populations = [max(n for at, _, n in self._band if at == rung) for rung in range(s_max + 1)]
        counts = [0] * (s_max + 1)
        self._before: list[int] = []  # how many earlier trials of the band have the same rung
        for rung, _, _ in self._band:
            self._before.append(counts[rung])
            counts[rung] += 1
        self._counts = counts

    @property
    def length(self) -> int:
        """The number of trials in a band."""
        return len(self._band)

    def place(self, number: int) -> Place:
        """The place of the trial of this number."""
        band, index = divmod(number, len(self._band))
        rung, is_first, size = self._band[index]
        slot = (band * self._counts[rung] + self._before[index]) % self.populations[rung]
        return Place(band=band, rung=rung, is_first=is_first, pool=size, slot=slot)

    def time(self, number: int) -> float:
        """The time that the trial of this number gets."""
        return self.times[self._band[number % len(self._band)][0]]


def _sizes(s: int, s_max: int, reduction_factor: float) -> list[int]:
    first = int(floor((s_max + 1) / (s + 1)) * reduction_factor**s + 1e-9)
    return [max(int(first / reduction_factor**index + 1e-9), 1) for index in range(s + 1)]
