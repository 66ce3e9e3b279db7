"""The checkpoints that a sweep keeps: how large they are, what they alone take up, and what needs them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from raysweep.core.lifecycle import FINAL
from raysweep.core.state import SweepState
from raysweep.core.trial import Checkpoint, Trial, trial_id
from raysweep.errors import CheckpointDamagedError
from raysweep.runs.folder import SweepFolder
from raysweep.storage.checkpoints import CheckpointStore

_THREADS: Final = 8
GIVE_UP_AFTER_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint that the sweep keeps.

    `iteration`: how many reports lie behind it; `score`: the metric of the last of them. `new_bytes`: what it
    was the first of its trial to store. `needed_by`: why it is kept. `problem`: why nothing is known of it.
    """

    uri: str
    trial_id: str
    number: int
    iteration: int
    score: float | None
    size_bytes: int
    new_bytes: int | None = None
    needed_by: tuple[str, ...] = ()
    problem: str = ""


def list_kept(folder: SweepFolder, state: SweepState) -> tuple[StoredCheckpoint, ...]:
    """What the trials need, by trial and number. Reads each one's manifest.

    Raises: StorageError: the storage does not answer. A damaged manifest is told, and raises nothing.
    """
    found: dict[tuple[int, int], Checkpoint] = {}
    reasons: dict[tuple[int, int], list[str]] = defaultdict(list)
    for trial in state.trials.values():
        for owner, checkpoint in trial.needed:
            found[owner, checkpoint.number] = checkpoint
            reasons[owner, checkpoint.number] += _reasons(trial, owner, checkpoint)
    store = CheckpointStore(folder.store, folder.sweep_id, give_up_after_s=GIVE_UP_AFTER_S)

    def look(who: tuple[int, int]) -> StoredCheckpoint:
        return _look(store, who[0], found[who], tuple(reasons[who]))

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="raysweep-manifests") as pool:
        return tuple(pool.map(look, sorted(found)))


def _look(store: CheckpointStore, owner: int, kept: Checkpoint, reasons: tuple[str, ...]) -> StoredCheckpoint:
    new_bytes, problem, uri = None, "", store.uri(trial_id(owner), kept.number)
    size_bytes = kept.size_bytes
    try:
        manifest = store.read_manifest(uri)
        size_bytes, new_bytes = manifest.size_bytes, manifest.new_bytes
    except CheckpointDamagedError as error:
        problem = error.problem
    return StoredCheckpoint(
        uri=uri,
        trial_id=trial_id(owner),
        number=kept.number,
        iteration=kept.iteration,
        score=kept.score,
        size_bytes=size_bytes,
        new_bytes=new_bytes,
        needed_by=reasons,
        problem=problem,
    )


def _reasons(trial: Trial, owner: int, checkpoint: Checkpoint) -> Iterator[str]:
    if owner != trial.number:
        yield f"trial {trial.number} goes on from it"
        return
    if checkpoint == trial.checkpoint:
        yield (
            "the newest" if trial.state in FINAL else f"the newest: the trial, {trial.state}, goes on from it"
        )
    else:
        yield "the policy keeps it"
