"""Outcomes of sweeps as the records of which Tune's results are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from raysweep.from_tune.objects import to_objects
from raysweep.from_tune.tuner import Reading
from raysweep.outcome import TrialOutcome
from raysweep.raycompat.tune_results import Experiment, StoredCheckpoint, TrialRecord
from raysweep.raycompat.tune_results import analysis_of as made_of
from raysweep.storage.checkpoints.store import CheckpointStore, restore_uri
from raysweep.storage.objects.opening import open_store
from raysweep.stored import StoredSweep

Row = dict[str, Any]
_STATUS: Final = {
    "completed": "TERMINATED",
    "stopped": "TERMINATED",
    "cancelled": "TERMINATED",
    "failed": "ERROR",
}
_OF_REPORTS: Final = ("number", "attempt", "iteration", "overrun", "trial_id", "at")
_IN_COLUMNS: Final = "metrics/"


def analysis_of(held: Any, reading: Reading, outcome: StoredSweep) -> Any:
    """The outcome as an ExperimentAnalysis of Tune's; `held`: what the tuner holds.

    Costs one pass over the journal, and for each trial two small files and, with checkpoints, one listing.
    """
    config, run = held._tune_config, held._run_config
    rows = _rows_by_trial(outcome)
    store = CheckpointStore(open_store(reading.spec.storage_path), outcome.sweep_id)
    is_ranked = bool(outcome.metric)
    name = getattr(held.converted_trainable, "__name__", str(held.converted_trainable))
    return made_of(
        Experiment(
            trainable=name,
            name=run.name,
            storage_path=str(run.storage_path),
            filesystem=run.storage_filesystem,
            metric=config.metric or (outcome.metric if is_ranked else None),
            mode=config.mode or (outcome.mode if is_ranked else None),
            checkpoints=run.checkpoint_config,
            trials=[
                _record_of(trial, rows[trial.number], reading, outcome, store) for trial in outcome.trials
            ],
        )
    )


def _rows_by_trial(outcome: StoredSweep) -> defaultdict[int, dict[int, Row]]:
    """The reports that count of each trial, by their iteration; what a later attempt repeats replaces."""
    rows: defaultdict[int, dict[int, Row]] = defaultdict(dict)
    for row in outcome.reports() if len(outcome) else ():
        if not row["overrun"]:
            rows[row["number"]][row["iteration"]] = row
    return rows


def _record_of(
    trial: TrialOutcome, rows: dict[int, Row], reading: Reading, outcome: StoredSweep, store: CheckpointStore
) -> TrialRecord:
    trial_id = f"{outcome.sweep_id[-5:]}_{trial.number:05d}"
    status = _STATUS.get(trial.state, "PENDING")
    results = list(_results(trial, [rows[number] for number in sorted(rows)], trial_id))
    if results and status == "TERMINATED":
        results[-1]["done"] = True
    failure = trial.failure
    return TrialRecord(
        trial_id=trial_id,
        tag=_tag_of(trial),
        config=to_objects(trial.config, reading.objects),
        status=status,
        results=results,
        checkpoints=list(_checkpoints(trial, results, store)),
        error=None if failure is None else (failure.type, failure.message, failure.traceback or ""),
        failures=sum(attempt.end == "failed" for attempt in trial.attempts),
    )


def _tag_of(trial: TrialOutcome) -> str:
    """`0_lr=0.1000`: as Tune names the values that differ between trials."""
    plain = {
        name: value
        for name, value in trial.config.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    shown = ",".join(
        f"{name}={value:.4f}" if isinstance(value, float) else f"{name}={value}"
        for name, value in plain.items()
    )
    return f"{trial.number}_{shown}" if shown else str(trial.number)


def _results(trial: TrialOutcome, rows: Sequence[Row], trial_id: str) -> Iterator[Row]:
    """Each report with what Tune fills in."""
    started = {attempt.attempt: attempt.started_at for attempt in trial.attempts}
    nodes = {attempt.attempt: attempt.node for attempt in trial.attempts}
    total, steps, before = 0.0, 0, 0.0
    last_attempt = None
    for number, row in enumerate(rows, start=1):
        if row["attempt"] != last_attempt:
            last_attempt, since = row["attempt"], number
            before = begun = started.get(row["attempt"]) or row["at"]
        took = max(row["at"] - before, 0.0)
        total, before = total + took, row["at"]
        metrics = _unflattened({k: v for k, v in row.items() if k not in _OF_REPORTS})
        filled: Row = {
            "training_iteration": row["iteration"],
            "trial_id": trial_id,
            "date": datetime.fromtimestamp(row["at"]).strftime("%Y-%m-%d_%H-%M-%S"),  # noqa: DTZ006  as Tune
            "timestamp": int(row["at"]),
            "time_this_iter_s": took,
            "time_total_s": total,
            "time_since_restore": row["at"] - begun,
            "iterations_since_restore": number - since + 1,
            "node_ip": nodes.get(row["attempt"], ""),
            "done": False,
        }
        if isinstance(made := metrics.get("timesteps_this_iter"), int):
            steps += made
            filled["timesteps_total"] = steps
        yield {**filled, **metrics}


def _unflattened(metrics: Row) -> Row:
    """`{"eval/loss": 1}` as `{"eval": {"loss": 1}}`, which is how Tune holds what was reported so."""
    found: Row = {}
    for name, value in metrics.items():
        *path, last = name.removeprefix(_IN_COLUMNS).split("/")
        inside = found
        for part in path:
            held = inside.setdefault(part, {})
            inside = held if isinstance(held, dict) else inside
        inside[last] = value
    return found


def _checkpoints(
    trial: TrialOutcome, results: Sequence[Row], store: CheckpointStore
) -> Iterator[StoredCheckpoint]:
    """The checkpoints that are kept, oldest first, each with the report that it came with."""
    if not trial.checkpoint_uri:
        return
    for number in store.numbers(trial.trial_id):
        report = store.read_manifest(store.uri(trial.trial_id, number)).metadata.get("report")
        place = report if isinstance(report, int) and 0 <= report < len(results) else -1
        metrics = results[place] if results else {}
        yield StoredCheckpoint(
            number=number, metrics=metrics, fetch=partial(_fetch, store.uri(trial.trial_id, number))
        )


def _fetch(uri: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    restore_uri(uri, folder)
