"""Champions: the best config that the nights have found, in `<storage_path>/champions/<name>.json`.

The object is replaced only by a put that names the version it was made from. Of two nights that end at once
one comes first, and the other decides again against what that one wrote: both are in the history.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.spec.identity import slug
from raysweep.storage.segment import RESTORE_FIX
from raysweep.storage.store import Store

FOLDER: Final = "champions"
NIGHTS_KEPT: Final = 60
_TRIES: Final = 50
_PAUSE_S: Final = 0.02


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class Night(_Record):
    """One night's gate. Times are UTC seconds."""

    sweep_id: str
    key: str = ""
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


class ChampionRecord(_Record):
    """What `champions/<name>.json` holds: the champion, if there is one, and the newest nights, in order."""

    champion: Champion | None = None
    history: tuple[Night, ...] = ()
    format_version: int = 1

    def night(self, sweep_id: str) -> Night | None:
        """What was decided about a sweep."""
        return next((night for night in reversed(self.history) if night.sweep_id == sweep_id), None)

    def after(self, night: Night, champion: Champion | None) -> ChampionRecord:
        """The record with one more night, and its champion if it has a new one."""
        history = (*self.history, night)[-NIGHTS_KEPT:]
        return ChampionRecord(champion=champion or self.champion, history=history)


Decide = Callable[[ChampionRecord], tuple[Night, Champion | None]]


def read_champion(store: Store, name: str) -> ChampionRecord:
    """The champion of this name, and its history; both empty before the first night.

    Raises:
        StorageError: It cannot be read, or is damaged.
    """
    return _parse(store, name, store.get(champion_key(name)))


def add_night(store: Store, name: str, sweep_id: str, decide: Decide) -> ChampionRecord:
    """Add a night, once. `decide` is asked again where another night has come first.

    Args:
        store: Where the sweeps are.
        name: The champion's name.
        sweep_id: The night: one that is in the history already changes nothing.
        decide: From the record as it is, the night to add, and the new champion if it has one.

    Raises:
        StorageError: It cannot be read or written.
    """
    key = champion_key(name)
    for tried in range(_TRIES):
        found = store.get_versioned(key)
        record = _parse(store, name, found[0] if found else None)
        if record.night(sweep_id) is not None:
            return record
        after = record.after(*decide(record))
        if store.put_if_version(key, after.model_dump_json(indent=1).encode(), found[1] if found else None):
            return after
        time.sleep(_PAUSE_S * (tried + 1))
    raise StorageUnavailableError(
        f"{store.url}/{key}", f"changed {_TRIES} times while it was written", "try again"
    )


def champion_key(name: str) -> str:
    """Where it lies in the store."""
    return f"{FOLDER}/{slug(name)}.json"


def _parse(store: Store, name: str, data: bytes | None) -> ChampionRecord:
    if data is None:
        return ChampionRecord()
    try:
        return ChampionRecord.model_validate_json(data)
    except ValidationError as error:
        path = f"{store.url}/{champion_key(name)}"
        raise StorageError(path, f"is damaged ({error.errors()[0]['msg']})", RESTORE_FIX) from error
