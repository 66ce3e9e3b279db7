"""The trials that a law is fitted to: read, checked, and told apart by how they ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raysweep.documents.json_values import unwrap_number
from raysweep.documents.mode import MODES, Mode
from raysweep.documents.validation import did_you_mean, show
from raysweep.errors import SpecError

KEYS: Final = ("scale", "config", "score", "step", "status", "night")
EXAMPLE: Final = 'write {"scale": {"rows": 20000}, "config": {...}, "score": 0.71}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One trial that says something about its config.

    `scale`: the values of the scales, in the order of their names. `score`: less is better; infinite where
    the trial diverged. `progress`: which part of its scale's steps it ran; below 1, it was stopped early.
    `night`: how many nights ago.
    """

    scale: tuple[float, ...]
    config: Mapping[str, Any]
    score: float
    progress: float = 1.0
    night: int = 0

    @property
    def has_score(self) -> bool:
        """True if it ended with a number."""
        return math.isfinite(self.score)

    @property
    def size(self) -> float:
        """The product of its scales, as a logarithm."""
        return sum(map(math.log, self.scale))


def read_trials(trials: Iterable[Mapping[str, Any]], mode: Mode) -> tuple[tuple[str, ...], list[Run]]:
    """The names of the scales, and the trials that ran; those without a score (None) are left out.

    Raises:
        SpecError: there is no trial, a scale is missing or not positive, no score of tonight is finite, or
            tonight's trials with finite scores have one scale only.
    """
    if mode not in MODES:
        raise SpecError("mode", f"{show(mode)} is not known here", did_you_mean(str(mode), MODES))
    if isinstance(trials, Mapping | str) or not isinstance(trials, Iterable):
        raise SpecError("trials", f"expected a list of trials, got {show(trials)}", EXAMPLE)
    given = list(trials)
    if not given:
        raise SpecError("trials", "is empty: a law needs trials at two scales or more", EXAMPLE)
    for number, trial in enumerate(given):
        _check(trial, f"trials[{number}]")
    names = tuple(sorted(given[0]["scale"]))
    scales = [_scale(trial["scale"], names, f"trials[{number}].scale") for number, trial in enumerate(given)]
    nights = [_night(trial, f"trials[{number}].night") for number, trial in enumerate(given)]
    longest = _longest(given, list(zip(scales, nights, strict=True)))
    runs = [
        Run(
            scale=scale,
            config=trial["config"],
            score=_score(trial["score"], mode, f"trials[{number}].score"),
            progress=_progress(trial, longest[scale, night]),
            night=night,
        )
        for number, (trial, scale, night) in enumerate(zip(given, scales, nights, strict=True))
        if trial.get("score") is not None
    ]
    _check_scales(names, [run for run in runs if run.night == 0], nights.count(0))
    return names, [run for run in runs if run.progress > 0.0]


def read_scale(given: Any, names: Sequence[str], field: str) -> tuple[float, ...]:
    """The values of a scale that has exactly these names. Raises SpecError."""
    if not isinstance(given, Mapping):
        raise SpecError(field, f"expected a mapping, got {show(given)}", 'write {"rows": 336776}')
    return _scale(given, names, field)


def _check(trial: Any, field: str) -> None:
    if not isinstance(trial, Mapping):
        raise SpecError(field, f"expected a mapping, got {show(trial)}", EXAMPLE)
    for key in trial:
        if key not in KEYS:
            raise SpecError(field, f"unknown field {key!r}", did_you_mean(str(key), KEYS))
    for key in KEYS[:3]:
        if key not in trial:
            raise SpecError(f"{field}.{key}", "is required", EXAMPLE)
    for key in KEYS[:2]:
        if not isinstance(trial[key], Mapping) or not trial[key]:
            raise SpecError(f"{field}.{key}", f"expected names and values, got {show(trial[key])}", EXAMPLE)
    for name in trial["scale"]:
        if not isinstance(name, str):
            raise SpecError(f"{field}.scale", f"the name of a scale is a text, got {show(name)}", EXAMPLE)


def _scale(given: Mapping[str, Any], names: Sequence[str], field: str) -> tuple[float, ...]:
    missing = next((name for name in names if name not in given), None)
    if missing is not None:
        fix = f"give its {missing!r}: all trials and targets of a law have the same names of scales"
        raise SpecError(field, f"has no {missing!r}, got {show(dict(given))}", fix)
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        problem = f"{unknown!r} is not a scale of the trials ({', '.join(names)})"
        raise SpecError(field, problem, did_you_mean(str(unknown), names))
    return tuple(_positive(given[name], f"{field}.{name}") for name in names)


def _positive(value: Any, field: str) -> float:
    found = as_float(value)
    if found is None or not 0 < found < math.inf:
        raise SpecError(field, f"must be a number > 0, got {show(value)}", "give the size, as 20000")
    return found


def _score(value: Any, mode: Mode, field: str) -> float:
    """Less is better; what is not finite diverged."""
    found = as_float(value)
    if found is None:
        raise SpecError(field, f"expected a number or null, got {show(value)}", "give the trial's metric")
    if not math.isfinite(found):
        return math.inf
    return found if mode == "min" else -found


def as_float(value: Any) -> float | None:
    """A number, of NumPy too, as a float, infinite where it is too large for one; None for anything else."""
    value = unwrap_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _night(trial: Mapping[str, Any], field: str) -> int:
    found = trial.get("night", 0)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise SpecError(field, f"expected a whole number >= 0, got {show(found)}", "0 is tonight")
    return found


def _longest(given: Sequence[Mapping[str, Any]], cells: Sequence[Any]) -> dict[Any, float]:
    """By scale and night, the most steps that a trial with a finite score ran."""
    found: dict[Any, float] = dict.fromkeys(cells, 0.0)
    for number, (trial, cell) in enumerate(zip(given, cells, strict=True)):
        if trial.get("step") is not None:
            step, score = _positive(trial["step"], f"trials[{number}].step"), as_float(trial["score"])
            found[cell] = max(found[cell], step if score is not None and math.isfinite(score) else 0.0)
    return found


def _progress(trial: Mapping[str, Any], longest: float) -> float:
    """The part of the steps that a trial ran; 0: it was stopped early, and it is not known when."""
    is_ended = trial.get("status") not in (None, "stopped")
    if trial.get("step") is None or is_ended:
        return 0.0 if trial.get("status") == "stopped" else 1.0
    return min(float(trial["step"]) / longest, 1.0) if longest > 0 else 1.0


def _check_scales(names: Sequence[str], runs: Sequence[Run], count: int) -> None:
    scales = {run.scale for run in runs if run.has_score}
    if not scales:
        problem = f"none of the {count} trials has a finite score"
        raise SpecError("trials", problem, "see in the trials' logs why they failed, and narrow param_space")
    if len(scales) == 1:
        shown = ", ".join(f"{name}={value:g}" for name, value in zip(names, next(iter(scales)), strict=True))
        problem = f"all trials with a score have one scale ({shown}); a law needs two scales or more"
        raise SpecError("trials", problem, "run trials at a second scale, or carry by same or by a rule")
