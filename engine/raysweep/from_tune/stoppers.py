"""Stoppers of Ray Tune as `stop` of a spec, read without importing Ray.

Ray 2.60 keeps what they were given in private attributes; `tests/engine/test_from_tuner.py` notices where one
has moved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from raysweep.documents.code.ray_objects import kind_of
from raysweep.documents.validation import show
from raysweep.from_tune.schedulers import Objection
from raysweep.from_tune.stop_rules import Rule, ends_no_experiment

log = logging.getLogger("raysweep")
# Tune fills it in for functions, too; here it is a field of its own.
_TIME: Final = "time_total_s"
_FIELDS: Final = ("time_budget_s", "trial_time_s", "trial_plateau")
_RULE: Final = "a function of the user's own"
_ALL_FIX: Final = (
    'let stop_all return False; give from_tuner(…, stop={"target": …}) or another limit of the sweep'
)


class Stops(NamedTuple):
    """`stop` as a spec has it, and what of it has no counterpart."""

    fields: dict[str, Any]
    objections: tuple[Objection, ...]
    rules: tuple[Rule, ...]
    """Functions and stoppers of the user's own."""


def read_stop(stop: Any, time_budget_s: Any) -> Stops:
    """The limits of `RunConfig(stop=…)` and `TuneConfig(time_budget_s=…)`; the lower of two limits counts."""
    fields: dict[str, Any] = {} if time_budget_s is None else {"time_budget_s": time_budget_s}
    objections: list[Objection] = []
    rules: list[Rule] = []
    for found in _criteria(stop):
        if isinstance(found, Objection):
            objections.append(found)
        elif found[0] == "trial_plateau":
            objections += _add_plateau(fields, found[1])
        elif found[0] == _RULE:
            rules.append(found[1])
        else:
            name, value = found
            inside = fields if name in _FIELDS else fields.setdefault("trial", {})
            inside[name] = _lower(inside[name], value) if name in inside else value
    return Stops(fields, tuple(objections), tuple(rules))


def _lower(one: Any, other: Any) -> Any:
    """Of two times, one may be a timedelta."""
    return min(one, other, key=lambda time: time.total_seconds() if hasattr(time, "total_seconds") else time)


def _add_plateau(fields: dict[str, Any], plateau: dict[str, Any]) -> Iterator[Objection]:
    if fields.setdefault("trial_plateau", plateau) != plateau:
        fix = 'give from_tuner(…, stop={"trial_plateau": {…}}) with one, and trial_if for the other'
        yield Objection("", "there are two TrialPlateauStoppers, and a spec has one", fix)


def _criteria(stop: Any) -> Iterator[tuple[str, Any] | Objection]:
    if isinstance(stop, Mapping):
        yield from _limits(stop)
        return
    match kind_of(stop):
        case "" | "NoopStopper":
            return
        case "MaximumIterationStopper":
            yield "training_iteration", stop._max_iter
        case "TimeoutStopper":
            yield "time_budget_s", stop._timeout_seconds
        case "TrialPlateauStopper":
            yield "trial_plateau", _plateau(stop)
        case "CombinedStopper":
            for each in stop._stoppers:
                yield from _criteria(each)
        case "ExperimentPlateauStopper":
            problem = "ExperimentPlateauStopper counts reports, and raysweep completed trials"
            fix = f'give from_tuner(…, stop={{"plateau": {{"window": {stop._top}, "min_improvement": …}}}})'
            yield Objection("", problem, fix)
        case kind:
            if callable(stop) and ends_no_experiment(stop):
                yield _RULE, stop
            else:
                yield Objection("", f"a {kind} has a stop_all, which may end the whole sweep", _ALL_FIX)


def _limits(stop: Mapping[str, Any]) -> Iterator[tuple[str, Any] | Objection]:
    for name, value in stop.items():
        if name == "done" and value is True:
            continue  # a trial that says so ends anyway
        if isinstance(value, Mapping):
            log.warning("stop: %r is a mapping, which Tune compares with nothing; name %s/…", name, name)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            fix = 'give from_tuner(…, stop={"trial": {…}}) with numbers'
            yield Objection(name, f"{show(value)} is not a number", fix)
        else:
            yield "trial_time_s" if name == _TIME else name, value


def _plateau(stopper: Any) -> dict[str, Any]:
    plateau = {
        "metric": stopper._metric,
        "std": stopper._std,
        "num_results": stopper._num_results,
        "grace_period": stopper._grace_period,
    }
    # Without a mode, Tune compares nothing with the threshold.
    if stopper._metric_threshold is not None and stopper._mode is not None:
        plateau |= {"metric_threshold": stopper._metric_threshold, "mode": stopper._mode}
    return plateau
