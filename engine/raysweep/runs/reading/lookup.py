"""Runs by id, by the beginning of an id, or by the URI of their folder. Needs no Ray."""

from __future__ import annotations

import difflib
from typing import Final

from raysweep.errors import SweepNotFoundError
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.runs.training import RunFolder, list_trainings
from raysweep.storage.objects.opening import open_store

DEFAULT_STORAGE: Final = "~/raysweep"


def find_sweep(name: str, storage: str | None) -> SweepFolder:
    """The folder of a sweep named by its id, an unambiguous beginning of it, or its folder's URI.

    Raises:
        SweepNotFoundError: None, or several; names those that come near.
    """
    parent, slash, last = name.rstrip("/").rpartition("/")
    store = open_store((parent or "/") if slash else storage or DEFAULT_STORAGE)
    wanted = last if slash else name
    if wanted and wanted not in (".", "..") and store.exists(f"{wanted}/sweep.json"):
        return SweepFolder(store, wanted)
    known = list_sweeps(store)
    found = [sweep for sweep in known if wanted and sweep.startswith(wanted)]
    if len(found) == 1:
        return SweepFolder(store, found[0])
    raise SweepNotFoundError(wanted or name, store.url, _fix(wanted, known, found))


def find_training(name: str, storage: str | None) -> RunFolder | None:
    """The folder of a training run, named as a sweep is; None where there is none.

    Raises:
        SweepNotFoundError: It may be one of several; names them.
    """
    parent, slash, last = name.rstrip("/").rpartition("/")
    store = open_store((parent or "/") if slash else storage or DEFAULT_STORAGE)
    wanted = last if slash else name
    found = [run for run in list_trainings(store) if wanted and run.startswith(wanted)]
    if wanted in found:
        found = [wanted]
    if len(found) > 1:
        raise SweepNotFoundError(wanted, store.url, _fix(wanted, found, found))
    return RunFolder(store, found[0]) if found else None


def _fix(wanted: str, known: list[str], found: list[str]) -> str:
    if found:
        return f"it may be {_listed(found)}: give more of the id"
    if not known:
        return "there is no sweep at all: check the storage path"
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    near += [sweep for sweep in known if sweep.rpartition("-")[0] == wanted and sweep not in near]
    if near:
        return f"did you mean {_listed(near)}?"
    return f"there are {_listed(known)}; or check the storage path"


def _listed(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
