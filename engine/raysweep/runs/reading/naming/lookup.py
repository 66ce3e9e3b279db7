"""Runs by what names them on the command line and in Python; see `references`. Needs no Ray."""

from __future__ import annotations

import difflib
from typing import Final

from raysweep.errors import SweepNotFoundError
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.runs.reading.listing import DEFAULT_STORAGE
from raysweep.runs.reading.naming.references import Reference, find_run, newest_keys, read_reference
from raysweep.runs.training import RunFolder

_LISTED: Final = 5
__all__ = ["DEFAULT_STORAGE", "find_run_folder", "find_sweep", "find_training"]


def find_sweep(name: str, storage: str | None) -> SweepFolder:
    """The folder of a sweep: by its id, an unambiguous beginning of it, its name, or its folder's URI.

    Args:
        name: `churn-0a1b2c3d4e`, `churn-0a`, `churn`, `churn@latest`, `churn@2026-11-25` (a date in the key,
            or the day on which it was started), `churn@KEY`, or a URI that ends with one of these.
        storage: The storage path; default: `~/raysweep`. A URI needs none.

    Raises:
        SweepNotFoundError: None, or several; lists those that it may be, with key, status and age.
    """
    reference = read_reference(name, storage)
    found = find_run(reference, "sweep")
    if found is not None:
        return SweepFolder(reference.store, found)
    raise SweepNotFoundError(reference.text or name, reference.store.url, _fix(reference))


def find_run_folder(name: str, storage: str | None) -> SweepFolder:
    """The folder of a sweep or, where there is none, of a training. Raises: as `find_sweep`."""
    reference = read_reference(name, storage)
    found = find_run(reference, "sweep") or find_run(reference, "train")
    if found is not None:
        return SweepFolder(reference.store, found)
    raise SweepNotFoundError(reference.text or name, reference.store.url, _fix(reference))


def find_training(name: str, storage: str | None) -> RunFolder | None:
    """The folder of a training run, named as a sweep is; None where there is none.

    Raises:
        SweepNotFoundError: It may be one of several; names them.
    """
    reference = read_reference(name, storage)
    found = find_run(reference, "train")
    return RunFolder(reference.store, found) if found is not None else None


def _fix(reference: Reference) -> str:
    keys = newest_keys(reference, "sweep") if reference.which else []
    if keys:
        return f"the newest keys of {reference.name!r} are {_listed(keys)}; or check the storage path"
    known = list_sweeps(reference.store)
    if not known:
        return "there is no sweep at all: check the storage path"
    stems = dict.fromkeys(sweep.rpartition("-")[0] for sweep in known)
    near = difflib.get_close_matches(reference.name, [*known, *stems], n=3, cutoff=0.5)
    if near:
        return f"did you mean {_listed(near)}?"
    shown = list(stems) if reference.which or len(known) > _LISTED else known
    return f"there are {_listed(shown)}; or check the storage path"


def _listed(names: list[str], limit: int = _LISTED) -> str:
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
