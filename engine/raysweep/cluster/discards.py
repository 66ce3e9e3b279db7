"""Checkpoints that no trial needs any more, until a torn end of the journal could not bring them back."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from raysweep.errors import StorageError
from raysweep.storage.checkpoints import CheckpointStore
from raysweep.storage.writer import JournalWriter

log = logging.getLogger("raysweep")


class Discards:
    """A line of checkpoints. `uris`: those that an earlier controller may not have come to delete."""

    def __init__(self, checkpoints: CheckpointStore, writer: JournalWriter, uris: Iterable[str]) -> None:
        self._checkpoints = checkpoints
        self._writer = writer
        # With how many records of the journal must be sealed before.
        self._waiting = deque((0, uri) for uri in uris)
        self._under_way: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, uri: str) -> None:
        """What was written last makes this one needless."""
        self._waiting.append((self._writer.written, uri))

    def take_due(self) -> list[str]:
        """Take out those whose records are sealed by now."""
        due: list[str] = []
        while self._waiting and self._waiting[0][0] <= self._writer.sealed:
            due.append(self._waiting.popleft()[1])
        self._under_way.update(due)
        return due

    def undeleted(self) -> list[str]:
        """Those in the line, and those that are being deleted."""
        return [*self._under_way.copy(), *(uri for _, uri in self._waiting)]

    def delete(self, uris: Iterable[str]) -> None:
        """Delete them, which may take long; what cannot be deleted is said."""
        for uri in uris:
            try:
                self._checkpoints.delete(uri)
            except StorageError as error:
                # Nothing refers to it any more: until it is removed by hand it costs space, and nothing else.
                log.warning("checkpoint %s was not deleted: %s", uri, error)
            self._under_way.discard(uri)
