"""A training run as a sweep of one trial: begins it, continues or follows it, or returns what it gave.

`run.run_training` runs trainings without a sweep, and is what users call. What is missing here until it can
take that place: lists and pages would show the run as a sweep, and as a training; of two processes that see
its end, the second cannot export the model; workers that fit nowhere are refused once the run is stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from raysweep.cluster.progress_callback import Listener
from raysweep.cluster.run import run_sweep
from raysweep.documents.wall_clock import check_deadline
from raysweep.errors import TrainingFailedError
from raysweep.outcome import DataDigest, SweepOutcome, TrainOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import load, reports_of
from raysweep.runs.training import RunFolder
from raysweep.specs import RunRequest, TrainSpec
from raysweep.specs.continuing import Continue
from raysweep.storage.checkpoints.exports import export_checkpoint
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.training.as_sweep import sweep_of
from raysweep.training.model_card import installed_versions
from raysweep.training.progress import TrainProgress
from raysweep.training.run import (
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

AGAIN: Final = Continue(retry="failed")
"""A training that failed is tried again by the same call."""
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
        folder.freeze_spec(spec, request.run.key)
        keep_card(folder, spec, finished)
        return finished
    check_start(spec, folder, address)
    started_at = time.time()
    ending = _find_ending(spec, folder, started_at)
    began = _keep_data(folder, digest_of_data(spec))
    folder.freeze_spec(spec, request.run.key)
    listener = Listener(on_progress) if on_progress is not None else None
    body = TrainBody(spec, folder, ending, listener)
    with workers_preloaded():
        ended = run_sweep(
            RunRequest(spec=sweep_of(spec, body), run=request.run), address=address, continuing=AGAIN
        )
    outcome = outcome_of(
        spec,
        ended,
        reports_of(SweepFolder(folder.store, folder.run_id)),
        started_at=started_at,
        model_uri=_export(folder, ended),
        versions=installed_versions(),
        data=compared(spec, began),
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
    so_far = load(folder.uri)
    return ending_of(spec.stop, began_at=so_far.started_at, used=so_far.usage)


def _keep_data(folder: RunFolder, now: Sequence[DataDigest]) -> tuple[DataDigest, ...]:
    """What the data were at the first start."""
    found = folder.get_versioned(DATA)
    if found is None:
        folder.put_if_version(DATA, orjson.dumps([each.model_dump(mode="json") for each in now]), None)
        return tuple(now)
    stored: list[dict[str, Any]] = orjson.loads(found[0])
    return tuple(DataDigest.model_validate(each) for each in stored)


def _export(folder: RunFolder, ended: SweepOutcome) -> str | None:
    """Write the newest checkpoint of the trial as plain files beside the outcome; their address."""
    trial = ended.trials[0]
    if trial.checkpoint_uri is None or trial.state != "completed":
        return None
    model = f"model_{ended.generation:06d}"
    store = CheckpointStore(folder.store, folder.run_id)
    export_checkpoint(store, trial.checkpoint_uri, f"{folder.run_id}/{model}")
    return f"{folder.uri}/{model}"
