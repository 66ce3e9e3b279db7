"""Failures of trials whose last report lacks a number that the spec ranks or constrains by."""

from __future__ import annotations

from raysweep.core.handlers.reports import NON_FINITE
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.core.views.scores import as_number, other_values, ranking_report
from raysweep.core.vocabulary.failures import Failure

NO_METRIC = "MetricNeverReported"
NO_CONSTRAINED = "ConstraintMetricNotReported"
NO_OTHER = "OtherMetricNotReported"
NOT_BESIDE = {NO_CONSTRAINED: "constraints", NO_OTHER: "metric"}
"""Other values that a report can lack, and the field of the spec that names each."""


def non_finite(metric: str) -> Failure:
    """The failure of a trial that reported NaN or infinity."""
    message = f"metric {metric!r} was NaN or infinite; set failure.non_finite: ignore to continue"
    return Failure(origin="metric", type="NonFiniteMetric", message=message)


def missing_score(state: SweepState, trial: Trial, *, is_cut_short: bool) -> Failure:
    """The failure of a trial that is done and has no score."""
    results = trial.results
    metric = state.spec.metric
    value = results.last.get(metric)
    if isinstance(value, str) and value in NON_FINITE:
        message = f"metric {metric!r} was never a finite number"
        return Failure(origin="metric", type="NonFiniteMetric", message=message)
    if metric in results.last:
        problem = f"{metric!r} was reported as {value!r:.80} by trial {trial.number}: it must be a number"
    elif results.reports > (results.overrun if is_cut_short else 0):
        seen = ", ".join(map(repr, state.reports.keys))
        problem = f"{metric!r} was never reported by trial {trial.number}; the trainable reports {seen}"
        if state.spec.evaluate is not None:
            problem += ", and no evaluation of its checkpoints gave it (see the notes)"
    elif is_cut_short:
        limit = state.rules.limits.trial_time_s
        problem = f"{metric!r} was not reported by trial {trial.number} within stop.trial_time_s={limit:g}"
        return Failure(origin="exception", type="TrialTimeLimit", message=problem)
    else:
        problem = f"{metric!r} was never reported by trial {trial.number}; "
        problem += "the trainable returned without reporting anything"
    return Failure(origin="exception", type=NO_METRIC, message=problem)


def missing_other(state: SweepState, trial: Trial) -> Failure | None:
    """The failure of a trial that is done and lacks another metric, or a constraint's; None: it has all."""
    return _missing_metric(state, trial) or _missing_constraint(state, trial)


def _missing_metric(state: SweepState, trial: Trial) -> Failure | None:
    """The failure of a trial that is done and lacks one of several metrics; None: it has all."""
    rules = state.rules
    if not rules.objective.others or None not in other_values(state, trial):
        return None
    report, unreported = (
        trial.results.last,
        (rules.objective.metric, *(name for name, _ in rules.objective.others)),
    )
    name = next(name for name in unreported if as_number(report.get(name)) is None)
    value = report.get(name)
    if isinstance(value, str) and value in NON_FINITE:
        return non_finite(name) if rules.limits.fails_on_non_finite else None
    has = f"{name!r} as {value!r:.80}, which is not a number" if name in report else f"no {name!r}"
    message = f"the last report of trial {trial.number} has {has}, which metric names; it has"
    return Failure(origin="exception", type=NO_OTHER, message=f"{message} {', '.join(map(repr, report))}")


def _missing_constraint(state: SweepState, trial: Trial) -> Failure | None:
    """The failure of a trial that is done and lacks a metric of a constraint; None: it has all."""
    report, which = ranking_report(state, trial), "best" if state.rules.objective.ranks_by_best else "last"
    for constraint in state.rules.objective.constraints:
        name = constraint.missing(report)
        if name is not None:
            seen = ", ".join(map(repr, report))
            message = f"the {which} report of trial {trial.number} has no {name!r}, which the constraint"
            message += f" {constraint.text!r} names; it has {seen}"
            return Failure(origin="exception", type=NO_CONSTRAINED, message=message)
    return None
