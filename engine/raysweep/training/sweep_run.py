"""A training run as a sweep of one trial: begins it, continues or follows it, or returns what it gave.

`run.run_training` runs trainings without a sweep, and is what users call. What is missing here until it can
take that place: lists and pages read the heartbeat of the other engine, and a job has no way to end it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from raysweep.cluster.progress_callback import Listener
from raysweep.cluster.run import Training, run_sweep
from raysweep.documents.wall_clock import check_deadline
from raysweep.errors import SweepInterrupted, TrainingFailedError
from raysweep.outcome import DataDigest, SweepOutcome, TrainOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import reports_of
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.training import RunFolder
from raysweep.specs import RunRequest, TrainSpec
from raysweep.specs.continuing import Continue
from raysweep.storage.checkpoints.exports import export_checkpoint
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.training.as_sweep import sweep_of
from raysweep.training.model_card import installed_versions
from raysweep.training.progress import TrainProgress
from raysweep.training.run import (
    check_room,
    check_start,
    compared,
    digest_of_data,
    keep_card,
    open_folder,
    workers_preloaded,
)
from raysweep.training.sweep_outcome import outcome_of
from raysweep.training.time_limits import Ending, ending_of
from raysweep.training.trial_body import TrainBody

AGAIN: Final = Continue(retry="failed", resume_cancelled=True)
"""A training that failed or was cancelled continues by the same call."""
DATA: Final = "data.json"
"""What the spec's data were when the training first began."""


def run_as_sweep(
    request: RunRequest[TrainSpec],
    *,
    address: str | None = None,
    on_progress: Callable[[TrainProgress], None] | None = None,
) -> TrainOutcome:
    """As `run.run_training`, but where another process has the run, that is followed.

    Raises: as `run_sweep` and `run.run_training`, without SweepHeldError.
    """
    spec, folder = request.spec, open_folder(request)
    finished = folder.read_outcome()
    if finished is not None:
        folder.check_spec(spec)
        keep_card(folder, spec, finished)
        return finished
    check_start(spec, folder, address)
    started_at = time.time()
    ending = _find_ending(spec, folder, started_at)
    now = digest_of_data(spec)
    listener = Listener(on_progress) if on_progress is not None else None
    body = TrainBody(spec, folder, ending, listener)
    asked = RunRequest(spec=sweep_of(spec, body), run=request.run)
    training = Training(spec=spec, check_cluster=lambda: _check_cluster(spec, folder, now))
    with workers_preloaded():
        ended = run_sweep(asked, address=address, continuing=AGAIN, training=training)
    if body.refusal is not None:
        raise body.refusal
    folder.check_spec(spec)  # of two that start at once, with specs that differ, one was faster
    if ended.status == "cancelled":
        raise SweepInterrupted(folder.run_id, f"{ended.why}; run it again to resume")
    outcome = outcome_of(
        spec,
        ended,
        reports_of(SweepFolder(folder.store, folder.run_id)),
        started_at=started_at,
        model_uri=_export(folder, ended),
        versions=installed_versions(),
        data=compared(spec, _read_data(folder)),
    )
    if outcome.error is not None:
        raise TrainingFailedError(outcome)
    folder.write_outcome(outcome)
    outcome = folder.read_outcome() or outcome  # who followed may have been faster
    folder.delete_unused_checkpoints(frozenset({(outcome.model_uri or "").rsplit("/", 1)[-1]}))
    keep_card(folder, spec, outcome)
    return outcome


def _find_ending(spec: TrainSpec, folder: RunFolder, now: float) -> Ending:
    """When its limits end it. Raises: SpecError where the deadline of a new one has passed."""
    if SweepFolder(folder.store, folder.run_id).read_spec() is None:
        check_deadline(spec.stop.deadline, now, now)
        return ending_of(spec.stop, began_at=now, used=None)
    so_far = SweepReader(folder.store.url, folder.run_id, is_strict=True).outcome_so_far()
    return ending_of(spec.stop, began_at=so_far.started_at, used=so_far.usage)


def _check_cluster(spec: TrainSpec, folder: RunFolder, data: Sequence[DataDigest]) -> None:
    """The last look before the run is stored, and the digests of its data with it."""
    check_room(spec)
    if data:
        stored = orjson.dumps([each.model_dump(mode="json") for each in data])
        folder.put_if_version(DATA, stored, None)  # those of the first start stay


def _read_data(folder: RunFolder) -> tuple[DataDigest, ...]:
    """What the data were at the first start."""
    found = folder.get_versioned(DATA)
    stored: list[dict[str, Any]] = orjson.loads(found[0]) if found is not None else []
    return tuple(DataDigest.model_validate(each) for each in stored)


def _export(folder: RunFolder, ended: SweepOutcome) -> str | None:
    """Write the newest checkpoint of the trial as plain files beside the outcome; their address."""
    trial = ended.trials[0]
    if trial.checkpoint_uri is None or trial.state != "completed":
        return None
    store = CheckpointStore(folder.store, folder.run_id)
    link = store.read_manifest(trial.checkpoint_uri).link
    if link:  # a plain folder that user code has named itself
        return link
    model = f"model_{ended.generation:06d}"
    export_checkpoint(store, trial.checkpoint_uri, f"{folder.run_id}/{model}")
    return f"{folder.uri}/{model}"
