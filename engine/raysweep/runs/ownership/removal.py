"""A whole sweep out of its key's way: put aside for good, or removed. Never one that a process runs."""

from __future__ import annotations

import time

from raysweep.core import encode
from raysweep.core.vocabulary.events import ControllerStarted
from raysweep.errors import (
    ChampionKeptError,
    JournalDamagedError,
    SegmentExistsError,
    StorageError,
    SweepHeldError,
    SweepNotFoundError,
)
from raysweep.runs.across_runs.pins import champion_pins, pins_of
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership import departure
from raysweep.runs.ownership.holder import current_holder, find_living
from raysweep.runs.ownership.sweep_claim import find_holder
from raysweep.storage.objects.opening import open_store


def put_aside(storage_path: str, sweep_id: str) -> str:
    """Archive a sweep, so that its key is free; returns the URI where it is now. Nothing is overwritten.

    A call that was killed is completed by the next one.

    Raises:
        SweepNotFoundError: There is none.
        SweepHeldError: A process runs it.
        ChampionKeptError: What is there is still needed where it is.
        StorageError
    """
    folder = SweepFolder(open_store(storage_path), sweep_id)
    _fence(folder)
    return departure.archive(folder, str(current_holder()))


def remove(storage_path: str, sweep_id: str) -> None:
    """Delete a sweep and everything that is stored of it. Raises: as `put_aside`."""
    folder = SweepFolder(open_store(storage_path), sweep_id)
    _fence(folder)
    departure.remove(folder, str(current_holder()))


def _fence(folder: SweepFolder) -> None:
    """Make sure that no process runs the sweep or can continue it from here on."""
    record = folder.read_spec()
    if record is None:
        raise SweepNotFoundError(folder.sweep_id, folder.store.url)
    _check_champion(folder)
    if record.leaving is not None:
        return  # it has been fenced; what was begun is completed
    try:
        living, generation = find_holder(folder)
    except JournalDamagedError:
        # It cannot be replayed, so no controller can take it up either.
        living, generation = find_living(folder.read_progress), 0
    if living is not None:
        raise SweepHeldError(folder.sweep_id, living.holder)
    if generation:
        _claim(folder)


def _claim(folder: SweepFolder) -> None:
    """Win the sweep as a controller would: who believes that it is his finds out at his next write."""
    journal, holder = folder.journal(), current_holder()
    for _ in journal.read():
        pass

    def make_record(generation: int) -> bytes:
        return encode(
            ControllerStarted(
                at=time.time(),
                generation=generation,
                host=holder.host,
                pid=holder.pid,
            )
        )

    try:
        journal.claim(make_record)
    except SegmentExistsError:
        living = find_living(folder.read_progress)
        if living is not None:
            raise SweepHeldError(folder.sweep_id, living.holder) from None
        raise StorageError(
            folder.uri, "was taken up by another process at this moment", "try it again"
        ) from None


def _check_champion(folder: SweepFolder) -> None:
    """Of any name: a gate may give its champion another one than the sweep's."""
    needed = pins_of(champion_pins(folder.store), folder.sweep_id)
    for reasons in needed.values():
        raise ChampionKeptError(folder.sweep_id, reasons[0])
