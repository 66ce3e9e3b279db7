"""Which models the champions of a line have, and which of them the registry has as its champion.

    <storage_path>/registry/<name>/<metric>.<mode>[.<data>].json

The champion's file says who is champion, this one where its model is. `sync` brings the registry to where
the two are: after a promotion, a rollback, or a night in which the registry did not answer. A champion
without a model waits for its training; the registry then keeps the one before it.

Which registry that is comes with each call, from the pipeline or an argument: the file cannot name the server
that gets this user's credentials, or the class that runs here. It carries the hash of its own content.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import orjson
from pydantic import Field, ValidationError

from raysweep.documents.digest import digest_of
from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.errors import StorageError, StorageUnavailableError, one_line
from raysweep.hooks.base import SinkDownError
from raysweep.hooks.model_registry import RegistrySpec, Release, make_registry
from raysweep.outcome import Record
from raysweep.runs.across_runs.champions import FOLDER as CHAMPIONS
from raysweep.runs.across_runs.champions import Champion, Line
from raysweep.runs.across_runs.line_changes import read_newest
from raysweep.storage.formats import OTHER_FIX, other_format
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.sealed import has_seal, seal
from raysweep.storage.objects.store import Store

log = logging.getLogger("raysweep")
FOLDER: Final = "registry"
FORMAT_VERSION: Final = 2
UNNAMED: Final = "name the registry: --registry night.yaml, the pipeline's file"
GIVE_UP_AFTER_S: Final = 60.0
_TRIES: Final = 50
_PAUSE_S: Final = 0.02
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 10.0


class Model(Record):
    """A champion's model."""

    source: str
    """Its URI; in the file relative to the store, if it lies there."""
    run_id: str = ""
    """The training; empty where it is a trial's checkpoint."""


class Registrations(Record):
    """What a line's file holds."""

    models: dict[str, Model] = Field(default_factory=dict)
    """By the id of the champion's release."""
    done: str = ""
    """The release that the registry has as its champion."""
    version: str = ""
    """What the registry calls it."""
    registry_digest: str = ""
    """Of the registry that has it so: another one does not have it yet."""
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """How the registry stands."""

    version: str = ""
    """The version that is champion; empty while there is none."""
    pending: str = ""
    """Why the registry is not where it is to be; empty where it is."""

    def __str__(self) -> str:
        return f"registry pending: {self.pending}" if self.pending else f"registered: version {self.version}"


def release_id(line: Line, sweep_id: str, at: float) -> str:
    """The id of a champion: of its line, its sweep, and the moment in which it became champion."""
    return digest_of([line.key, sweep_id, at])[:16]


def add_model(store: Store, line: Line, champion: str, source: str, run_id: str = "") -> None:
    """Write down where a champion's model is, before a registry hears of it.

    Args:
        store: Where the sweeps are.
        line: Which champions.
        champion: Its `release_id`.
        source: The model's URI.
        run_id: The training.

    Raises: StorageError.
    """
    model = Model(source=to_reference(store.url, source), run_id=run_id)

    def add(found: Registrations | None) -> Registrations:
        known = found or Registrations()
        return known.model_copy(update={"models": known.models | {champion: model}})

    _change(store, line, add)


def sync(
    store: Store, line: Line, registry: RegistrySpec | None, *, give_up_after_s: float = GIVE_UP_AFTER_S
) -> Synced | None:
    """Bring the registry to the champion that there is; None: no model of this line is registered.

    Asked again it does nothing that is done. A registry that does not answer is asked again for a while; then
    that is in `pending`, and the next call completes it.

    Args:
        store: Where the sweeps are.
        line: Which champions.
        registry: The registry; None: it is only said how it stands.
        give_up_after_s: How long it is asked.

    Raises: StorageError: The champion's file or this one cannot be read or written, or is an older copy.
    """
    with ExitStack() as opened:
        return _sync(store, line, registry, time.monotonic() + give_up_after_s, opened)


def _sync(
    store: Store, line: Line, spec: RegistrySpec | None, until: float, opened: ExitStack
) -> Synced | None:
    wait_s, registry = _FIRST_WAIT_S, None
    digest = digest_of(spec.model_dump(mode="json")) if spec is not None else ""
    while True:
        found, champion = read_registrations(store, line), read_newest(store, line).champion
        if found is None or champion is None:
            return None
        wanted = release_id(line, champion.sweep_id, champion.at)
        model = found.models.get(wanted)
        if model is None:
            night = champion.key or champion.sweep_id
            return Synced(version=found.version, pending=f"the champion, of {night}, has no model yet")
        if found.done == wanted and digest in ("", found.registry_digest):
            return Synced(version=found.version)
        if spec is None:
            return Synced(version=found.version, pending=UNNAMED)
        try:
            if registry is None:
                registry = make_registry(spec)
                opened.callback(getattr(registry, "close", lambda: None))
            version = str(registry.make_champion(_release(store, line, champion, wanted, model)))
        except SinkDownError as error:
            if time.monotonic() + wait_s > until:
                return Synced(version=found.version, pending=one_line(str(error), 200))
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            continue
        except Exception as error:  # noqa: BLE001  whatever a user's class raises
            text = f"{type(error).__name__}: {error}"
            return Synced(version=found.version, pending=one_line(text, 200))
        # The champion may have changed meanwhile: the next round sees it.
        _change(store, line, _done(wanted, version, digest))


def read_registrations(store: Store, line: Line) -> Registrations | None:
    """What a line's file holds; None without one. Raises: StorageError."""
    return _decode(store, line, store.get(_key(line)))


def _done(wanted: str, version: str, digest: str) -> Callable[[Registrations | None], Registrations]:
    def done(found: Registrations | None) -> Registrations:
        known = found or Registrations()
        return known.model_copy(update={"done": wanted, "version": version, "registry_digest": digest})

    return done


def _release(store: Store, line: Line, champion: Champion, wanted: str, model: Model) -> Release:
    return Release(
        id=wanted,
        name=line.name,
        metric=line.metric,
        mode=line.mode,
        data=line.data,
        source=to_uri(store.url, model.source),
        run_id=model.run_id,
        sweep_id=champion.sweep_id,
        trial_id=champion.trial_id,
        key=champion.key,
        mean=champion.mean,
        config=champion.config,
        code_digest=champion.code_digest,
        spec_digest=champion.spec_digest,
    )


def _change(store: Store, line: Line, make: Callable[[Registrations | None], Registrations]) -> None:
    key = _key(line)
    for tried in range(_TRIES):
        found = store.get_versioned(key)
        after = make(_decode(store, line, found[0] if found else None))
        data = seal(after.model_dump_json(indent=1).encode())
        if store.put_if_version(key, data, found[1] if found else None):
            return
        time.sleep(_PAUSE_S * (tried + 1))
    raise StorageUnavailableError(
        f"{store.url}/{key}", f"changed {_TRIES} times while it was written", "try again"
    )


def _decode(store: Store, line: Line, data: bytes | None) -> Registrations | None:
    if data is None:
        return None
    path = f"{store.url}/{_key(line)}"
    try:
        found = Registrations.model_validate(orjson.loads(data))
    except (orjson.JSONDecodeError, ValidationError) as error:
        raise StorageError(path, "is damaged", RESTORE_FIX) from error
    if found.format_version != FORMAT_VERSION:
        raise StorageError(path, other_format(found.format_version, FORMAT_VERSION), OTHER_FIX)
    if not has_seal(data):
        raise StorageError(path, "is damaged (a byte of it is not as it was written)", RESTORE_FIX)
    return found


def _key(line: Line) -> str:
    return f"{FOLDER}/{line.key.removeprefix(f'{CHAMPIONS}/')}"
