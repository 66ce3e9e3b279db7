"""Ranking: which report counts for a trial, and which trial is the best.

A trial satisfies the sweep's constraints if the report that ranks it does: its last, or with `score: best`
its best. One that does not, or of which that cannot be told, is never the best; it stands behind all that do,
the nearest first. Of a trial's reports, too, any that satisfies them is better than any that does not.

`outcome.ranking` says whose score stands: only such a trial is the best.

In a sweep of several scales each trial of a larger scale is ahead of all of smaller ones.

With several metrics the first one ranks; the others tell equal ones apart, one after the other. So the best
is on the Pareto front, which is for others to find. A trial without a value of one of them is never the best.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from typing import Final, Protocol

from pydantic import JsonValue

from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import Metrics, Told
from raysweep.core.vocabulary.commands import TellSearch
from raysweep.core.vocabulary.failures import is_by_config
from raysweep.core.vocabulary.lifecycle import ToldEnd, TrialEnd, TrialState
from raysweep.outcome.ranking import is_standing
from raysweep.search.options import TRIAL_TIME, CostRule
from raysweep.space.scales import place_of

_TOLD_AS: Final[dict[TrialState, TrialEnd]] = {
    "completed": "completed",
    "stopped": "stopped",
    "failed": "failed",
}
Place = tuple[int, bool, float, tuple[float, ...], int]


class Ran(Protocol):
    """An attempt, in a state or in an outcome. Times are UTC seconds."""

    @property
    def started_at(self) -> float | None:
        """None: it never began."""
        ...

    @property
    def ended_at(self) -> float | None:
        """None: it has not ended."""
        ...

    @property
    def end(self) -> str:
        """The cause of its end."""
        ...


def score_of(state: SweepState, trial: Trial) -> float | None:
    """The score that ranks a trial: its last reported metric, or its best, as the spec's `score` says."""
    return trial.results.best_score if state.rules.objective.ranks_by_best else trial.results.last_score


def ranking_report(state: SweepState, trial: Trial) -> Metrics:
    """The report that ranks a trial: its last, or its best, as the spec's `score` says."""
    return trial.results.best if state.rules.objective.ranks_by_best else trial.results.last


def violations(state: SweepState, trial: Trial) -> tuple[float | None, ...]:
    """A trial's distance from satisfying each constraint: 0 or less, it does; None: it cannot be told."""
    report = ranking_report(state, trial)
    return tuple(constraint.violation(report) for constraint in state.rules.objective.constraints)


def violation(state: SweepState, report: Metrics) -> float:
    """A report's distance from satisfying all constraints: 0, it does; infinite: it cannot be told."""
    total = 0.0
    for constraint in state.rules.objective.constraints:
        distance = constraint.violation(report)
        total += inf if distance is None else max(distance, 0.0)
    return total


def other_values(state: SweepState, trial: Trial) -> tuple[float | None, ...]:
    """A trial's values of the metrics after the first, in the report of its score; None: it has none."""
    objective = state.rules.objective
    if not objective.others:
        return ()
    report = ranking_report(state, trial)
    if as_number(report.get(objective.metric)) is None:
        return (None,) * len(objective.others)
    return tuple(as_number(report.get(name)) for name, _ in objective.others)


def may_be_best(state: SweepState, trial: Trial) -> bool:
    """True if a trial has a value of each metric and satisfies the constraints."""
    if score_of(state, trial) is None:
        return False
    if state.rules.objective.others and None in other_values(state, trial):
        return False
    return not (state.rules.objective.constraints and violation(state, ranking_report(state, trial)))


def told(state: SweepState, trial: Trial) -> Told | None:
    """The result of a trial for the searcher; None: nothing yet.

    Of one that continued after its end, what was true at that; of one that has paused, what was true when it
    did.
    """
    if trial.continued.told is not None:
        return trial.continued.told
    end: ToldEnd | None = _TOLD_AS.get(trial.state)
    if end == "failed" and _failed_by_config(trial):
        end = "infeasible"
    return state.search.paused.get(trial.number) if end is None else told_at(state, trial, end)


def _failed_by_config(trial: Trial) -> bool:
    """True if a failed trial did so by its config: by its attempts since it was last run again."""
    attempts = trial.attempts[trial.continued.pardoned :]
    if not attempts:
        return False
    *before, last = attempts
    earlier = sum(attempt.kind == "user_error" and attempt.end == "retried" for attempt in before)
    return is_by_config(last.failure, last.kind, earlier, trial.results.reports)


def told_at(state: SweepState, trial: Trial, end: ToldEnd) -> Told:
    """The facts for the searcher about a trial that ends or pauses now.

    No value, where its results are those of another config, or where it has not reported what the constraints
    name, or one of several metrics: no number would be true of it.
    """
    value = score_of(state, trial)
    if value is None or trial.ancestry.suggested is not None:
        return Told(end=end, value=None)
    rule, objective = state.rules.search.cost, state.rules.objective
    cost = cost_of(trial.results.last, trial.attempts, rule) if rule is not None else None
    if not (objective.constraints or objective.others):
        return Told(end=end, value=value, cost=cost)
    found, beside = violations(state, trial), other_values(state, trial)
    known = tuple(each for each in found if each is not None)
    others = tuple(each for each in beside if each is not None)
    is_known = (len(known), len(others)) == (len(found), len(beside))
    if not is_known:
        return Told(end=end, value=None)
    return Told(end=end, value=value, violations=known, others=others, cost=cost)


def tell_search(number: int, known: Told) -> TellSearch:
    """The command that tells it."""
    return TellSearch(
        trial=number,
        value=known.value,
        end=known.end,
        violations=known.violations,
        others=known.others,
        cost=known.cost,
    )


def cost_of(last: Metrics, attempts: Iterable[Ran], rule: CostRule) -> float | None:
    """The cost of a trial, by its last report; else, if it is its time, the time that its attempts ran.

    None where that is not known: the end of an attempt that was lost is unknown.
    """
    cost = as_number(last.get(rule.name))
    if cost is None and rule.name == TRIAL_TIME:
        cost = _ran_s(attempts)
    if cost is None or not rule.per:
        return cost
    time = as_number(last.get(rule.per))
    return cost / time if time is not None and time > 0.0 else None


def _ran_s(attempts: Iterable[Ran]) -> float | None:
    total = 0.0
    for attempt in attempts:
        if attempt.started_at is None:
            continue
        if attempt.ended_at is None or attempt.end == "lost":
            return None
        total += attempt.ended_at - attempt.started_at
    return total


def is_better(state: SweepState, score: float, other: float | None) -> bool:
    """True if `score` beats `other`, strictly."""
    if other is None:
        return True
    return score > other if state.rules.objective.is_max else score < other


def is_better_report(state: SweepState, trial: Trial, score: float, report: Metrics) -> bool:
    """True if a report of a trial, with this score, beats its best one so far."""
    results = trial.results
    if state.rules.objective.constraints and results.best_score is not None:
        now, before = violation(state, report), violation(state, results.best)
        if not now or not before:
            return is_better(state, score, results.best_score) if now == before else not now
    return is_better(state, score, results.best_score)


def larger_scales(state: SweepState, trial: Trial) -> int:
    """The number of the sweep's scales that are larger than the trial's."""
    scales = state.rules.objective.scales
    if not scales:
        return 0
    found = place_of(trial.config, scales)
    return len(scales) - 1 - (-1 if found is None else found)


def place(state: SweepState, trial: Trial) -> Place:
    """Sorts trials, the best first: those that satisfy the constraints by score, the others by distance.

    Those of a larger scale come first.
    """
    objective, below = state.rules.objective, larger_scales(state, trial)
    distance = violation(state, ranking_report(state, trial)) if objective.constraints else 0.0
    sign = -1.0 if objective.is_max else 1.0
    score = sign * (score_of(state, trial) or 0.0)
    if not objective.others:
        return below, distance > 0.0, distance, (score,), trial.number
    others = other_values(state, trial)
    if None in others:
        distance = inf
    signs = (sign for _, sign in objective.others)
    rest = (sign * (value or 0.0) for sign, value in zip(signs, others, strict=True))
    return below, distance > 0.0, distance, (score, *rest), trial.number


def best_of(state: SweepState, trials: Iterable[Trial]) -> Trial | None:
    """The best trial, of those that may be; the lower number where two are equal."""
    candidates = (trial for trial in trials if may_be_best(state, trial))
    return min(candidates, key=lambda trial: place(state, trial), default=None)


def consider_best(state: SweepState, trial: Trial) -> None:
    """Remember a trial that has ended, and did not fail, if it is the best of these."""
    objective, best = state.rules.objective, state.ranking.best_ended
    score = trial.results.best_score if objective.ranks_by_best else trial.results.last_score
    if score is None:
        return
    if best is not None and not (objective.others or objective.scales):
        # As `_is_ahead` has it; nearly every trial ends here.
        known = score_of(state, state.trials[best])
        if known is not None and (score < known if objective.is_max else score > known):
            return
    if may_be_best(state, trial) and (best is None or _is_ahead(state, trial, state.trials[best])):
        state.ranking.best_ended = trial.number


def _is_ahead(state: SweepState, trial: Trial, other: Trial) -> bool:
    """True if a trial is better than another, of two that may be the best: as their places are, sooner."""
    score, known = score_of(state, trial), score_of(state, other)
    assert score is not None, "it may be the best"
    if state.rules.objective.scales or (state.rules.objective.others and score == known):
        return place(state, trial) < place(state, other)
    return is_better(state, score, known) or (score == known and trial.number < other.number)


def ranked(state: SweepState) -> list[Trial]:
    """All trials that have a score and did not fail, best first; those that break constraints come last."""
    scored = [t for t in state.trials.values() if t.state != "failed" and score_of(state, t) is not None]
    return sorted(scored, key=lambda trial: place(state, trial))


def first_ranked(state: SweepState) -> Trial | None:
    """The first of `ranked`."""
    scored = (t for t in state.trials.values() if t.state != "failed" and score_of(state, t) is not None)
    return min(scored, key=lambda trial: place(state, trial), default=None)


def best_ranked(state: SweepState) -> Trial | None:
    """The best trial whose score stands; None where there is none."""
    number = state.ranking.best_ended
    if number is None:
        return None
    best = state.trials[number]
    if is_standing(best.state, state.end.status):
        return best
    return best_of(state, (t for t in state.trials.values() if is_standing(t.state, state.end.status)))


def ahead_of_all(state: SweepState) -> Trial | None:
    """The best of the trials that have not ended; costs as much as there are of them."""
    return best_of(state, (state.trials[number] for number in state.line.active))


def trial_time(state: SweepState, trial: Trial) -> float | None:
    """The progress of a trial, in the scheduler's unit of time."""
    return as_number(trial.results.last.get(state.rules.objective.time_attr))


def as_number(value: JsonValue) -> float | None:
    """A finite number as float, true as 1; None for anything else (non-finite numbers travel as strings)."""
    if not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None
