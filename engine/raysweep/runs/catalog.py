"""The catalog: what lists show of the runs that have ended, in one object for each name.

    <storage_path>/catalog/<slug of the name>.json

A year of nights is a thousand runs, and each of them takes three requests; a list of them all takes one for
each name so. Nothing depends on it: a run without an entry is read by itself. An entry is written after the
outcome of its run, and taken out before and after that outcome goes: a process that is slow to write it
looks once more whether the outcome is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import random
from typing import Any, Final, TypeVar

import orjson

from raysweep.documents.stored_paths import to_uri
from raysweep.errors import StorageError
from raysweep.outcome import GateOutcome, Standing
from raysweep.outcome.places import gate_with
from raysweep.outcome.record import Record
from raysweep.storage.objects.parallel import each_of
from raysweep.storage.objects.sealed import seal, unseal
from raysweep.storage.objects.store import Store

FOLDER: Final = "catalog"
FORMAT: Final = 1
MOST: Final = 3_000
"""Runs of one name that have an entry: those that ended last."""
_TRIES: Final = 30
_PAUSE_S: Final = 0.02
_DIGEST_CHARACTERS: Final = 11
"""Of an id, after its stem: a dash and ten hex digits."""
_Kept = TypeVar("_Kept", bound=Record)
_Entries = dict[str, dict[str, Any]]


def stem_of(run_id: str) -> str:
    """The slug of a run's name, by its id; empty for a folder that is no run's."""
    has_dash = run_id[-_DIGEST_CHARACTERS:-10] == "-"
    return run_id[:-_DIGEST_CHARACTERS] if has_dash else ""


def catalog_key(run_id: str) -> str:
    """The key of the catalog that has this run's entry."""
    return f"{FOLDER}/{stem_of(run_id)}.json"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The entries of some names, as they are stored; what is read of one is None where it has none."""

    url: str = ""
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def run(self, run_id: str) -> Standing | None:
        """The row of a run in lists."""
        found = _read(Standing, self.entries.get(run_id, {}).get("run"))
        return found.model_copy(update={"uri": f"{self.url}/{run_id}"}) if found is not None else None

    def verdict(self, sweep_id: str, gate: str) -> GateOutcome | None:
        """The verdict of a sweep's gate; one that was to be approved is not here."""
        found = _read(GateOutcome, self.entries.get(sweep_id, {}).get("verdicts", {}).get(gate))
        return gate_with(found, lambda name: to_uri(self.url, name)) if found is not None else None


def read_catalog(store: Store, run_ids: Iterable[str]) -> Catalog:
    """The entries of these runs and of all others of their names. Raises: StorageError."""
    keys = sorted({catalog_key(run_id) for run_id in run_ids if stem_of(run_id)})
    entries: _Entries = {}
    for found in each_of(store, store.get, keys):
        entries |= _decode(found)
    return Catalog(store.url, entries)


def keep_run(store: Store, run: Standing, outcome_key: str) -> None:
    """Note how a run ended, once its outcome is stored under this key. Raises: StorageError.

    A process that was suspended meanwhile does not replace the end that a later controller noted.
    """
    fields = run.row().model_dump(mode="json", exclude={"uri"}, exclude_defaults=True)

    def change(entry: dict[str, Any]) -> dict[str, Any]:
        is_late = entry.get("run", {}).get("generation", 0) > run.generation
        return entry if is_late else entry | {"run": fields}

    _change(store, run.run_id, change)
    if not store.exists(outcome_key):  # it continues already
        drop_run(store, run.run_id)


def keep_verdict(store: Store, sweep_id: str, gate: str, verdict: GateOutcome) -> None:
    """Note what a gate decided, as it is stored. Raises: StorageError."""
    if verdict.approval is not None:
        return  # someone decides about it later
    fields = orjson.loads(verdict.to_json())
    _change(store, sweep_id, lambda entry: entry | {"verdicts": entry.get("verdicts", {}) | {gate: fields}})


def drop_run(store: Store, run_id: str) -> None:
    """Take a run out: its outcome goes. Raises: StorageError."""
    _change(store, run_id, lambda _: {})


def _change(store: Store, run_id: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace a run's entry; an empty one is none. Processes that do so at once lose nothing."""
    if not stem_of(run_id):
        return
    key = catalog_key(run_id)
    for _ in range(_TRIES):
        found = store.get_versioned(key)
        entries = _decode(found[0] if found is not None else None)
        before = entries.get(run_id, {})
        entry = change(before)
        if entry == before:
            return
        entries.pop(run_id, None)
        if entry:
            entries[run_id] = entry
        data = seal(orjson.dumps({"format": FORMAT, "entries": dict(list(entries.items())[-MOST:])}))
        if store.put_if_version(key, data, found[1] if found is not None else None):
            return
        time.sleep(_PAUSE_S * (1.0 + random()))
    raise StorageError(
        f"{store.url}/{key}", f"was changed by others {_TRIES} times meanwhile", "try it again"
    )


def _decode(data: bytes | None) -> _Entries:
    """The entries; none where it is damaged, or of another format: it is written anew then."""
    whole = unseal(data) if data is not None else None
    try:
        fields = orjson.loads(whole) if whole is not None else {}
    except orjson.JSONDecodeError:
        return {}
    return dict(fields.get("entries", {})) if fields.get("format") == FORMAT else {}


def _read(model: type[_Kept], fields: Any) -> _Kept | None:
    try:
        return model.model_validate(fields) if fields is not None else None
    except ValueError:
        return None
