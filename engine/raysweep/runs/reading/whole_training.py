"""All that is stored of a training, which is a sweep of one trial, as reports and pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from raysweep.outcome import Standing, TrainOutcome, TrialOutcome, Usage
from raysweep.outcome.training_metrics import END, USED, own_metrics
from raysweep.runs.reading.whole_sweep import WholeReader, WholeSweep
from raysweep.runs.training import RunFolder


def read_run(reader: WholeReader) -> WholeSweep:
    """A sweep as `reader` reads it; a training under its own spec, and without the engine's metrics.

    Raises: as `WholeReader.read`.
    """
    whole = reader.read()
    fields = whole.record.train
    if fields is None:
        return whole
    outcome = RunFolder(whole.folder.store, whole.folder.sweep_id).read_outcome()
    return replace(
        whole,
        record=replace(whole.record, spec=fields),
        spec=whole.spec.model_copy(update={"trainable": _what_runs(fields), "tags": fields.get("tags", {})}),
        status=_standing(whole, outcome),
        trials=tuple(_shown(trial) for trial in whole.trials),
    )


def _standing(whole: WholeSweep, outcome: TrainOutcome | None) -> Standing:
    status = whole.status
    failures = tuple(_shown(trial) for trial in status.failures)
    changed: dict[str, Any] = {"kind": "train", "failures": failures, "usage": _usage(whole)}
    if outcome is not None:
        notes = (f"model: {outcome.model_line}", *status.notes)
        changed |= {"training": outcome, "notes": notes, "usage": outcome.usage}
    return status.model_copy(update=changed)


def _usage(whole: WholeSweep) -> Usage | None:
    """The use of the workers until their last report: the trial itself takes no resources."""
    used = whole.trials[0].metrics.get(USED) if whole.trials else None
    if not isinstance(used, Mapping):
        return whole.status.usage
    active_s = whole.status.usage.active_s if whole.status.usage is not None else 0.0
    return Usage.model_validate({**used, "active_s": active_s})


def _shown(trial: TrialOutcome) -> TrialOutcome:
    changed = {
        "metrics": own_metrics(trial.metrics),
        "best_metrics": own_metrics(trial.best_metrics),
        "reports": trial.reports - (END in trial.metrics),
    }
    return trial.model_copy(update=changed)


def _what_runs(fields: Mapping[str, Any]) -> str:
    """The trainable's name, or the command line."""
    command = fields.get("command") or ()
    return str(fields.get("trainable") or " ".join(map(str, command)))
