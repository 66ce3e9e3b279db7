"""Finds sweeps by the names of the command line, and writes commands that name them. Needs no Ray."""

from __future__ import annotations

import shlex

from raysweep.errors import SweepNotFoundError
from raysweep.outcome import Standing
from raysweep.runs.reading.naming.lookup import DEFAULT_STORAGE
from raysweep.runs.reading.naming.lookup import find_run_folder as open_run
from raysweep.runs.reading.naming.lookup import find_sweep as open_sweep
from raysweep.runs.reading.reader import SweepReader
from raysweep.storage.objects.opening import open_store

__all__ = ["DEFAULT_STORAGE", "command", "open_run", "open_sweep", "read_sweep"]


def read_sweep(name: str, storage: str | None) -> tuple[Standing, SweepReader]:
    """The standing of the sweep of this name, and the reader of the rest of it.

    Raises:
        SweepNotFoundError: There is no such sweep (any more).
        StorageError, JournalDamagedError: It cannot be read.
    """
    folder = open_sweep(name, storage)
    reader = SweepReader(folder.store.url, folder.sweep_id, is_strict=True)
    status = reader.read()
    if status is None:
        raise SweepNotFoundError(folder.sweep_id, folder.store.url)
    return status, reader


def command(verb: str, sweep_id: str, storage: str, *options: str) -> str:
    """The command line for another look at a sweep."""
    parts = ["raysweep", verb, sweep_id, *options]
    if storage != open_store(DEFAULT_STORAGE).url:
        parts += ["--storage", storage]
    return shlex.join(parts)
