"""PASHA beside what its authors published, as plain functions of everything that was reported.

`Published` follows the words of Bohdal et al. (2023), section 4, and what their own implementation in Syne
Tune (0.13, `hyperband_pasha.py`) does: after each report it looks at all curves anew. The two differ in which
pairs of trials tell the noise; so do we: the paper's, of trials that have both come to the highest
rung, at the moment when one comes there. Syne Tune adds those on their way there, at each report.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest

from raysweep.schedulers import Resume
from raysweep.schedulers.pasha import PashaScheduler
from tests.sampling import examples

ETA, MAX_T = 2, 32
RUNGS = (1, 2, 4, 8, 16)


class Published:
    """The highest rung and the noise, after each report; larger values are better."""

    def __init__(self, *, counts_on_the_way: bool) -> None:
        self.highest, self.noise = 1, 0.0
        self._counts_on_the_way = counts_on_the_way
        self._curves: dict[int, list[float]] = {}  # a value for each epoch, from the first on

    def report(self, trial: int, value: float) -> None:
        curve = self._curves.setdefault(trial, [])
        curve.append(value)
        if self.highest == len(RUNGS) or (not self._counts_on_the_way and len(curve) != RUNGS[self.highest]):
            return
        top, below = RUNGS[self.highest], RUNGS[self.highest - 1]
        distances = self._noisy_distances(below, top)
        if distances:
            self.noise = float(np.percentile(distances, 90))
        if not self._is_ranking_kept(below, top):
            self.highest += 1

    def _noisy_distances(self, below: int, top: int) -> list[float]:
        """How far two trials are apart, where one is ahead, was behind before, and ahead before that."""
        first = below + 1 if self._counts_on_the_way else top
        found = []
        for one, other in combinations(self._curves.values(), 2):
            epoch = min(len(one), len(other), top)
            if epoch < first:
                continue
            ahead = [one[each] > other[each] for each in range(epoch)]
            if sum(before != after for before, after in pairwise(ahead)) >= 2:
                found.append(abs(one[epoch - 1] - other[epoch - 1]))
        return found

    def _is_ranking_kept(self, below: int, top: int) -> bool:
        """Soft ranking: whoever holds a place now was in the group around that place at the rung below."""
        come = {trial: curve for trial, curve in self._curves.items() if len(curve) >= top}
        now = sorted(come, key=lambda trial: -come[trial][top - 1])
        before = sorted(come, key=lambda trial: -come[trial][below - 1])
        for trial, place in zip(now, before, strict=True):
            centre = come[place][below - 1]
            group = {each for each in come if abs(come[each][below - 1] - centre) <= self.noise}
            if trial not in group:
                return False
        return True


class Stream:
    """Random trials of noisy curves, a few at a time, that pause and continue as the scheduler says."""

    def __init__(self, seed: int, mode: str) -> None:
        self._random = random.Random(seed)
        self._sign = 1 if mode == "max" else -1
        self._noise = self._random.choice([0.0, 0.01, 0.03, 0.1])
        self._drift = self._random.choice([0.0, 0.05, 0.5])
        self._slots = self._random.choice([1, 2, 5])
        self.scheduler = PashaScheduler(mode=mode, max_t=MAX_T, grace_period=1, reduction_factor=ETA)

    def run(self, paper: Published, syne_tune: Published, trials: int = 24) -> int:
        """Report to all three until nothing is left to do: where the highest rung is then."""
        rng, epochs, running, waiting = self._random, Counter[int](), [], list(range(trials))
        ends = {trial: (rng.random(), rng.gauss(0, self._drift)) for trial in waiting}
        while running or waiting:
            while waiting and len(running) < self._slots:
                running.append(waiting.pop(0))
            trial = rng.choice(running)
            epochs[trial] += 1
            level, slope = ends[trial]
            value = level + slope * math.log(epochs[trial]) + rng.gauss(0, self._noise)
            decisions = self.scheduler.report(trial, epochs[trial], self._sign * value)
            paper.report(trial, value)
            syne_tune.report(trial, value)
            self._check(paper)
            gone = {number for number, verdict in decisions if verdict != Resume()}
            running = [each for each in running if each not in gone and epochs[each] < MAX_T]
            going = [number for number, verdict in decisions if verdict == Resume()]
            running += [number for number in going if number not in running]
        return self.scheduler.highest

    def _check(self, paper: Published) -> None:
        assert self.scheduler.highest == paper.highest
        assert self.scheduler.to_json()["noise"] == pytest.approx(paper.noise, abs=1e-12)


def test_it_raises_the_highest_rung_when_the_paper_does() -> None:
    """And Syne Tune does in nearly all streams: what is on its way changes the noise, hardly the rung."""
    raised: Counter[int] = Counter()
    noises, others, streams = 0, 0, examples(24)
    for seed in range(streams):
        paper, syne_tune = Published(counts_on_the_way=False), Published(counts_on_the_way=True)
        raised[Stream(seed, ("max", "min")[seed % 2]).run(paper, syne_tune)] += 1
        noises += paper.noise > 0
        others += paper.highest != syne_tune.highest
    assert set(raised) >= {1, 2, 3, 4}, "the streams differ in how soon the ranking settles"
    assert noises > streams / 4
    assert others <= streams / 10
