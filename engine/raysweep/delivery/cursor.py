"""The progress of a callback: a small object beside the sweep's journal.

It is written before the first event is delivered, and then about once a second. A process that dies has
delivered at most what came since; that is delivered again, with the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from raysweep.delivery.feed import START, Key
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.sealed import decode_sealed, encode_sealed

FORMAT = 1
FOLDER = "hooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The last event that counts as delivered, and how many were given up."""

    key: Key = START
    skipped: int = 0


class CursorFile:
    """`<storage_path>/<sweep_id>/hooks/<name>.json`."""

    def __init__(self, folder: SweepFolder, name: str) -> None:
        self._store = folder.store
        self._key = f"{folder.sweep_id}/{FOLDER}/{name}.json"

    def read(self) -> Cursor | None:
        """None: nothing was delivered yet. One that cannot be read counts as the start: doubles are harmless.

        Raises: StorageError.
        """
        data = self._store.get(self._key)
        if data is None:
            return None
        body = decode_sealed(data)
        if body is None or body.get("format") != FORMAT:
            return Cursor()
        record, index = body["key"]
        return Cursor(key=(record, index), skipped=body["skipped"])

    def write(self, cursor: Cursor) -> None:
        """Raises: StorageError."""
        body = {"format": FORMAT, "key": list(cursor.key), "skipped": cursor.skipped}
        self._store.put(self._key, encode_sealed(body))
