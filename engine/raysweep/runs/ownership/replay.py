"""A sweep's state, from its journal: all of it, or what came after the newest snapshot. Needs no Ray."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import orjson

from raysweep.core import SweepState, decode, step
from raysweep.core.state.frozen import freeze, thaw
from raysweep.core.vocabulary.codec import OtherBehaviourError
from raysweep.core.vocabulary.commands import DeleteCheckpoint
from raysweep.core.vocabulary.events import Event
from raysweep.errors import JournalDamagedError, RaysweepError, StorageError
from raysweep.outcome import SweepProgress
from raysweep.outcome.record import without_collector
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.specs import SweepSpec
from raysweep.storage.formats import OTHER_FIX
from raysweep.storage.journal.journal import Journal
from raysweep.storage.journal.segment import RESTORE_FIX

# Replaying this many records takes a second or less: no snapshot is worth writing for fewer.
SNAPSHOT_AFTER_RECORDS: Final = 20_000
# What a controller discarded is deleted within this many segments (2 s); more than MAX_DISCARDED can wait.
DISCARD_SEGMENTS: Final = 8
MAX_DISCARDED: Final = 256
_CHANGED: Final = b'{"e":"SpecChanged"'
Discarded = deque[tuple[int, str]]
Observe = Callable[[SweepState, Event], None]
log = logging.getLogger("raysweep")


def replay(journal: Journal, record: SweepRecord) -> SweepState:
    """The state that the journal's events give, from the first on.

    Raises:
        JournalDamagedError: A part of it cannot be read; nothing is left out in silence.
    """
    state = SweepState.create(SweepSpec.from_any(dict(record.spec)), record.seed)
    catch_up(journal, state)
    return state


def newest_spec(folder: SweepFolder, record: SweepRecord) -> SweepSpec:
    """The spec that the sweep runs under: as it was started, or as it was last changed.

    Nothing is replayed, which would take the scheduler's class where that is the user's own.

    Raises:
        JournalDamagedError: A part of the journal cannot be read.
    """
    fields = record.spec
    for line in folder.journal().read():
        if line.startswith(_CHANGED):
            fields = orjson.loads(line)["spec"]
    return SweepSpec.from_any(dict(fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A journal, read to its end, and the state as of there.

    `discarded`: the checkpoints that nothing needs any more since shortly before the end. Its controller may
    have died before it deleted them.
    """

    journal: Journal
    state: SweepState
    discarded: tuple[str, ...]


def rebuild(folder: SweepFolder, record: SweepRecord, began_as: SweepSpec | None = None) -> Replay:
    """Read a sweep's journal to its end; from a snapshot on if one can be used.

    A snapshot that is damaged, or was written by another version, costs nothing but the time to replay.
    After a long replay a new one is written. `began_as` is the record's spec, where it was read already.

    Raises:
        JournalDamagedError: A part of it cannot be read, or its end is missing.
    """
    progress = folder.read_progress()
    discarded: Discarded = deque(maxlen=MAX_DISCARDED)
    journal, state, applied = read_state(folder, record, discarded, began_as=began_as)
    recent = tuple(uri for number, uri in discarded if number > journal.last_number - DISCARD_SEGMENTS)
    _snapshot_if_long(folder, journal, state, applied, recent)
    _check_journal_end(folder, journal, progress)
    return Replay(journal=journal, state=state, discarded=recent)


@without_collector()
def read_state(
    folder: SweepFolder,
    record: SweepRecord,
    discarded: Discarded | None = None,
    observe: Observe | None = None,
    began_as: SweepSpec | None = None,
) -> tuple[Journal, SweepState, int]:
    """As `rebuild`, for those who only look: writes nothing and asks for no end.

    `observe` is called after each event that is applied: with a snapshot, not for those before it.
    Returns the journal, which `catch_up` can read on later, the state, and how many records were applied.

    Raises:
        JournalDamagedError: A part of it cannot be read.
    """
    snapshot = folder.snapshots.read_newest()
    for note in snapshot.notes:
        log.warning(note)
    if snapshot.state is not None:
        try:
            state = thaw(snapshot.state)
        except RaysweepError as error:
            log.warning("snapshot %s is not used: %s", snapshot.number, error)
        else:
            journal = folder.journal()
            journal.skip_to(snapshot.number, state.controller.generation)
            if discarded is not None:
                discarded.extend((snapshot.number, uri) for uri in snapshot.discarded)
            return journal, state, catch_up(journal, state, discarded, observe)
    journal = folder.journal()
    # A spec of many values takes long to check: once is enough.
    spec = SweepSpec.from_any(dict(record.spec)) if began_as is None else began_as
    state = SweepState.create(spec, record.seed)
    return journal, state, catch_up(journal, state, discarded, observe)


def catch_up(
    journal: Journal,
    state: SweepState,
    discarded: Discarded | None = None,
    observe: Observe | None = None,
) -> int:
    """Apply to the state what the journal holds beyond what was read of it; returns how many records.

    `discarded` gets the checkpoints that nothing needs any more, each with the number of its segment. After
    an error the state is of no use any more: read it anew.

    Raises:
        JournalDamagedError: A part of it cannot be read.
    """
    applied = 0
    for applied, line in enumerate(journal.read(), start=1):
        try:
            event = decode(line)
        except ValueError as error:
            raise damaged_record(applied, error) from error
        for command in step(state, event):
            if discarded is not None and isinstance(command, DeleteCheckpoint):
                discarded.append((journal.last_number, command.uri))
        if observe is not None:
            observe(state, event)
    return applied


def damaged_record(number: int, error: ValueError) -> JournalDamagedError:
    """The error to raise for a record that is no event of this version."""
    lost = "nothing" if isinstance(error, OtherBehaviourError) else "everything after it"
    return JournalDamagedError(f"journal, record {number} of those read", str(error), lost, OTHER_FIX)


def _snapshot_if_long(
    folder: SweepFolder, journal: Journal, state: SweepState, applied: int, discarded: tuple[str, ...]
) -> None:
    if applied < SNAPSHOT_AFTER_RECORDS or journal.repairs:
        return
    try:
        folder.snapshots.write(journal.last_number, freeze(state).parts(), discarded)
    except StorageError as error:
        log.warning("no snapshot was written: %s", error)


def _check_journal_end(folder: SweepFolder, journal: Journal, progress: SweepProgress | None) -> None:
    """Check that a journal that was read reaches as far as the rest of the folder says that it did.

    A journal that lost its last objects has no gap. `progress` must have been read before the journal.

    Raises: JournalDamagedError.
    """
    claimed = journal.generation + journal.lost_claims
    problem = ""
    if progress is not None and progress.generation > claimed:
        problem = f"ends in generation {claimed}, but progress.json is of {progress.generation}"
    elif journal.last_number and next(journal.backend.read_from(journal.last_number), None) is None:
        problem = f"ends before segment {journal.last_number}, though a snapshot holds it"
    elif not journal.last_number and folder.store.list_folders(f"{folder.sweep_id}/checkpoints"):
        problem = "is empty, but there are checkpoints"
    if problem:
        lost = f"what came after segment {journal.last_number}"
        raise JournalDamagedError(folder.uri_of("journal"), problem, lost, RESTORE_FIX)
