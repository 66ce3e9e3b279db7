"""Deletes checkpoints that no trial needs, once a torn end of the journal could not bring them back."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable

from raysweep.errors import StorageError
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.writer import JournalWriter

log = logging.getLogger("raysweep")


class Discards:
    """A line of checkpoints. `uris`: those that an earlier controller may not have come to delete.

    `find_pins`: what else than the sweep needs, asked for on the deleting thread, once, before the first
    deletion. What is pinned stays, and goes with the first collection (`raysweep gc`) after its pin.
    """

    def __init__(
        self,
        checkpoints: CheckpointStore,
        writer: JournalWriter,
        uris: Iterable[str],
        find_pins: Callable[[], Collection[str]] = lambda: (),
    ) -> None:
        self._find_pins = find_pins
        self._pins: Collection[str] | None = None
        self._checkpoints = checkpoints
        self._writer = writer
        # With how many records of the journal must be sealed before.
        self._waiting = deque((0, uri) for uri in uris)
        self._under_way: set[str] = set()
        self._lock = threading.Lock()
        self._due: dict[str, list[str]] = {}
        """By trial: those that no thread deletes yet."""
        self._busy: set[str] = set()
        """The trials of which a thread deletes checkpoints."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, uri: str) -> None:
        """Note a checkpoint that the newest record makes needless."""
        self._waiting.append((self._writer.written, uri))

    def take_due(self) -> list[str]:
        """Take out those whose records are sealed by now."""
        due: list[str] = []
        while self._waiting and self._waiting[0][0] <= self._writer.sealed:
            due.append(self._waiting.popleft()[1])
        self._under_way.update(due)
        with self._lock:
            for uri in due:
                self._due.setdefault(_trial_of(uri), []).append(uri)
        return due

    def undeleted(self) -> list[str]:
        """Those in the line, and those that are being deleted."""
        return [*self._under_way.copy(), *(uri for _, uri in self._waiting)]

    def delete(self, uris: Iterable[str]) -> None:
        """Delete these that were due, which may take long; failures are noted.

        One thread at a time deletes in a trial, and takes with it what comes due there meanwhile: a deletion
        looks at all that the trial keeps, so that many together cost hardly more than one.
        """
        for trial in dict.fromkeys(map(_trial_of, uris)):
            while batch := self._begin(trial):
                self._delete(batch)
                with self._lock:
                    self._busy.discard(trial)

    def _begin(self, trial: str) -> list[str]:
        with self._lock:
            if trial in self._busy or trial not in self._due:
                return []
            self._busy.add(trial)
            return self._due.pop(trial)

    def _delete(self, batch: list[str]) -> None:
        try:
            if self._pins is None:
                self._pins = self._find_pins()
            self._checkpoints.delete(
                *(uri for uri in batch if self._checkpoints.addresses.reference(uri) not in self._pins)
            )
        except StorageError as error:
            if len(batch) > 1:  # what keeps one of them keeps none of the others
                for uri in batch:
                    self._delete([uri])
                return
            # Nothing refers to it any more: until it is removed by hand it costs space, and nothing else.
            log.warning("checkpoint %s was not deleted: %s", batch[0], error)
        self._under_way.difference_update(batch)


def _trial_of(uri: str) -> str:
    return uri.rpartition("/")[0]
