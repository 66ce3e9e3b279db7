"""The outcome of a training, made of that of its sweep and of the reports in the sweep's journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from raysweep.outcome import (
    DataDigest,
    ErrorInfo,
    SweepOutcome,
    TrainOutcome,
    TrainReport,
    TrialOutcome,
    Usage,
)
from raysweep.outcome.training_metrics import END, USED, WORKERS, own_metrics
from raysweep.runs.reading.history import COLUMNS
from raysweep.specs import TrainSpec
from raysweep.training.model_card import source_of
from raysweep.training.predicted import predicted_of

MAX_ROWS: Final = 1000
"""Of more reports every second one is kept, then every fourth, and so on; the last one always."""
MAX_ROW_BYTES: Final = 1024
"""Of a larger report only what fits is kept, in its order."""
_NAMES: Final = {f"metrics/{name}": name for name in COLUMNS}
"""Metrics that are called as a column of the reports."""


def outcome_of(
    spec: TrainSpec,
    sweep: SweepOutcome,
    reports: Iterable[Mapping[str, Any]],
    *,
    started_at: float,
    model_uri: str | None = None,
    versions: Mapping[str, str] | None = None,
    data: Sequence[DataDigest] = (),
) -> TrainOutcome:
    """The outcome of the training that a sweep of one trial was.

    Args:
        spec: The training.
        sweep: The sweep, which has ended.
        reports: Its reports, oldest first, as `runs.reading.history.reports_of` gives them.
        started_at: When the attempt began that ended it, in UTC seconds.
        model_uri: Where the model is.
        versions: Of the packages that trained.
        data: What the spec's data were, and whether they have changed.
    """
    trial = sweep.trials[0]
    end, workers = _end_of(trial), spec.scaling.num_workers
    error = _error_of(trial, sweep, end)
    metrics = end.get("metrics", own_metrics(trial.metrics))
    history = history_of(reports, workers if isinstance(workers, int) else None)
    return TrainOutcome(
        run_id=sweep.sweep_id,
        name=spec.name,
        key=sweep.key,
        status="completed" if error is None else "failed",
        ended_by=end.get("ended_by", ""),
        metrics=metrics,
        config=dict(spec.config),
        model_uri=model_uri if error is None and end.get("ended_by") != "below_prediction" else None,
        checkpoint_uri=trial.checkpoint_uri,
        uri=sweep.uri,
        started_at=started_at,
        ended_at=sweep.ended_at,
        error=error,
        resumed=bool(end.get("resumed")),
        source=source_of(spec),
        carried=spec.carried,
        predicted=predicted_of(spec.carried, (each.metrics for each in history), metrics),
        versions=dict(versions or {}),
        history=history,
        usage=usage_of(trial, sweep),
        data=tuple(data),
        code_digest=sweep.code_digest,
        raysweep_version=sweep.raysweep_version,
    )


def history_of(reports: Iterable[Mapping[str, Any]], workers: int | None) -> tuple[TrainReport, ...]:
    """Each report once, of more than `MAX_ROWS` every second, fourth, …; the last one always.

    An attempt that resumes from a checkpoint reports again what came after it: the later report counts.
    `workers`: how many trained together, where that never changes. n reports cost n, and keep `MAX_ROWS`.
    """
    kept: list[TrainReport] = []
    every, last = 1, None
    for report in reports:
        if END in report:
            continue
        row = _row(report, workers)
        while kept and kept[-1].iteration >= row.iteration:
            kept.pop()
        last = row
        if (row.iteration - 1) % every == 0:
            kept.append(row)
        if len(kept) > MAX_ROWS:
            every *= 2
            kept = [each for each in kept if (each.iteration - 1) % every == 0]
    is_kept = last is None or (kept and kept[-1].iteration == last.iteration)
    return (*kept,) if is_kept or last is None else (*kept, last)


def _row(report: Mapping[str, Any], workers: int | None) -> TrainReport:
    metrics = {_NAMES.get(name, name): value for name, value in report.items() if name not in COLUMNS}
    return TrainReport(
        iteration=report["iteration"],
        at=_seconds(report["at"]),
        metrics=fitting(own_metrics(metrics)),
        workers=metrics.get(WORKERS, workers),
    )


def fitting(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a report, as far as `MAX_ROW_BYTES` go."""
    row = TrainReport(iteration=1, at=0.0, metrics=dict(metrics))
    sizes = {
        name: len(name) + len(orjson.dumps(value))
        for name, value in row.model_dump(mode="json")["metrics"].items()
    }
    if sum(sizes.values()) <= MAX_ROW_BYTES:
        return dict(metrics)
    kept: dict[str, Any] = {}
    left = MAX_ROW_BYTES
    for name, size in sizes.items():
        if size <= left:
            kept[name] = metrics[name]
            left -= size
    return kept


def usage_of(trial: TrialOutcome, sweep: SweepOutcome) -> Usage:
    """The workers' hours; a sweep counts its slots, and the trial takes none."""
    used = trial.metrics.get(USED)
    active_s = sweep.usage.active_s if sweep.usage is not None else 0.0
    return Usage.model_validate({**(used if isinstance(used, dict) else {}), "active_s": active_s})


def _seconds(at: Any) -> float:
    return float(at.timestamp()) if hasattr(at, "timestamp") else float(at)


def _end_of(trial: TrialOutcome) -> Mapping[str, Any]:
    found = trial.metrics.get(END)
    return found if isinstance(found, dict) else {}


def _error_of(trial: TrialOutcome, sweep: SweepOutcome, end: Mapping[str, Any]) -> ErrorInfo | None:
    """The error of the body; of one that came to report none, the sweep's."""
    if trial.state == "completed":
        return None
    if end.get("error"):
        return ErrorInfo.model_validate(end["error"])
    return trial.failure or sweep.error or ErrorInfo(kind=trial.state, message=sweep.why)
