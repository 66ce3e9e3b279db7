"""The config of a sweep's trial, carried to the scale of its training: by rules, by the law, or as it is.

Everything here follows from the stored sweep and the training's spec: the same call gives the same config.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raysweep.documents.mode import Mode
from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.replay import newest_spec
from raysweep.runs.reading.history import reports_of
from raysweep.runs.reading.law import law_of
from raysweep.space.parsed import Space
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.carried import CarriedConfig
from raysweep.specs.checks.carried import check_carried, copied_line
from raysweep.storage.objects.opening import open_store
from raysweep.transfer.rules import LAW, SAME, carry, put
from raysweep.transfer.trials import as_float
from raysweep.transfer.watched import curve_of, steps_of

if TYPE_CHECKING:
    from raysweep.transfer.law import Carried, Law

log = logging.getLogger("raysweep")


def stored_spec(outcome: SweepOutcome) -> SweepSpec:
    """The spec of a sweep by its outcome. Raises: StorageError, SpecError: There is none."""
    folder = _folder_of(outcome)
    record = folder.read_spec()
    if record is None:
        problem = f"{outcome.uri} has no spec, so nothing can be carried from it"
        raise SpecError("transfer", problem, "check the storage, or leave transfer out")
    return newest_spec(folder, record)


def _folder_of(outcome: SweepOutcome) -> SweepFolder:
    storage, _, sweep_id = outcome.uri.rpartition("/")
    return SweepFolder(open_store(storage), sweep_id)


def carried_config(train: TrainSpec, outcome: SweepOutcome, best: TrialOutcome) -> CarriedConfig | None:
    """The config of a trial at the scale of a training; None: the training names neither scale nor transfer.

    Args:
        train: The training's spec.
        outcome: The sweep's, with all its trials.
        best: The trial that is handed on.

    Raises:
        SpecError: A rule cannot be computed or leaves the domain, or a parameter or scale is not there.
        StorageError: The sweep's spec cannot be read.
    """
    if not (train.scale or train.transfer):
        return None
    sweep = stored_spec(outcome)
    check_carried(sweep, train)
    if line := copied_line(sweep, train):
        log.warning("%s", line)
    proxy = proxy_of(sweep, best)
    target = {**proxy, **train.full_scale}
    by_law, there = laws_in(train.transfer), within(sweep, target)
    law = law_of(sweep, outcome) if by_law else None
    said = law.at(there) if law is not None else None
    found = config_at(target, train.transfer, sweep, best, said)
    facts: dict[str, Any] = {}
    if law is not None and said is not None:
        whole = {**found, **_own(train, sweep.parameter_space)}
        facts = facts_of(scored(law, said, there, whole), by_law, sweep, outcome)
        if train.stop.below_prediction is not None:
            facts |= watched_curve(sweep, outcome)
    return CarriedConfig(
        proxy=best.scale,
        scale=train.scale,
        best=best.config,
        config={**found, **train.scale, **train.config},
        transfer={name: how for name, how in train.transfer.items() if how != SAME},
        **facts,
    )


def laws_in(transfer: Mapping[str, str]) -> list[str]:
    """The parameters that are carried by the law."""
    return [name for name, how in transfer.items() if how == LAW]


def config_at(
    target: Mapping[str, float],
    transfer: Mapping[str, str],
    sweep: SweepSpec,
    best: TrialOutcome,
    said: Carried | None,
) -> dict[str, Any]:
    """The config of a trial at another scale, by rules and, where it carries, by what the law has said.

    Without the values of scales. Raises SpecError as `carry`.
    """
    space, config = sweep.parameter_space, copied_config(best)
    found = carry(config, transfer, space=space, scale=target, proxy=proxy_of(sweep, best))
    if said is None or said.verdict != "carries":
        return found
    paths = {".".join(path): path for path, _ in space.leaves}
    for name in laws_in(transfer):
        put(found, paths[name], space.value_at(said.config, paths[name]))
    return found


def copied_config(best: TrialOutcome) -> dict[str, Any]:
    """The config of a trial without the values of its scale."""
    return {name: value for name, value in best.config.items() if name not in best.scale}


def within(sweep: SweepSpec, scale: Mapping[str, float]) -> dict[str, float]:
    """Of a scale, the values that the sweep's scales have."""
    return {name: scale[name] for name in sweep.largest_scale}


def proxy_of(sweep: SweepSpec, best: TrialOutcome) -> dict[str, float]:
    """The scale of a trial, with the number of workers as rules name it."""
    return {**_workers(sweep), **best.scale}


def _workers(sweep: SweepSpec) -> dict[str, float]:
    """The number of workers of a trial; empty where its config gives it by an expression."""
    scales = sweep.full_scales
    return {"workers": scales[0]["workers"]} if scales and "workers" in scales[0] else {}


def scored(law: Law, said: Carried, target: Mapping[str, float], config: Mapping[str, Any]) -> Carried:
    """With the score of the config that is trained; NaN where the space does not know its values."""
    try:
        return law.scored(said, target, config)
    except SpecError:
        return replace(said, score=math.nan, score_low=math.nan, score_high=math.nan)


def _own(train: TrainSpec, space: Space) -> dict[str, Any]:
    """The sweep's parameters in the training's own config."""
    names = {path[0] for path, _ in space.leaves}
    return {name: value for name, value in train.config.items() if name in names}


def watched_curve(sweep: SweepSpec, outcome: SweepOutcome) -> dict[str, Any]:
    """The curves by which the better trials of each proxy scale came to their scores; see `CarriedConfig`.

    The sweep's journal is read once: the cost is linear in its reports.
    """
    ended = [trial for trial in outcome.trials if trial.state == "completed" and trial.score is not None]
    series: dict[str, list[tuple[int, float]]] = {trial.trial_id: [] for trial in ended}
    for report in reports_of(_folder_of(outcome)):
        value = as_float(report.get(outcome.metric))
        if value is not None and report["trial_id"] in series and not report["overrun"]:
            series[report["trial_id"]].append((report["iteration"], value))
    better = [
        (float(trial.score), series[trial.trial_id])
        for trial in _better(ended, outcome.mode)
        if trial.score is not None
    ]
    curve = curve_of(better, outcome.mode)
    return {"steps": steps_of(series.values()), "curve": [list(point) for point in curve]}


def _better(trials: Iterable[TrialOutcome], mode: Mode) -> Iterable[TrialOutcome]:
    """Of each scale the better half."""
    of_scale: dict[tuple[tuple[str, float], ...], list[TrialOutcome]] = {}
    for trial in sorted(trials, key=lambda trial: trial.score or 0.0, reverse=mode == "max"):
        if trial.scale:
            of_scale.setdefault(tuple(sorted(trial.scale.items())), []).append(trial)
    return [trial for group in of_scale.values() for trial in group[: (len(group) + 1) // 2]]


def facts_of(said: Carried, by_law: Iterable[str], sweep: SweepSpec, outcome: SweepOutcome) -> dict[str, Any]:
    """The statement of the law, as fields of `CarriedConfig`."""
    return {
        "metric": outcome.metric,
        "mode": outcome.mode,
        "score_of": sweep.score,
        "verdict": said.verdict,
        "reasons": said.reasons,
        "intervals": {name: list(said.intervals[name]) for name in by_law if name in said.intervals},
        "scales": [scale for scale, _ in said.optima],
        "optima": {
            name: [_finite(optimum[name]) for _, optimum in said.optima]
            for name in by_law
            if all(name in optimum for _, optimum in said.optima)
        },
        "score": _finite(said.score),
        "score_low": _finite(said.score_low),
        "score_high": _finite(said.score_high),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
