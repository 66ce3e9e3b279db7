"""Snapshots of a sweep's state in its folder: a reader starts from one and replays less of the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from raysweep.storage.formats import other_format
from raysweep.storage.objects.sealed import decode_sealed, seal_parts
from raysweep.storage.objects.store import Store

SNAPSHOT_FORMAT = 4
"""Raise it with any change of the fields of the state."""
SNAPSHOTS_KEPT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The newest snapshot that could be used, if any, and what was wrong with newer ones."""

    number: int
    """The journal segment up to which (inclusive) the state was built; 0 without a snapshot."""
    state: dict[str, Any] | None
    notes: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()
    """Checkpoints that nothing needed any more by then, and that were perhaps not deleted yet."""


class SnapshotFolder:
    """`<storage_path>/<sweep_id>/snapshots/`."""

    def __init__(self, store: Store, sweep_id: str) -> None:
        self._store = store
        self._folder = f"{sweep_id}/snapshots"

    def read_newest(self) -> Snapshot:
        """The newest snapshot whose hash is right.

        Damaged ones are skipped with a note: they can be rebuilt.
        """
        notes: list[str] = []
        for number in sorted(self._numbers(), reverse=True):
            key = self._key(number)
            data = self._store.get(key)
            if data is None:
                continue
            body = decode_sealed(data)
            if body is not None and body.get("format") != SNAPSHOT_FORMAT:
                problem = other_format(body.get("format"), SNAPSHOT_FORMAT)
                notes.append(f"{self._store.url}/{key} {problem}; the journal is replayed instead")
                continue
            if body is not None and body["number"] == number:
                discarded = tuple(body.get("discarded", ()))
                return Snapshot(number=number, state=body["state"], notes=tuple(notes), discarded=discarded)
            notes.append(
                f"{self._store.url}/{key} is damaged; an older snapshot or the journal is used instead"
            )
        return Snapshot(number=0, state=None, notes=tuple(notes))

    def write(self, number: int, state: Mapping[str, Any]) -> None:
        """Keep the state as of journal segment `number` (inclusive); delete older snapshots but one."""
        self.write_parts(number, [orjson.dumps(state)])

    def write_parts(self, number: int, parts: Iterable[bytes], discarded: Sequence[str] = ()) -> None:
        """As `write`, of a state that is JSON text in parts; see `Snapshot.discarded`."""
        tail = b',"discarded":%b}' % orjson.dumps(discarded)
        body = [b'{"format":%d,"number":%d,"state":' % (SNAPSHOT_FORMAT, number), *parts, tail]
        self._store.put(self._key(number), seal_parts(body))
        old = sorted(self._numbers(), reverse=True)[SNAPSHOTS_KEPT:]
        self._store.delete(*(self._key(each) for each in old))

    def _numbers(self) -> list[int]:
        names = (info.key.rpartition("/")[2] for info in self._store.list(self._folder))
        return [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()]

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"
