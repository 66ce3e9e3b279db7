"""Joins what the workers have stored of a checkpoint, in the process that commits it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from raysweep.errors import CheckpointDamagedError
from raysweep.runs.training import RunFolder
from raysweep.storage.checkpoints.manifest import Manifest, StoredObject, decode_manifest, join
from raysweep.storage.checkpoints.store import GIVE_UP_AFTER_S
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.sealed import decode_sealed
from raysweep.training.checkpoint_parts import CheckpointName

_PART_FIX: Final = "run the training again with the same key: it continues from the checkpoint before"


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
        """Begin with so many new workers: they continue from the newest checkpoint."""
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
