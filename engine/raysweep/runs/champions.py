"""Champions: the best config that the nights have found, in `<storage_path>/champions/<name>.json`.

The object is replaced only by a put that names the version it was made from. Of two nights that end at once
one comes first, and the other decides again against what that one wrote: both are in the history.

A file belongs to one name. Earlier versions kept names of one slug, and long names of one beginning, in one
file: what there is of a name in it is taken along, and what belongs to another name stays that one's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.spec.identity import file_name, former_slug
from raysweep.storage.segment import RESTORE_FIX
from raysweep.storage.store import Store

FOLDER: Final = "champions"
NIGHTS_KEPT: Final = 60
_TRIES: Final = 50
_PAUSE_S: Final = 0.02


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Night(_Record):
    """One night's gate. Times are UTC seconds."""

    sweep_id: str
    key: str = ""
    gate: str = ""
    """Which of the sweep's gates; empty in histories of earlier versions."""
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
    at: float
    """When it became champion."""
    replaced: Champion | None = None
    """The champion before it, of another sweep."""


class ChampionRecord(_Record):
    """What `champions/<name>.json` holds: the champion, if there is one, and the newest nights, in order."""

    champion: Champion | None = None
    history: tuple[Night, ...] = ()
    format_version: int = 2

    def night(self, sweep_id: str, gate: str = "") -> Night | None:
        """What a gate of a sweep decided."""
        nights = (
            night for night in reversed(self.history) if (night.sweep_id, night.gate) == (sweep_id, gate)
        )
        return next(nights, None)

    def champion_beside(self, sweep_id: str) -> Champion | None:
        """The champion that a sweep has to beat: of another sweep than itself."""
        champion = self.champion
        if champion is None or champion.sweep_id != sweep_id or self.format_version < 2:
            return champion
        return champion.replaced

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


def read_champion(store: Store, name: str) -> ChampionRecord:
    """The champion of this name, and its history; both empty before the first night.

    Raises:
        StorageError: It cannot be read, or is damaged.
    """
    return _read(store, name, store.get(champion_key(name)))


def add_night(store: Store, name: str, sweep_id: str, decide: Decide, *, gate: str = "") -> ChampionRecord:
    """Add a night, once. `decide` is asked again where another night has come first.

    Args:
        store: Where the sweeps are.
        name: The champion's name.
        sweep_id: The night: one that is in the history already changes nothing.
        decide: From the record as it is, the night to add, and the new champion if it has one.
        gate: Which of the sweep's gates.

    Raises:
        StorageError: It cannot be read or written.
    """
    key = champion_key(name)
    for tried in range(_TRIES):
        found = store.get_versioned(key)
        record = _read(store, name, found[0] if found else None)
        if record.night(sweep_id, gate) is not None:
            return record
        if found is not None:
            _keep_others(store, name, found[0])
        after = record.after(*decide(record))
        if store.put_if_version(key, after.model_dump_json(indent=1).encode(), found[1] if found else None):
            return after
        time.sleep(_PAUSE_S * (tried + 1))
    raise StorageUnavailableError(
        f"{store.url}/{key}", f"changed {_TRIES} times while it was written", "try again"
    )


def champion_key(name: str) -> str:
    """Where it lies in the store."""
    return f"{FOLDER}/{file_name(name)}.json"


def _read(store: Store, name: str, data: bytes | None) -> ChampionRecord:
    """What is there of this name: in its own file, or in the one that it once shared."""
    if data is not None:
        record = _parse(store, champion_key(name), data)
        return record if _is_of(record, name) else ChampionRecord()
    shared = f"{FOLDER}/{former_slug(name)}.json"
    found = store.get(shared) if shared != champion_key(name) else None
    record = _parse(store, shared, found) if found is not None else ChampionRecord()
    return record if record.champion is not None and record.champion.name == name else ChampionRecord()


def _keep_others(store: Store, name: str, data: bytes) -> None:
    """Before a file is replaced: what belongs to another name gets one of its own."""
    record = _parse(store, champion_key(name), data)
    if record.champion is not None and not _is_of(record, name):
        store.put_if_absent(champion_key(record.champion.name), data, durable=True)


def _is_of(record: ChampionRecord, name: str) -> bool:
    return record.champion is None or record.champion.name == name


def _parse(store: Store, key: str, data: bytes) -> ChampionRecord:
    try:
        return ChampionRecord.model_validate_json(data)
    except ValidationError as error:
        raise StorageError(
            f"{store.url}/{key}", f"is damaged ({error.errors()[0]['msg']})", RESTORE_FIX
        ) from error
