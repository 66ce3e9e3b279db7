"""The law of a sweep of several scales, for charts: each parameter's optimum, and its band, by the scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import SpecError
from raysweep.outcome import TrainOutcome, TrialOutcome
from raysweep.runs.reading.law import law_of
from raysweep.runs.reading.listing import trainings_of
from raysweep.runs.reading.whole_sweep import WholeSweep
from raysweep.space.domains import Float, Integer
from raysweep.space.scales import show_scale

if TYPE_CHECKING:
    from raysweep.transfer.law import Carried, Law

POINTS: Final = 25
"""A line has so many."""
BEYOND: Final = 4.0
"""Without a training, the law is drawn to so many times the largest scale."""
MAX_PARAMS: Final = 12
MAX_TRIALS: Final = 400

Scale = Mapping[str, float]


def law_panel(sweep: WholeSweep) -> dict[str, Any] | None:
    """None: the sweep has no scales, or has not ended. The cost is that of a fit, linear in trials."""
    outcome = sweep.outcome
    if outcome is None or not outcome.metric or len(sweep.spec.full_scales) < 2:
        return None
    try:
        law = law_of(sweep.spec, outcome)
    except SpecError as error:
        return {"problem": str(error)}
    training = _training(sweep, law)
    target = _target(law, training)
    said = law.at(target)
    name = _across(law, target)
    lines = _lines(law, target)
    return {
        "problem": "",
        "scale": name,
        "target": show_scale(target) if training is not None else "",
        "at": target[name],
        "verdict": said.verdict if training is not None else "",
        "reasons": said.reasons if training is not None else [],
        "score": _score(said, outcome.metric, training) if training is not None else None,
        "parameters": [
            {
                "name": parameter,
                "log": _is_log(sweep, parameter),
                "line": [[scale[name], *bands[parameter]] for scale, bands in lines if parameter in bands],
                "optima": [
                    [scale[name], optimum]
                    for scale in law.scales
                    if (optimum := law.optimum_at(scale).get(parameter)) is not None
                ],
                "best": _best(sweep.trials, outcome.mode, parameter, name),
                "carried": _carried(training, parameter),
            }
            for parameter in list(law.bands_at(target))[:MAX_PARAMS]
        ],
    }


def _training(sweep: WholeSweep, law: Law) -> TrainOutcome | None:
    """The newest of the sweep's trainings at a scale of the law's names."""
    folder = sweep.folder
    for found in trainings_of(folder.store, folder.sweep_id):
        if found.carried is not None and set(law.names) <= {*found.carried.scale, *found.carried.proxy}:
            return found
    return None


def _target(law: Law, training: TrainOutcome | None) -> dict[str, float]:
    largest = law.scales[-1]
    if training is None or training.carried is None:
        return {name: BEYOND * size for name, size in largest.items()}
    there = {**training.carried.proxy, **training.carried.scale}
    return {name: float(there[name]) for name in law.names}


def _across(law: Law, target: Scale) -> str:
    """The name of the scale that grows the most to the target."""
    smallest = law.scales[0]
    return max(law.names, key=lambda name: abs(math.log(target[name] / smallest[name])))


def _lines(law: Law, target: Scale) -> list[tuple[Scale, dict[str, tuple[float, float, float]]]]:
    """The optima from the smallest scale to the target, by equal steps of the logarithms."""
    smallest = law.scales[0]
    found: list[tuple[Scale, dict[str, tuple[float, float, float]]]] = []
    for step in range(POINTS):
        part = step / (POINTS - 1)
        scale = {name: smallest[name] ** (1 - part) * target[name] ** part for name in law.names}
        found.append((scale, law.bands_at(scale)))
    return found


def _is_log(sweep: WholeSweep, name: str) -> bool:
    for path, domain in sweep.spec.parameter_space.leaves:
        if ".".join(path) == name:
            return isinstance(domain, Float | Integer) and domain.log
    return False


def _best(trials: Sequence[TrialOutcome], mode: str, name: str, scale: str) -> list[list[float]]:
    """The better half of the trials of each scale: the scale, and the parameter's value."""
    by_scale: dict[float, list[TrialOutcome]] = {}
    for trial in trials:
        if trial.score is not None and math.isfinite(trial.score) and trial.state == "completed":
            size = trial.scale.get(scale)
            if size is not None:
                by_scale.setdefault(float(size), []).append(trial)
    found: list[list[float]] = []
    for size, group in sorted(by_scale.items()):
        group.sort(key=lambda trial: trial.score or 0.0, reverse=mode == "max")
        values = (_value(trial.config, name) for trial in group[: (len(group) + 1) // 2])
        found += [[size, value] for value in values if value is not None]
    return found[:MAX_TRIALS]


def _value(config: Mapping[str, Any], name: str) -> float | None:
    found: Any = config
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return float(found) if is_number and math.isfinite(found) else None


def _carried(training: TrainOutcome | None, name: str) -> float | None:
    return _value(training.config, name) if training is not None else None


def _score(said: Carried, metric: str, training: TrainOutcome) -> dict[str, Any]:
    predicted = training.predicted
    if predicted is None:
        return {
            "metric": metric,
            "score": said.score,
            "low": said.score_low,
            "high": said.score_high,
            "got": None,
        }
    return {
        "metric": predicted.metric,
        "score": predicted.score,
        "low": predicted.low,
        "high": predicted.high,
        "got": predicted.got,
    }
