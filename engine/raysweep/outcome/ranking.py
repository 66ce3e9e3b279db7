"""The rule for the best trial: one for the core, outcomes, statuses and pages.

A trial that may be the best did not fail, satisfies the constraints, has a value of each metric, and its
score stands: it has ended, and no failure of the sweep cut it. While none has ended, the best of those that
run is `ahead`, and nothing more: with `score: last` its next report may be worse. One of a larger scale is
better than any of a smaller one.

`core.views.scores` ranks the trials of a state, which is not made of outcomes, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from heapq import nsmallest
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from raysweep.numeric.pareto import Point, front_first, point_of

if TYPE_CHECKING:
    from raysweep.outcome.trial import TrialOutcome
    from raysweep.outcome.trials import TrialRow


class Ranked(NamedTuple):
    """The rank of a trial: the smallest is the best, equal ones keep their order."""

    larger_scales: int
    violation: float
    point: Point
    place: int
    """Among the trials that were ranked."""
    may_be_best: bool


def is_standing(state: str, sweep_status: str | None) -> bool:
    """True if the score of a trial in this state stands, in a sweep with this status (None: it runs).

    A limit or a person that ends a sweep leaves the trials that it cuts the scores that they have. A failure
    leaves them none: these trials were not done.
    """
    if state == "cancelled":
        return sweep_status != "failed"
    return state in ("completed", "stopped")


def is_allowed(trial: TrialOutcome | TrialRow, modes: Mapping[str, str]) -> bool:
    """True if a trial that has a score satisfies the constraints, and has a value of each metric."""
    return trial.is_feasible and (len(modes) < 2 or point_of(trial.metrics, modes) is not None)


def ranked(
    trials: Iterable[TrialOutcome | TrialRow], modes: Mapping[str, str], sweep_status: str | None
) -> Iterable[Ranked]:
    """Those that did not fail and have a finite score, as given; the first metric is the score's."""
    sign = -1 if next(iter(modes.values())) == "max" else 1
    for index, trial in enumerate(trials):
        score = trial.score
        if trial.state == "failed" or score is None or not math.isfinite(score):
            continue
        point = point_of(trial.metrics, modes) if len(modes) > 1 else (sign * score,)
        yield Ranked(
            trial.larger_scales,
            trial.violation if point is not None else math.inf,
            point if point is not None else (sign * score,),
            index,
            point is not None and trial.is_feasible and is_standing(trial.state, sweep_status),
        )


def best_first(
    trials: Iterable[TrialOutcome | TrialRow],
    modes: Mapping[str, str],
    sweep_status: str | None,
    most: int | None = None,
) -> list[int]:
    """The places of at most so many trials, the best first; of several metrics the Pareto front first."""
    found = ranked(trials, modes, sweep_status)
    if len(modes) < 2:
        order = sorted(found) if most is None else nsmallest(most, found)
        return [each.place for each in order]
    order = sorted(found)
    allowed = [each for each in order if each.violation == 0.0]
    order[: len(allowed)] = [allowed[place] for place in front_first([each.point for each in allowed])]
    return [each.place for each in islice(order, most)]


def is_better(score: float | None, other: float | None, mode: str) -> bool:
    """True if a score beats another one, strictly; any beats None."""
    if score is None or other is None:
        return score is not None
    return score > other if mode == "max" else score < other
