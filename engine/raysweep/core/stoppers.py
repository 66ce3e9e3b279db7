"""Whether a trial has stopped getting anywhere: its own plateau, and its own patience.

Both look at reports by their place on the way to the present result, not by their order: a trial that goes on
from a checkpoint makes some of them again, which must not count twice.
"""

from __future__ import annotations

from math import sqrt

from raysweep.core.rules import Rules
from raysweep.core.scores import as_number
from raysweep.core.trial import Metrics, Trial
from raysweep.spec.policies import TrialPatience, TrialPlateau


def has_settled(rules: Rules, trial: Trial, metrics: Metrics) -> bool:
    """Take a report into account: whether it is the trial's last, as nothing changes any more."""
    plateau, patience = rules.trial_plateau, rules.trial_patience
    is_flat = plateau is not None and _is_flat(plateau, rules, trial, metrics)
    is_over = patience is not None and _is_over(patience, rules, trial, metrics)
    return is_flat or is_over


def _is_flat(plateau: TrialPlateau, rules: Rules, trial: Trial, metrics: Metrics) -> bool:
    value = as_number(metrics.get(plateau.metric or rules.metric))
    if value is None:
        return False
    before = tuple(each for each in trial.recent if each[0] < trial.iteration)
    trial.recent = (*before, (trial.iteration, value))[-plateau.num_results :]
    if trial.iteration < plateau.grace_period or len(trial.recent) < plateau.num_results:
        return False
    threshold = plateau.metric_threshold
    if threshold is not None:
        is_max = (plateau.mode or ("max" if rules.is_max else "min")) == "max"
        if value < threshold if is_max else value > threshold:
            return False
    values = [each[1] for each in trial.recent]
    mean = sum(values) / len(values)
    return sqrt(sum((each - mean) ** 2 for each in values) / len(values)) < plateau.std


def _is_over(patience: TrialPatience, rules: Rules, trial: Trial, metrics: Metrics) -> bool:
    value = as_number(metrics.get(rules.metric))
    if value is None:
        return False
    if trial.improved is None or _gain(rules, trial.improved[1], value) > patience.min_improvement:
        trial.improved = (trial.iteration, value)
    since = trial.iteration - trial.improved[0]
    return since >= patience.reports and trial.iteration >= patience.grace_period


def _gain(rules: Rules, before: float, value: float) -> float:
    return value - before if rules.is_max else before - value
