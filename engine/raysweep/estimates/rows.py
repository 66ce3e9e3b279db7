"""The reports of trials in a play, and when something is decided about them."""

from __future__ import annotations

from math import isnan

from pydantic import JsonValue

from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.schedulers.base import TRAINING_ITERATION


def own_step_s(trial: Trial) -> float | None:
    """Seconds from report to report in its last attempt, if that had this config."""
    last = trial.attempts[-1] if trial.attempts else None
    if last is None or last.started_at is None or last.config is not None or not trial.results.reports:
        return None
    began = [each for each in trial.attempts if each.started_at is not None and each.config is None]
    ran_s = sum(each.ended_at - (each.started_at or 0.0) for each in began)
    return ran_s / trial.results.reports or None


class Rows:
    """Reports with all that the sweep's rules look at: the metric is drawn, the rest is as others had it."""

    def __init__(self, state: SweepState) -> None:
        spec = state.spec
        time = state.scheduler.time_attr
        limited = [name for name, *_ in spec.stop.trial_limits]
        names = [*spec.others, time, *limited]
        last = next(
            (
                trial
                for trial in reversed(state.trials.values())
                if trial.results.last and trial.results.iteration
            ),
            None,
        )
        self._others: list[tuple[float, bool]] = []
        keys = [spec.metric or "value"]
        for name in dict.fromkeys(names):
            if name in (TRAINING_ITERATION, spec.metric):
                continue
            value = last.results.last.get(name) if last is not None else None
            number = float(value) if isinstance(value, int | float) and not isnan(value) else 1.0
            grows = name == time or name in limited
            if grows and last is not None and value is not None:
                number /= last.results.iteration
            keys.append(name)
            self._others.append((number, grows))
        self.keys = tuple(keys)

    def make(self, report: int, value: float) -> list[JsonValue]:
        """The row of report number `report`, from 0."""
        rest = (each * (report + 1) if grows else each for each, grows in self._others)
        return [value, *rest]


def rungs_of(state: SweepState) -> tuple[float, ...] | None:
    """The reports at which something is decided; None: at any of them."""
    spec, scheduler = state.spec, state.scheduler
    if state.rules.is_plain:
        limit = scheduler.max_t
        return (limit,) if limit is not None and scheduler.time_attr == TRAINING_ITERATION else ()
    has_rules = spec.stop.trial or spec.stop.trial_plateau or spec.stop.trial_patience
    if has_rules or spec.stop.trial_wilcoxon or spec.stop.trial_if or spec.stop.target is not None:
        return None
    known = spec.scheduler.options.rung_times()
    if known.interval or not known.times or known.attr != TRAINING_ITERATION:
        return None
    last = (known.max_t,) if known.max_t is not None else ()
    return tuple(sorted({*known.times, *last}))
