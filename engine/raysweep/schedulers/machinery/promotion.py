"""ASHA by promotion: each trial pauses at each rung, and continues once it is among the best of that rung.

Algorithm: Li et al., "A System for Massively Parallel Hyperparameter Tuning", MLSys 2020,
arXiv:1810.05934, as it stands there (algorithm 2): of n trials at a rung, the best floor(n /
reduction_factor) are promoted. The stopping form (`raysweep.schedulers.asha`) is that of Ray Tune: it
lets the first ones of a rung continue, however bad.

The paper adds configs for ever. Here they end: once nothing else can run, the best trial of a rung that
none (or only who failed) was promoted from continues, so that some trial reaches `max_t`.

Where each config is better than most before it, as those of a search that learns are, nearly all of them are
among the best when they come, and are promoted. `delayed` is the answer of Li et al., "Hyper-Tune", VLDB
2022, arXiv:2201.06834 (D-ASHA): no more than floor(n / reduction_factor) are promoted from n, the best first.
Here, too, configs end: who is among the best once nothing else can run continues then.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

from raysweep.schedulers.base import (
    NOTHING,
    PAUSE,
    TRAINING_ITERATION,
    Config,
    Decisions,
    Move,
    Resume,
    Scheduler,
    Verdict,
)
from raysweep.schedulers.machinery.rungs import (
    check_asha,
    draw_bracket,
    milestones,
    softmax_cumulative,
)
from raysweep.schedulers.machinery.saved import check_parameters


class Rung:
    """One milestone: who came how far in what order (larger is better), and who was promoted from it.

    `ordered` holds all that were recorded, the best first; `open` those of them that may still be promoted.
    A promotion looks at `open` alone, so a report costs O(log n), however many continued before.
    """

    __slots__ = ("milestone", "open", "ordered", "promoted", "scores", "standing")

    def __init__(self, milestone: float) -> None:
        self.milestone = milestone
        self.scores: dict[int, float] = {}
        self.promoted: set[int] = set()
        self.ordered: list[tuple[float, int]] = []
        self.open: list[tuple[float, int]] = []
        self.standing = 0
        """The number of `promoted` that have not failed."""

    def record(self, trial: int, score: float) -> None:
        """Take note of a trial that was not here before."""
        self.scores[trial] = score
        insort(self.ordered, (-score, trial))
        insort(self.open, (-score, trial))

    def promote(self, trial: int) -> None:
        """The trial is promoted from this rung."""
        self.close(trial)
        self.promoted.add(trial)
        self.standing += 1

    def close(self, trial: int) -> None:
        """The trial is not promoted from here, for now."""
        entry = (-self.scores[trial], trial)
        place = bisect_left(self.open, entry)
        if self.open[place : place + 1] == [entry]:
            del self.open[place]

    def reopen(self, trial: int) -> None:
        """Let a trial that was closed, and not promoted, be promoted again."""
        self.close(trial)
        insort(self.open, (-self.scores[trial], trial))

    def best_open(self, share: int) -> Iterator[int]:
        """Trials of the best `share` of all that may be promoted, the best first; of equal ones the lower.

        It may be changed meanwhile only after the last one was taken.
        """
        for entry in self.open:
            if bisect_left(self.ordered, entry) >= share:
                return
            yield entry[1]

    def to_json(self, sign: float) -> dict[str, Any]:
        """Milestone, trials and raw values in the order of recording, and who was promoted."""
        return {
            "milestone": self.milestone,
            "trials": list(self.scores),
            "values": [score * sign for score in self.scores.values()],
            "promoted": sorted(self.promoted),
        }

    @classmethod
    def from_json(cls, saved: dict[str, Any], sign: float, failed: Collection[int]) -> Rung:
        """The rung that `to_json` wrote; `failed` are the trials that have failed."""
        rung = cls(saved["milestone"])
        rung.promoted = set(saved["promoted"])
        rung.standing = sum(trial not in failed for trial in rung.promoted)
        rung.scores = {
            trial: value * sign for trial, value in zip(saved["trials"], saved["values"], strict=True)
        }
        rung.ordered = sorted((-score, trial) for trial, score in rung.scores.items())
        rung.open = [entry for entry in rung.ordered if entry[1] not in rung.promoted]
        return rung


class PromotionScheduler(Scheduler):
    """Asynchronous successive halving by promotion over trial numbers (Li et al. 2020, arXiv:1810.05934).

    Args:
        mode: "min" or "max": the direction of the reported values.
        max_t: a trial that reports this time has completed. Units of the time attribute, as all times here.
        grace_period: milestone of the first rung.
        reduction_factor: distance between rungs, and 1 / the share that is promoted. Greater than 1.
        brackets: number of brackets; bracket s starts at `grace_period * reduction_factor**s`. A trial falls
            into one as in `AshaScheduler`.
        seed: decides, with the trial number, which bracket a trial falls into.
        time_attr: the reported value that counts as time.
        delayed: whether no more are promoted from a rung than 1 / `reduction_factor` of those who came there.

    Raises:
        SpecError: a parameter outside its range.
    """

    kind: str = "asha"
    moves: frozenset[Move] = frozenset({"pause"})

    def __init__(
        self,
        *,
        mode: Literal["min", "max"],
        max_t: float = 100,
        grace_period: float = 1,
        reduction_factor: float = 4,
        brackets: int = 1,
        seed: int = 0,
        time_attr: str = TRAINING_ITERATION,
        delayed: bool = False,
    ) -> None:
        check_asha(max_t, grace_period, reduction_factor, brackets, self.kind)
        self._parameters: dict[str, Any] = {
            "type": "promotion",
            "mode": mode,
            "max_t": max_t,
            "grace_period": grace_period,
            "reduction_factor": reduction_factor,
            "brackets": brackets,
            "seed": seed,
            "delayed": delayed,
        }
        self._delayed = delayed
        self.time_attr = time_attr
        self.max_t: float | None = float(max_t)
        self._sign = 1.0 if mode == "max" else -1.0
        self._seed, self._eta, self._end = seed, reduction_factor, float(max_t)
        times = [milestones(grace_period, max_t, reduction_factor, s) for s in range(brackets)]
        self._cumulative = softmax_cumulative([len(each) for each in times])
        # A rung at `max_t` would decide nothing.
        self._brackets = [[Rung(time) for time in each if time < max_t] for each in times]
        # How many rungs each trial has behind it, who waits at the last of them, and who will not continue.
        self._level: dict[int, int] = {}
        self._waiting: set[int] = set()
        self._gone: set[int] = set()
        self._failed: set[int] = set()  # those of them that have not completed

    def add(self, trial: int, config: Config) -> None:
        """Make a trial known. One that was here before keeps what it recorded."""
        self._gone.discard(trial)
        if trial in self._failed:
            self._failed.discard(trial)
            self._stand(trial, 1)
        level = self._level.get(trial, 0)
        if level and trial in self._waiting:
            self._rungs(trial)[level - 1].reopen(trial)

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide on one report: at a rung the trial waits, unless it is promoted at once."""
        if time >= self._end:
            return NOTHING
        if trial in self._waiting:  # it was cut while it waited, and runs again
            return ((trial, PAUSE),)
        if not self._record(trial, time, float(value) * self._sign):
            return NOTHING
        self._waiting.add(trial)
        decisions = self._promote_all(trial)
        return decisions if trial not in self._waiting else (*decisions, (trial, PAUSE))

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Record the last report of a trial that has completed, which may make room for others."""
        has_reached = (
            time is not None and value is not None and self._record(trial, time, float(value) * self._sign)
        )
        self._gone.add(trial)
        return self._promote_all(trial) if has_reached else NOTHING

    def remove(self, trial: int) -> Decisions:
        """Promote a trial no more; what it recorded stays."""
        self._gone.add(trial)
        if trial not in self._failed:
            self._failed.add(trial)
            self._stand(trial, -1)
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Promote who was delayed; else the best of a rung that none was promoted from, the highest first."""
        if self._delayed:
            late = [decision for rungs in self._brackets for decision in self._promote_from(rungs, late=True)]
            if late:
                return tuple(late)
        for rungs in self._brackets:
            for index in range(self._top(rungs) - 1, -1, -1):
                rung = rungs[index]
                best = next(iter(self._going(rung, index, len(rung.scores))), None)
                if best is not None and not rung.standing:
                    return ((best, self._promote(best, rung)),)
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        """Return parameters, and per bracket and rung who came by, in the order of recording."""
        return {
            "parameters": dict(self._parameters),
            "rungs": [[rung.to_json(self._sign) for rung in rungs] for rungs in self._brackets],
            "levels": [[trial, level] for trial, level in self._level.items()],
            "waiting": sorted(self._waiting),
            "gone": sorted(self._gone),
            "failed": sorted(self._failed),
        }

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned for the same parameters.

        Raises:
            SpecError: the parameters differ: their rungs cannot be compared.
        """
        check_parameters(self.kind, state["parameters"], self._parameters)
        self._level = dict(state["levels"])
        self._waiting = set(state["waiting"])
        self._gone, self._failed = set(state["gone"]), set(state["failed"])
        self._brackets = [
            [Rung.from_json(saved, self._sign, self._failed) for saved in rungs] for rungs in state["rungs"]
        ]

    def _rungs(self, trial: int) -> list[Rung]:
        return self._brackets[draw_bracket(trial, self._seed, self._cumulative)]

    def _top(self, rungs: list[Rung]) -> int:
        """From how many of the rungs trials are promoted."""
        return len(rungs)

    def _record(self, trial: int, time: float, score: float) -> bool:
        """Record a trial at the highest rung that it has reached anew, if there is one."""
        rungs, level = self._rungs(trial), self._level.get(trial, 0)
        if level >= len(rungs) or time < rungs[level].milestone:
            return False
        reached = max(index for index, rung in enumerate(rungs) if time >= rung.milestone)
        rungs[reached].record(trial, score)
        self._level[trial] = reached + 1
        return True

    def _promote_all(self, trial: int) -> Decisions:
        """Promote a trial that is among the best of a rung of this trial's bracket."""
        return tuple(self._promote_from(self._rungs(trial)))

    def _promote_from(self, rungs: list[Rung], *, late: bool = False) -> list[tuple[int, Verdict]]:
        """Promote a trial among the best of one of these rungs; where that is delayed, not `late`, as many
        as it has a place for."""
        decisions: list[tuple[int, Verdict]] = []
        for index in range(self._top(rungs)):
            rung = rungs[index]
            share = math.floor(len(rung.scores) / self._eta + 1e-9)
            going = self._going(rung, index, share)
            if self._delayed and not late:
                going = going[: max(0, share - rung.standing)]
            decisions += [(number, self._promote(number, rung)) for number in going]
        return decisions

    def _going(self, rung: Rung, index: int, share: int) -> list[int]:
        """Trials of the best `share` of a rung that may be promoted, best first. Those gone are closed."""
        found: list[int] = []
        gone: list[int] = []
        for trial in rung.best_open(share):
            may_go_on = trial in self._waiting and trial not in self._gone and self._level[trial] == index + 1
            (found if may_go_on else gone).append(trial)
        for trial in gone:
            rung.close(trial)
        return found

    def _promote(self, trial: int, rung: Rung) -> Resume:
        self._waiting.discard(trial)
        rung.promote(trial)
        return Resume()

    def _stand(self, trial: int, change: int) -> None:
        """A trial has failed (-1), or runs again after that (1)."""
        for rung in self._rungs(trial):
            if trial in rung.promoted:
                rung.standing += change
