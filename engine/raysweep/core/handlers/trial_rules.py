"""Ends of trials that have done enough: by their plateau or patience, a user's function, the best trial.

All look at reports by their place on the way to the present result, not by their order: a trial that
continues from a checkpoint makes some of them again, which must not count twice.
"""

from __future__ import annotations

from math import sqrt
from typing import TypeVar

from raysweep.core.state.compiled_spec import Rules
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import Metrics
from raysweep.core.views.scores import as_number, is_better, may_be_best, score_of
from raysweep.core.views.wilcoxon import p_greater
from raysweep.core.vocabulary.stop_reasons import StopReason
from raysweep.numeric.means import mean_of, sum_of_squares
from raysweep.specs.policies import TrialPatience, TrialPlateau, TrialWilcoxon

EntryT = TypeVar("EntryT")


def record(state: SweepState, trial: Trial, metrics: Metrics, value: float | None) -> None:
    """Keep a report where a stopper looks at more than one; in place of those that it makes again."""
    rules = state.rules
    if trial.continued.max_t is not None:
        return
    if rules.stoppers.wilcoxon is not None and value is not None:
        _append(state.reports.curves.setdefault(trial.number, []), trial.results.iteration, value)
    if rules.stoppers.judge is not None:
        _append(state.reports.histories.setdefault(trial.number, []), trial.results.iteration, metrics)


def _append(entries: list[tuple[int, EntryT]], iteration: int, entry: EntryT) -> None:
    while entries and entries[-1][0] >= iteration:
        entries.pop()
    entries.append((iteration, entry))


def judge(state: SweepState, trial: Trial, metrics: Metrics) -> StopReason | None:
    """Take a report into account that was recorded: why it is the trial's last; None: it continues.

    A trial that has settled is complete, one that is worse than the best has been stopped.
    """
    rules = state.rules
    if has_settled(rules, trial, metrics):
        return "limit"
    if rules.stoppers.judge is not None:
        history = [metrics for _, metrics in state.reports.histories.get(trial.number, ())]
        if rules.stoppers.judge.ends(trial.number, history):
            return "limit"
    wilcoxon = rules.stoppers.wilcoxon
    return "scheduler" if wilcoxon is not None and _is_worse(wilcoxon, state, trial) else None


def _is_worse(wilcoxon: TrialWilcoxon, state: SweepState, trial: Trial) -> bool:
    """True if a trial's reports are worse than those of the best one, and its mean is.

    Decided as Optuna's WilcoxonPruner does. A report without a number is left out.
    """
    if state.ranking.reference is None:
        return False
    sign = -1.0 if state.rules.objective.is_max else 1.0
    own, best = (
        dict(state.reports.curves.get(trial.number, ())),
        dict(state.reports.curves.get(state.ranking.reference, ())),
    )
    differences = [sign * (value - best[step]) for step, value in own.items() if step in best]
    if len(differences) < max(2, wilcoxon.n_startup_steps):
        return False
    if sign * _mean(best) >= sign * _mean(own):
        return False
    return p_greater(differences) < wilcoxon.p_threshold


def _mean(curve: dict[int, float]) -> float:
    return mean_of(tuple(curve.values()))


def conclude(state: SweepState, trial: Trial) -> None:
    """A trial has ended: nothing of it is kept but what others are compared with.

    A failed trial may be retried, and one that the sweep's end cut may continue, with their reports.
    """
    if state.rules.stoppers.wilcoxon is not None and trial.state == "completed":
        _consider_reference(state, trial)
    if trial.state in ("completed", "stopped"):
        state.reports.histories.pop(trial.number, None)
        if trial.number != state.ranking.reference:
            state.reports.curves.pop(trial.number, None)


def _consider_reference(state: SweepState, trial: Trial) -> None:
    score, known = score_of(state, trial), state.ranking.reference
    if score is None or not may_be_best(state, trial):
        return
    if known is None or is_better(state, score, score_of(state, state.trials[known])):
        state.ranking.reference = trial.number
        if known is not None:
            state.reports.curves.pop(known, None)


def forget(state: SweepState, number: int) -> None:
    """The trial continues with another config or checkpoint: what it reported before was not its own."""
    state.reports.histories.pop(number, None)
    state.reports.curves.pop(number, None)


def has_settled(rules: Rules, trial: Trial, metrics: Metrics) -> bool:
    """Take a report into account: whether it is the trial's last, as nothing changes any more."""
    plateau, patience = rules.stoppers.plateau, rules.stoppers.patience
    is_flat = plateau is not None and _is_flat(plateau, rules, trial, metrics)
    is_over = patience is not None and _is_over(patience, rules, trial, metrics)
    return is_flat or is_over


def _is_flat(plateau: TrialPlateau, rules: Rules, trial: Trial, metrics: Metrics) -> bool:
    results = trial.results
    value = as_number(metrics.get(plateau.metric or rules.objective.metric))
    if value is None:
        return False
    before = tuple(each for each in results.recent if each[0] < results.iteration)
    results.recent = (*before, (results.iteration, value))[-plateau.num_results :]
    if results.iteration < plateau.grace_period or len(results.recent) < plateau.num_results:
        return False
    threshold = plateau.metric_threshold
    if threshold is not None:
        is_max = (plateau.mode or ("max" if rules.objective.is_max else "min")) == "max"
        if value < threshold if is_max else value > threshold:
            return False
    values = [each[1] for each in results.recent]
    mean = mean_of(values)
    return sqrt(sum_of_squares(each - mean for each in values) / len(values)) < plateau.std


def _is_over(patience: TrialPatience, rules: Rules, trial: Trial, metrics: Metrics) -> bool:
    results = trial.results
    value = as_number(metrics.get(rules.objective.metric))
    if value is None:
        return False
    if results.improved is None or _gain(rules, results.improved[1], value) > patience.min_improvement:
        results.improved = (results.iteration, value)
    since = results.iteration - results.improved[0]
    return since >= patience.reports and results.iteration >= patience.grace_period


def _gain(rules: Rules, before: float, value: float) -> float:
    return value - before if rules.objective.is_max else before - value
