"""Deletes checkpoints of a trial, and the objects that no other checkpoint of it refers to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from raysweep.errors import CheckpointDamagedError
from raysweep.storage.checkpoints.addresses import Addresses, number_of
from raysweep.storage.checkpoints.manifest import Manifest
from raysweep.storage.objects.store import Store

# One deletion at a time in a trial: a listing must show what its newest checkpoint refers to.
_deleting = [threading.Lock() for _ in range(64)]


class Deletion:
    """In one trial. `list_numbers`: its committed checkpoints; `read_manifest` reads that of a URI."""

    def __init__(
        self,
        store: Store,
        addresses: Addresses,
        trial_id: str,
        list_numbers: Callable[[], Collection[int]],
        read_manifest: Callable[[str], Manifest],
    ) -> None:
        self._store = store
        self._addresses = addresses
        self._trial_id = trial_id
        self._list_numbers = list_numbers
        self._read_manifest = read_manifest

    def delete(self, numbers: Sequence[int]) -> None:
        """See `CheckpointStore.delete`."""
        with _deleting[hash((self._addresses.sweep_id, self._trial_id)) % len(_deleting)]:
            self._delete(numbers)

    def delete_others(self, kept: Collection[int]) -> None:
        """See `CheckpointStore.delete_others`."""
        self._store.delete(*[self._manifest_key(each) for each in self._list_numbers() if each not in kept])
        needed = self._needed_keys() | {*map(self._manifest_key, kept)}
        found = self._store.list(self._addresses.prefix(self._trial_id))
        self._store.delete(*[info.key for info in found if info.key not in needed])

    def _delete(self, numbers: Sequence[int]) -> None:
        self._store.delete(*map(self._manifest_key, numbers))
        prefix, newest = self._addresses.prefix(self._trial_id), max(numbers)
        keys = {
            info.key
            for info in self._store.list(prefix)
            if number_of(info.key.removeprefix(f"{prefix}/")) <= newest
        }
        self._store.delete(*sorted(keys - self._needed_keys()))

    def _needed_keys(self) -> set[str]:
        """The keys that the checkpoints of the trial refer to, as of now.

        A listing is no snapshot: a checkpoint that is committed while it runs may be missed, as may its
        parent, which that allows another controller to delete. So we list until two listings agree.
        """
        needed: set[str] = set()
        known: set[int] = set()
        listed: set[int] | None = None
        while listed != (found := set(self._list_numbers())):
            listed = found
            for number in found - known:
                known.add(number)
                with suppress(_Gone):
                    manifest = self._read_if_there(number)
                    needed.update(self._addresses.object_key(manifest, each) for each in manifest.objects)
        return needed

    def _read_if_there(self, number: int) -> Manifest:
        """Raises: _Gone: it was deleted since it was listed. CheckpointDamagedError: it cannot be read."""
        try:
            return self._read_manifest(self._addresses.uri(self._trial_id, number))
        except CheckpointDamagedError:
            if self._store.exists(self._manifest_key(number)):
                raise
            raise _Gone from None

    def _manifest_key(self, number: int) -> str:
        return self._addresses.manifest_key(self._trial_id, number)


class _Gone(Exception):
    """A manifest was deleted since it was listed."""
