"""How a run stands by its outcome or its heartbeat alone: no journal is read."""

from __future__ import annotations

import time

from raysweep.outcome import Standing
from raysweep.outcome.ended import status_of_training
from raysweep.outcome.progress import HolderState
from raysweep.outcome.standing import INTERRUPTED, STARTING
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.holder import STALE_AFTER_S
from raysweep.runs.reading.status import status_of_heartbeat
from raysweep.runs.training import RunFolder
from raysweep.storage.objects.opening import open_store


def first_seen_at(folder: SweepFolder) -> float:
    """When sweep.json was written, in UTC seconds by the storage's clock; 0 where that is not known."""
    info = folder.store.head(f"{folder.sweep_id}/sweep.json")
    return info.modified_at if info is not None else 0.0


def read_training(storage_path: str, run_id: str) -> Standing | None:
    """How a training run stands; None where nothing of it is stored yet. Raises: StorageError."""
    folder = RunFolder(open_store(storage_path), run_id)
    outcome, heartbeat, now = folder.read_outcome(), folder.read_progress(), time.time()
    if outcome is not None:
        return status_of_training(outcome, heartbeat, uri=folder.uri, now=now)
    if heartbeat is None:
        return None
    return status_of_heartbeat(heartbeat, uri=folder.uri, now=now).model_copy(update={"kind": "train"})


def glance_training(folder: RunFolder) -> Standing:
    """As `read_training`, of a run that has been begun in any case. Raises: StorageError."""
    found = read_training(folder.store.url, folder.run_id)
    if found is not None:
        return found
    return Standing(
        kind="train", run_id=folder.run_id, uri=folder.uri, status=INTERRUPTED, read_at=time.time()
    )


def glance(folder: SweepFolder) -> Standing:
    """What a sweep's outcome or its heartbeat says; the journal is not read. Raises: StorageError."""
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
