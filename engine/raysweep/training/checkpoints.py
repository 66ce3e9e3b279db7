"""The checkpoints of a training in the process that holds its claim: commits, lists and deletes them.

The order is: the manifest of all parts; Ray Train's list, which names the manifest; the deletion of
unlisted checkpoints. A crash in between leaves unreferenced objects, which the next attempt or the run's
end deletes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from raysweep.errors import CheckpointDamagedError, StorageError
from raysweep.runs.ownership.training_claim import Claim
from raysweep.runs.training import CHECKPOINT_OWNER, RunFolder
from raysweep.storage.checkpoints.exports import export_checkpoint
from raysweep.storage.checkpoints.manifest import Manifest, StoredObject, decode_manifest, join
from raysweep.storage.checkpoints.store import GIVE_UP_AFTER_S, CheckpointStore
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.sealed import decode_sealed
from raysweep.training.checkpoint_list import Snapshot, read_snapshot
from raysweep.training.checkpoint_parts import NUMBERS, CheckpointName, parse_name

_log = logging.getLogger(__name__)
_PART_FIX: Final = "run the training again with the same key: it continues from the checkpoint before"


class Keeper:
    """The checkpoints of a run in the hands of one attempt.

    Args:
        claim: The attempt.
    """

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._num_workers = 0
        self._snapshot = Snapshot(claim)
        self._store = CheckpointStore(claim.folder.store, claim.folder.run_id)
        self._committed: set[int] = set()
        self._listed: set[int] = set()
        # Of which checkpoint each worker's last part is: it refers to that next (see `checkpoint_parts`).
        self._last: dict[int, int] = {}
        self._start: int | None = None

    def take(self) -> None:
        """Make the run's list this attempt's, before Ray Train reads it.

        Raises: FencedError. CheckpointDamagedError: what it names is not there. StorageError.
        """
        self._snapshot.take()
        state = read_snapshot(self._claim.folder)
        self._listed = {name.number for name in _names(state)}
        there = set(self._store.numbers(CHECKPOINT_OWNER)) if self._listed else set()
        for number in sorted(self._listed - there):
            problem = "the list of checkpoints names it, and there is no such checkpoint"
            fix = "restore it from a backup, or use another key to start over"
            raise CheckpointDamagedError(self.uri(number), problem, fix)
        # One that was superseded, and does not know it yet, may still commit; that goes at the end.
        self._committed = {number for number in there if number < self._claim.number * NUMBERS} | self._listed
        self.collect()

    def read(self) -> bytes | None:
        """The run's list as it is stored; None before the first checkpoint. Raises: StorageError."""
        return self._snapshot.read()

    def begin(self, num_workers: int) -> None:
        """So many new workers are there: they continue from the newest checkpoint."""
        self._num_workers = num_workers
        self._start, self._last = max(self._listed, default=None), {}

    def write(self, text: str) -> None:
        """Commit what Ray Train's list names for the first time, and store the list.

        Raises: FencedError: nothing is written, and nothing must be deleted. CheckpointDamagedError: a part
            cannot be read. SpecError: the workers' files do not fit together. StorageError.
        """
        state = json.loads(text)
        for name in _names(state):
            if name.number not in self._committed:
                self._claim.check()
                self._commit(name, _metrics_of(state, name))
        self._snapshot.write(text)
        self._listed = {name.number for name in _names(state)}

    def collect(self) -> None:
        """Delete what neither the list names nor a worker refers to next; what cannot be, later.

        Raises: FencedError.
        """
        needed = self._listed | set(self._last.values())
        if self._start is not None and len(self._last) < self._num_workers:
            needed.add(self._start)
        self._delete(self._committed - needed)

    def finish(self, kept: Iterable[str]) -> None:
        """The run has ended: delete all but these checkpoints (Ray Train's names), and what crashes left."""
        numbers = {name.number for name in map(parse_name, kept) if name is not None}
        try:
            self._store.delete_others(CHECKPOINT_OWNER, numbers)
        except (StorageError, CheckpointDamagedError) as error:
            _log.warning("checkpoints that the run needs no more could not be deleted: %s", error)

    def uri_of(self, name: str | None) -> str | None:
        """The address of a checkpoint, by Ray Train's name of it."""
        if name is None:
            return None
        ours = parse_name(name)
        return self.uri(ours.number) if ours is not None else f"{self._claim.folder.uri}/{name}"

    def uri(self, number: int) -> str:
        """The address of a checkpoint in the store."""
        return self._store.uri(CHECKPOINT_OWNER, number)

    def export(self, name: str | None) -> str | None:
        """Write a checkpoint as plain files beside the run's outcome; its address.

        Raises: CheckpointDamagedError, StorageError.
        """
        ours = parse_name(name) if name is not None else None
        if ours is None:
            return self.uri_of(name)  # a plain folder that user code has named itself
        folder = self._claim.folder
        model = f"model_{self._claim.number:06d}"
        export_checkpoint(self._store, self.uri(ours.number), f"{folder.run_id}/{model}")
        return f"{folder.uri}/{model}"

    def _commit(self, name: CheckpointName, metrics: Mapping[str, Any]) -> None:
        parts = read_parts(self._claim.folder, name, CHECKPOINT_OWNER)
        metadata = {"attempt": self._claim.number, "metrics": metrics, "workers": sorted(parts)}
        self._store.commit(join([part for _, part in sorted(parts.items())], metadata))
        self._committed.add(name.number)
        self._last |= dict.fromkeys(parts, name.number)

    def _delete(self, numbers: set[int]) -> None:
        if not numbers:
            return
        self._claim.check()
        try:
            self._store.delete(*[self.uri(number) for number in sorted(numbers)])
        except (StorageError, CheckpointDamagedError) as error:
            _log.warning("a checkpoint that the run needs no more could not be deleted yet: %s", error)
            return
        self._committed -= numbers


class Joiner:
    """Makes one manifest of the parts of each checkpoint.

    A worker's part may refer to objects of its last part, or of the checkpoint that it began from. Where it
    gave nothing to the checkpoints since, these name such objects too: else they would be deleted with the
    checkpoint that stored them. Args: `owner`: the trial whose checkpoints they are.
    """

    def __init__(self, folder: RunFolder, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        self._num_workers = 0
        self._newest: tuple[StoredObject, ...] = ()
        self._start: tuple[StoredObject, ...] = ()
        self._last: dict[int, tuple[StoredObject, ...]] = {}

    def begin_from(self, newest: Manifest) -> None:
        """The first workers will continue from this checkpoint."""
        self._newest = newest.objects

    def begin(self, num_workers: int) -> None:
        """So many new workers are there: they continue from the newest checkpoint."""
        self._num_workers, self._start, self._last = num_workers, self._newest, {}

    def join(self, name: CheckpointName) -> Manifest:
        """One manifest of what the workers have stored of a checkpoint; it is not committed.

        Raises: CheckpointDamagedError: a part cannot be read. SpecError: the workers' files do not fit
            together.
        """
        parts = read_parts(self._folder, name, self._owner)
        joined = join([part for _, part in sorted(parts.items())], {"workers": sorted(parts)})
        self._last |= {rank: part.objects for rank, part in parts.items()}
        held = [each for rank, last in self._last.items() if rank not in parts for each in last]
        if len(self._last) < self._num_workers:
            held += self._start
        named = set(joined.objects)
        more = tuple(each for each in dict.fromkeys(held) if each not in named)
        self._newest = (*joined.objects, *more)
        return replace(joined, objects=self._newest)


def read_parts(folder: RunFolder, name: CheckpointName, owner: str) -> dict[int, Manifest]:
    """The parts of a checkpoint by the ranks of their workers."""
    read = retrying(GIVE_UP_AFTER_S)
    keys = read(lambda: [info.key for info in folder.store.list(f"{folder.run_id}/{name}")])
    parts = {}
    for key in keys:
        uri = f"{folder.store.url}/{key}"
        fields = decode_sealed(read(folder.store.get, key) or b"")
        if fields is None or (fields["trial_id"], fields["number"]) != (owner, name.number):
            raise CheckpointDamagedError(uri, "a worker's part of the checkpoint is damaged", _PART_FIX)
        rank = int(key.rsplit("-", 1)[-1].removesuffix(".json"))
        parts[rank] = decode_manifest(fields, uri.removesuffix(".json"))
    if not parts:
        uri = f"{folder.uri}/{name}"
        raise CheckpointDamagedError(uri, "the workers' parts of the checkpoint are gone", _PART_FIX)
    return parts


def _names(state: Mapping[str, Any] | None) -> list[CheckpointName]:
    """Those of our checkpoints that Ray Train's list names, oldest first."""
    results = [] if state is None else state.get("checkpoint_results", [])
    found = [parse_name(each["checkpoint_dir_name"]) for each in results]
    return sorted(name for name in found if name is not None)


def _metrics_of(state: Mapping[str, Any], name: CheckpointName) -> Mapping[str, Any]:
    return next(
        each["metrics"] for each in state["checkpoint_results"] if each["checkpoint_dir_name"] == str(name)
    )
