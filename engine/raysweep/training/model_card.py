"""The model card: one JSON document about the origin of a model."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from raysweep.outcome import SweepOutcome, TrainOutcome, TrainSource, TrialOutcome, Usage
from raysweep.specs import Scaling, TrainSpec

CARD: Final = "model_card.json"
_PACKAGES: Final = (
    "raysweep", "ray", "torch", "lightgbm", "xgboost", "xgboost-cpu", "tensorflow", "tensorflow-cpu",
    "keras", "horovod", "scikit-learn", "numpy", "pandas", "pyarrow"
)  # fmt: skip
_SWEEP, _TRIAL, _SCORE = "raysweep.sweep", "raysweep.trial", "raysweep.score"


def make_card(spec: TrainSpec, outcome: TrainOutcome) -> dict[str, Any]:
    """The card of a model: its code, data, source trial and course; times in ISO 8601, UTC."""
    ended = outcome.model_dump(mode="json")
    return {
        "format": 1,
        "model_uri": outcome.model_uri,
        "run": {name: ended[name] for name in ("run_id", "name", "key", "uri", "status", "resumed")},
        "source": ended["source"],
        "trainable": spec.what_runs,
        "framework": spec.framework,
        "config": ended["config"],
        **({"carried": spec.carried.model_dump(mode="json")} if spec.carried is not None else {}),
        **({"schedule": [each.model_dump() for each in spec.schedule]} if spec.schedule else {}),
        "spec_digest": spec.digest(),
        "warm_start_checkpoint": spec.warm_start_checkpoint,
        "ended_by": ended["ended_by"],
        "metrics": ended["metrics"],
        "started_at": _iso(outcome.started_at),
        "ended_at": _iso(outcome.ended_at),
        "took_s": outcome.took_s,
        "active_s": None if outcome.usage is None else outcome.usage.active_s,
        "used": None if outcome.usage is None else _used(outcome.usage),
        "data": ended["data"],
        "reports": outcome.history[-1].iteration if outcome.history else 0,
        "workers": _workers(spec.scaling),
        "versions": outcome.versions,
        "tags": {name: value for name, value in spec.tags.items() if name not in (_SWEEP, _TRIAL, _SCORE)},
    }


def installed_versions() -> dict[str, str]:
    """Of Python, and of those packages that models are trained with which are installed here."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def source_tags(given: SweepOutcome | Mapping[str, Any], best: TrialOutcome | None = None) -> dict[str, str]:
    """The tags of a training spec that say which trial its config is from; none where that is not known.

    Args:
        given: The sweep's outcome, the brief of it, or an entry of the brief's `top_k`.
        best: The trial, where `given` is an outcome.
    """
    if isinstance(given, SweepOutcome):
        said: tuple[Any, Any, Any] = (given.uri, best and best.trial_id, best and best.score)
    else:
        entry = given.get("best") or given
        trial = entry if isinstance(entry, Mapping) else {}
        said = given.get("uri"), trial.get("trial_id"), trial.get("score")
    sweep, trial_id, score = said
    if not (isinstance(sweep, str) and sweep and isinstance(trial_id, str)):
        return {}
    found = {_SWEEP: sweep, _TRIAL: trial_id}
    return found if score is None else {**found, _SCORE: repr(score)}


def source_of(spec: TrainSpec) -> TrainSource | None:
    """The source that `source_tags` put into the spec's tags."""
    sweep, trial_id, score = (spec.tags.get(name) for name in (_SWEEP, _TRIAL, _SCORE))
    if sweep is None or trial_id is None:
        return None
    try:
        number = None if score is None else float(score)
    except ValueError:  # a user's own tag
        number = None
    return TrainSource(sweep=sweep, trial_id=trial_id, score=number)


def _workers(scaling: Scaling) -> dict[str, Any]:
    bounds = {} if scaling.min_workers is None else {"at_least": scaling.min_workers}
    return {"number": scaling.max_workers, **bounds, "each": scaling.worker_bundle()}


def _used(usage: Usage) -> dict[str, float]:
    return {"cpu_hours": usage.cpu_hours, "gpu_hours": usage.gpu_hours}


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
