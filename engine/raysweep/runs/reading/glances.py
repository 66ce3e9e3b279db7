"""The standing of a run by its outcome or its heartbeat alone: no journal is read."""

from __future__ import annotations

import time

from raysweep.outcome import Standing
from raysweep.outcome.ended import status_of_training
from raysweep.outcome.progress import HolderState
from raysweep.outcome.standing import INTERRUPTED, STARTING
from raysweep.runs.folder import RECORDS, TRAIN, SweepFolder
from raysweep.runs.ownership.holder import STALE_AFTER_S
from raysweep.runs.reading.status import status_of_heartbeat
from raysweep.runs.training import RunFolder
from raysweep.storage.objects.opening import open_store


def first_seen_at(folder: SweepFolder) -> float:
    """The time at which its record was written, in UTC seconds by the storage's clock; 0: not known."""
    found = (folder.store.head(f"{folder.sweep_id}/{name}") for name in RECORDS)
    return next((info.modified_at for info in found if info is not None), 0.0)


def read_training(storage_path: str, run_id: str) -> Standing | None:
    """The standing of a training run; None where nothing of it is stored yet. Raises: StorageError."""
    folder = RunFolder(open_store(storage_path), run_id)
    found = _ended_training(folder)
    if found is None and folder.store.exists(f"{run_id}/{TRAIN}"):
        found = _unended_training(folder)
    return found


def glance_training(folder: RunFolder) -> Standing:
    """As `read_training`, of a run that has been begun in any case. Raises: StorageError."""
    return _ended_training(folder) or _unended_training(folder)


def _ended_training(folder: RunFolder) -> Standing | None:
    outcome = folder.read_outcome()
    return status_of_training(outcome, uri=folder.uri, now=time.time()) if outcome is not None else None


def _unended_training(folder: RunFolder) -> Standing:
    """One that runs, is interrupted or failed: what its sweep says."""
    return glance(SweepFolder(folder.store, folder.run_id)).model_copy(update={"kind": "train"})


def glance(folder: SweepFolder) -> Standing:
    """The standing of a sweep by its outcome or its heartbeat; no journal is read. Raises: StorageError."""
    ended, now = folder.read_standing(), time.time()
    if ended is not None:
        return ended
    heartbeat = folder.read_progress()
    if heartbeat is not None:
        return status_of_heartbeat(heartbeat, uri=folder.uri, now=now)
    is_starting = abs(now - first_seen_at(folder)) <= STALE_AFTER_S
    status = STARTING if is_starting else INTERRUPTED
    held: HolderState = "alive" if is_starting else "gone"
    return Standing(run_id=folder.sweep_id, uri=folder.uri, status=status, held=held, read_at=now)
