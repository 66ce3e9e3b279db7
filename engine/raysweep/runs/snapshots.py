"""Snapshots of a sweep's state in its folder: a reader starts from one and replays less of the journal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from raysweep.storage.formats import other_format
from raysweep.storage.objects.sealed import seal_parts, sealed_start
from raysweep.storage.objects.store import Store

SNAPSHOT_FORMAT = 7
"""Raise it with any change of the fields of the state."""
SNAPSHOTS_KEPT = 2
_STATE: Final = b',"state":'


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The newest snapshot that could be used, if any, and what was wrong with newer ones."""

    number: int
    """The journal segment up to which (inclusive) the state was built; 0 without a snapshot."""
    state: bytes | None
    """Its JSON text, as it was written (`core.state.frozen`)."""
    notes: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()
    """Checkpoints that nothing needed any more by then, and that were perhaps not deleted yet."""


def decode_snapshot(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The fields of a stored snapshot before its state, and the state as text; empty where it is damaged."""
    start = sealed_start(data)
    if start is None:
        return {}, b""
    # Within a string the quotes are escaped: the first is the field.
    begin = data.find(_STATE, start)
    if begin < 0:
        return orjson.loads(data[start:-1]), b""
    return orjson.loads(data[start:begin] + b"}"), data[begin + len(_STATE) : -2]


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
            head, state = decode_snapshot(data)
            if head.get("format", SNAPSHOT_FORMAT) != SNAPSHOT_FORMAT:
                problem = other_format(head["format"], SNAPSHOT_FORMAT)
                notes.append(f"{self._store.url}/{key} {problem}; the journal is replayed instead")
                continue
            if head.get("number") == number:
                discarded = tuple(head.get("discarded", ()))
                return Snapshot(number=number, state=state, notes=tuple(notes), discarded=discarded)
            notes.append(
                f"{self._store.url}/{key} is damaged; an older snapshot or the journal is used instead"
            )
        return Snapshot(number=0, state=None, notes=tuple(notes))

    def write(self, number: int, parts: Iterable[bytes], discarded: Sequence[str] = ()) -> None:
        """Keep the state as of journal segment `number` (inclusive); delete older snapshots but one.

        Args:
            number: Of the segment.
            parts: The state as JSON text, in parts.
            discarded: See `Snapshot`.
        """
        head = orjson.dumps({"format": SNAPSHOT_FORMAT, "number": number, "discarded": discarded})
        self._store.put(self._key(number), seal_parts([head[:-1], _STATE, *parts, b"}"]))
        old = sorted(self._numbers(), reverse=True)[SNAPSHOTS_KEPT:]
        self._store.delete(*(self._key(each) for each in old))

    def _numbers(self) -> list[int]:
        names = (info.key.rpartition("/")[2] for info in self._store.list(self._folder))
        return [int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()]

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"
