"""Configs that run several times: their means, which is the best, and which are dropped.

With `repeat`, config n is that of the trials from n * times on. It counts by the mean of the repeats that
completed. First come configs of which all did; then those that the sweep's end left incomplete, the more
complete the sooner; then those that were dropped; and at last those of which a repeat failed.

With a race, a config is dropped once its repeats are worse than those of the best whole config with the same
seeds, by Wilcoxon's signed-rank test: its trials are stopped, and what is suggested of it later never starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Final, Literal

from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.views.scores import larger_scales, score_of
from raysweep.core.views.wilcoxon import p_greater
from raysweep.numeric.means import mean_of, sum_of_squares
from raysweep.schedulers import Stop

GroupState = Literal["completed", "partial", "dropped", "failed"]
_RANKS: Final[dict[GroupState, int]] = {"completed": 0, "partial": 1, "dropped": 2, "failed": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The repeats of one config: `scores` are those that completed, by repeat."""

    number: int
    state: GroupState
    scores: dict[int, float]
    trials: tuple[Trial, ...]

    @property
    def mean(self) -> float:
        """Of the scores; there is at least one."""
        return mean_of(tuple(self.scores.values()))

    @property
    def std(self) -> float | None:
        """The standard deviation of the scores, as of a sample; None for one."""
        if len(self.scores) < 2:
            return None
        mean = self.mean
        return sqrt(sum_of_squares(each - mean for each in self.scores.values()) / (len(self.scores) - 1))


def group_of(state: SweepState, number: int) -> Group:
    """The repeats of config `number` as they are now."""
    times = state.rules.search.repeats
    numbers = range(number * times, min((number + 1) * times, state.search.suggested))
    trials = tuple(state.trials[each] for each in numbers)
    scores: dict[int, float] = {}
    for repeat, trial in enumerate(trials):
        score = score_of(state, trial)
        if trial.state == "completed" and score is not None:
            scores[repeat] = score
    return Group(number=number, state=_state_of(trials, len(scores) == times), scores=scores, trials=trials)


def _state_of(trials: tuple[Trial, ...], is_whole: bool) -> GroupState:
    states = {trial.state for trial in trials}
    if "failed" in states:
        return "failed"
    return "dropped" if "stopped" in states else "completed" if is_whole else "partial"


def ranked_groups(state: SweepState) -> list[Group]:
    """The configs of which a repeat has completed, the best first."""
    times = state.rules.search.repeats
    count = -(-state.search.suggested // times)
    groups = [group for number in range(count) if (group := group_of(state, number)).scores]
    sign = -1.0 if state.rules.objective.is_max else 1.0
    return sorted(
        groups,
        key=lambda each: (
            larger_scales(state, each.trials[0]),
            _RANKS[each.state],
            -len(each.scores),
            sign * each.mean,
            each.number,
        ),
    )


def best_trial(state: SweepState, group: Group) -> Trial:
    """The repeat with the best score; the first of equal ones."""
    sign = -1.0 if state.rules.objective.is_max else 1.0
    repeat = min(group.scores, key=lambda each: (sign * group.scores[each], each))
    return group.trials[repeat]


def note_completed(state: SweepState, trial: Trial) -> None:
    """A repeat has completed: drop what it shows to be worse."""
    race, number = state.spec.repeat, trial.number // state.rules.search.repeats
    if race is None or race.race is None:
        return
    group = group_of(state, number)
    if group.state == "completed" and _leads(state, group):
        state.ranking.best_group = number
        for other in dict.fromkeys(each // state.rules.search.repeats for each in state.line.active):
            _drop_if_worse(state, other)
    else:
        _drop_if_worse(state, number)


def note_suggested(state: SweepState, first: int, count: int) -> None:
    """Trials have been suggested: those of a config that was dropped never start."""
    if state.ranking.best_group is None:
        return
    times = state.rules.search.repeats
    for number in dict.fromkeys(each // times for each in range(first, first + count)):
        _drop_if_worse(state, number)


def _leads(state: SweepState, group: Group) -> bool:
    if state.ranking.best_group is None:
        return True
    sign = -1.0 if state.rules.objective.is_max else 1.0
    return sign * group.mean < sign * group_of(state, state.ranking.best_group).mean


def _drop_if_worse(state: SweepState, number: int) -> None:
    group = group_of(state, number)
    if group.state == "dropped" or _is_worse(state, group):
        stopped = (trial.number for trial in group.trials if trial.number in state.line.active)
        state.work.undecided.extend((each, Stop()) for each in stopped)


def _is_worse(state: SweepState, group: Group) -> bool:
    race, best = state.spec.repeat, state.ranking.best_group
    if race is None or race.race is None or best is None or best == group.number:
        return False
    others = group_of(state, best).scores
    sign = -1.0 if state.rules.objective.is_max else 1.0
    differences = [sign * (score - others[repeat]) for repeat, score in group.scores.items()]
    if len(differences) < 2 or mean_of(differences) <= 0:
        return False
    return p_greater(differences) < race.race.p_threshold
