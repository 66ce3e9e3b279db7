"""Champions: the best config that the nights have found, each line of them in a file of its own.

    <storage_path>/champions/<name>/<metric>.<mode>.json             in one line
    <storage_path>/champions/<name>/<metric>.<mode>.<data>.json      on a data set that the gate names

Scores of another metric, mode or data set cannot be compared: a gate that has one of these changed begins a
new line, and leaves the old one as it is.

A file is replaced only by a put that names the version it was made from. Of two nights that end at once one
comes first, and the other decides again against what that one wrote: both are in the history. A file of
another format is refused, and never written over. What lies in the store is named relative to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.specs.identity import file_name
from raysweep.storage.formats import other_format
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.store import Store

FOLDER: Final = "champions"
FORMAT_VERSION: Final = 3
NIGHTS_KEPT: Final = 60
_TRIES: Final = 50
_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Which champions can be compared: those of one name, metric, mode and data set."""

    name: str
    metric: str
    mode: str
    data: str = ""
    """The data set that scores are measured on, as the gate names it."""

    @property
    def key(self) -> str:
        """Where its file lies in the store."""
        parts = [file_name(self.metric), self.mode, *([file_name(self.data)] if self.data else [])]
        return f"{FOLDER}/{file_name(self.name)}/{'.'.join(parts)}.json"

    def __str__(self) -> str:
        on = f" on {self.data}" if self.data else ""
        return f"{self.metric} ({self.mode}){on}"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Night(_Record):
    """One night's gate. Times are UTC seconds."""

    sweep_id: str
    key: str = ""
    gate: str = ""
    """Which of the sweep's gates."""
    at: float
    promoted: bool
    mean: float | None = None
    """Of the night's best candidate."""
    why: str = ""


class Champion(_Record):
    """The best config so far."""

    name: str
    metric: str
    mode: str
    data: str = ""
    """The data set that its scores were measured on, as its gate names it."""
    config: dict[str, Any]
    mean: float
    spread: float
    """The standard deviation over the seeds."""
    n: int
    """How many seeds."""
    metrics: dict[str, Any] = {}
    sweep_id: str
    """The sweep that found it."""
    key: str = ""
    checkpoint_uri: str | None = None
    """In the file relative to the store, if it lies there."""
    at: float
    """When it became champion."""
    replaced: Champion | None = None
    """The champion before it, of another sweep."""

    @property
    def line(self) -> Line:
        """With which others it can be compared."""
        return Line(name=self.name, metric=self.metric, mode=self.mode, data=self.data)


class ChampionRecord(_Record):
    """What a file holds: the champion of a line, if there is one, and the newest nights, in order."""

    champion: Champion | None = None
    history: tuple[Night, ...] = ()
    format_version: int = FORMAT_VERSION

    def night(self, sweep_id: str, gate: str = "") -> Night | None:
        """What a gate of a sweep decided."""
        nights = (
            night for night in reversed(self.history) if (night.sweep_id, night.gate) == (sweep_id, gate)
        )
        return next(nights, None)

    def champion_beside(self, sweep_id: str) -> Champion | None:
        """The champion that a sweep has to beat: of another sweep than itself."""
        champion = self.champion
        return champion if champion is None or champion.sweep_id != sweep_id else champion.replaced

    def after(self, night: Night, champion: Champion | None) -> ChampionRecord:
        """The record with one more night, and its champion if it has a new one."""
        history = (*self.history, night)[-NIGHTS_KEPT:]
        if champion is None:
            return self.model_copy(update={"history": history})
        before = self.champion_beside(champion.sweep_id)
        if before is not None:
            before = before.model_copy(update={"replaced": None})
        champion = champion.model_copy(update={"replaced": before})
        return ChampionRecord(champion=champion, history=history)


Decide = Callable[[ChampionRecord], tuple[Night, Champion | None]]


def read_champion(store: Store, line: Line) -> ChampionRecord:
    """The champion of this line, and its history; both empty before the first night.

    Raises:
        StorageError: It cannot be read, is damaged, or has another format.
    """
    return _read(store, line.key, store.get(line.key))


def list_champions(store: Store, name: str | None = None) -> tuple[Champion, ...]:
    """The champions of all lines of this name, the newest first; without a name, of all names.

    Raises:
        StorageError: One cannot be read, is damaged, or has another format.
    """
    folder = FOLDER if name is None else f"{FOLDER}/{file_name(name)}"
    keys = sorted(info.key for info in store.list(folder) if info.key.endswith(".json"))
    records = (_read(store, key, store.get(key)) for key in keys)
    found = [record.champion for record in records if record.champion is not None]
    return tuple(sorted(found, key=lambda champion: -champion.at))


def add_night(store: Store, line: Line, sweep_id: str, decide: Decide, *, gate: str = "") -> ChampionRecord:
    """Add a night, once. `decide` is asked again where another night has come first.

    Args:
        store: Where the sweeps are.
        line: Which champions it is compared with.
        sweep_id: The night: one that is in the history already changes nothing.
        decide: From the record as it is, the night to add, and the new champion if it has one.
        gate: Which of the sweep's gates.

    Raises:
        StorageError: It cannot be read or written, or has another format.
    """
    key = line.key
    for tried in range(_TRIES):
        found = store.get_versioned(key)
        record = _read(store, key, found[0] if found else None)
        if record.night(sweep_id, gate) is not None:
            return record
        after = record.after(*decide(record))
        if store.put_if_version(key, _encode(store, after), found[1] if found else None):
            return after
        time.sleep(_PAUSE_S * (tried + 1))
    raise StorageUnavailableError(
        f"{store.url}/{key}", f"changed {_TRIES} times while it was written", "try again"
    )


def _encode(store: Store, record: ChampionRecord) -> bytes:
    stored = _with_uris(record, lambda uri: to_reference(store.url, uri))
    return stored.model_dump_json(indent=1).encode()


def _read(store: Store, key: str, data: bytes | None) -> ChampionRecord:
    if data is None:
        return ChampionRecord()
    path = f"{store.url}/{key}"
    try:
        fields = orjson.loads(data)
        version = fields.get("format_version") if isinstance(fields, dict) else None
        if version == FORMAT_VERSION:
            record = ChampionRecord.model_validate(fields)
            return _with_uris(record, lambda reference: to_uri(store.url, reference))
    except (orjson.JSONDecodeError, ValidationError) as error:
        text = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise StorageError(path, f"is damaged ({text})", RESTORE_FIX) from error
    problem = other_format(version, FORMAT_VERSION, name="format_version")
    raise StorageError(path, problem, "use the version of raysweep that wrote it, or move the file away")


def _with_uris(record: ChampionRecord, change: Callable[[str], str]) -> ChampionRecord:
    if record.champion is None:
        return record
    (champion, *before) = (_with_uri(each, change) for each in _both(record.champion))
    champion = champion.model_copy(update={"replaced": before[0] if before else None})
    return record.model_copy(update={"champion": champion})


def _both(champion: Champion) -> Iterator[Champion]:
    yield champion
    if champion.replaced is not None:
        yield champion.replaced


def _with_uri(champion: Champion, change: Callable[[str], str]) -> Champion:
    uri = champion.checkpoint_uri
    return champion if uri is None else champion.model_copy(update={"checkpoint_uri": change(uri)})
