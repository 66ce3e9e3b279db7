"""Deletes a sweep's folder, or moves it out of its key's way. `removal` first checks that it is free."""

from __future__ import annotations

from dataclasses import replace

from raysweep.errors import StorageError
from raysweep.runs.catalog import drop_run
from raysweep.runs.folder import RECORDS, Leaving, SweepFolder, encode_spec, name_of
from raysweep.storage.objects.identity import unmark_if_empty
from raysweep.storage.objects.store import ObjectInfo

ASIDE = "aside"
"""The folder of a storage path for sweeps that cannot be resumed: nothing that ran is ever deleted."""
_RANKS = 5
_JOURNAL_RANK = 3


def withdraw(folder: SweepFolder) -> None:
    """Delete a sweep that never produced a result, sweep.json last; safe to repeat after a crash.

    Raises: StorageError if the sweep has an outcome.
    """
    if folder.store.exists(f"{folder.sweep_id}/outcome.json"):
        raise StorageError(folder.uri_of("outcome.json"), "exists: a sweep with a result is not withdrawn")
    _delete_all(folder)
    unmark_if_empty(folder.store)


def _delete_all(folder: SweepFolder) -> None:
    drop_run(folder.store, folder.sweep_id)
    infos = list(folder.store.list(folder.sweep_id))
    infos.sort(key=lambda info: _order(folder.sweep_id, info))
    for rank in range(_RANKS):
        keys = [info.key for info in infos if _order(folder.sweep_id, info)[0] == rank]
        if rank != _JOURNAL_RANK:
            folder.store.delete(*keys)
            continue
        for key in keys:  # one by one: a bulk delete keeps no order
            folder.store.delete(key)
    drop_run(folder.store, folder.sweep_id)


def put_aside(folder: SweepFolder) -> str:
    """Move a sweep that cannot be resumed out of its key's way, whole; returns the URI where it is now.

    Everything is copied before anything is deleted, sweep.json is deleted last: safe to repeat after a
    crash, which may leave a second copy.
    """
    target = _copy_to(folder, _next_aside(folder))
    withdraw(folder)
    return target


def archive(folder: SweepFolder, by: str) -> str:
    """As `put_aside`, of any sweep; repeated after a crash, it completes what was begun.

    From its beginning to its end no process can run the sweep: sweep.json says so.
    """
    record = folder.read_spec()
    if record is None:
        raise StorageError(folder.uri_of("sweep.json"), "is missing: there is no sweep to put aside")
    if record.leaving is None or not record.leaving.target:
        record = replace(record, leaving=Leaving(by=by, target=_next_aside(folder)))
        folder.replace_spec(record)
    assert record.leaving is not None
    target = _copy_to(folder, record.leaving.target)
    whole = replace(record, leaving=None)
    folder.store.put(f"{record.leaving.target}/{name_of(whole)}", encode_spec(whole), durable=True)
    _delete_all(folder)
    return target


def remove(folder: SweepFolder, by: str) -> None:
    """Delete the sweep and all that is stored of it; repeated after a crash, complete what was begun."""
    record = folder.read_spec()
    if record is not None and record.leaving is None:
        folder.replace_spec(replace(record, leaving=Leaving(by=by)))
    _delete_all(folder)


def _next_aside(folder: SweepFolder) -> str:
    taken = folder.store.list_folders(f"{ASIDE}/{folder.sweep_id}")
    highest = max((int(name) for name in taken if name.isdigit()), default=0)
    return f"{ASIDE}/{folder.sweep_id}/{highest + 1:03d}"


def _copy_to(folder: SweepFolder, target: str) -> str:
    for info in list(folder.store.list(folder.sweep_id)):
        chunks = folder.store.get_chunks(info.key)
        if chunks is not None:
            folder.store.put_chunks(f"{target}/{info.key.removeprefix(f'{folder.sweep_id}/')}", chunks)
    return f"{folder.store.url}/{target}"


def _order(sweep_id: str, info: ObjectInfo) -> tuple[int, str]:
    """Manifests go before the files they promise; the journal goes from its end and never has a gap."""
    name = info.key.removeprefix(f"{sweep_id}/")
    part, _, rest = name.partition("/")
    inverted = "".join(chr(0x10FFFF - ord(letter)) for letter in name)
    if name in RECORDS:
        return _RANKS - 1, name
    if part == "journal":
        return _JOURNAL_RANK, inverted
    if part == "checkpoints":
        return (1 if rest.count("/") == 1 and rest.endswith(".json") else 2), name
    return 0, name
