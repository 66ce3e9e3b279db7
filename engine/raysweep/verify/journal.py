"""The journal of a sweep: every object by itself, the sequence as a whole, and the state that it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from raysweep.core import SweepState, decode, step
from raysweep.core.state.invariants import check
from raysweep.core.state.trial import trial_id
from raysweep.core.vocabulary.commands import DeleteCheckpoint
from raysweep.errors import JournalDamagedError
from raysweep.runs.folder import SweepFolder
from raysweep.storage.journal.journal import Journal
from raysweep.storage.journal.names import SegmentObject, cover
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.journal.segment import RESTORE_FIX, decode_segment, read_header
from raysweep.verify.report import Checked, Finding

RESUME_FIX: Final = "`raysweep resume` keeps what is whole and continues"
OnSegmentEnd = Callable[[int, SweepState], None]


@dataclass(slots=True, kw_only=True)
class JournalCheck:
    """The result of reading the journal. `state` is as of the last record that could be read.

    `is_whole`: it could be read to its end, and `state` is that of the sweep. `unsealed`: by trial id
    and number, the checkpoints that its last segment alone makes needless: should that be torn, they are
    needed again (docs/design/storage.md).
    """

    findings: list[Finding] = field(default_factory=list)
    state: SweepState | None = None
    is_whole: bool = False
    last_number: int = 0
    generation: int = 0
    lost_claims: int = 0
    unsealed: set[tuple[str, int]] = field(default_factory=set)


def check_journal(
    folder: SweepFolder, state: SweepState | None, checked: Checked, on_segment_end: OnSegmentEnd
) -> JournalCheck:
    """Check the journal; `state` is the one before the first event (None: there is no spec to replay under).

    `on_segment_end(number, state)` is called with the state as of the end of each segment, in order.

    Raises:
        StorageError: The storage does not answer.
    """
    backend = ObjectJournal(folder.store, f"{folder.sweep_id}/journal")
    found = JournalCheck(state=state)
    _check_objects(backend, folder, checked, found)
    journal = Journal(backend)
    try:
        for _ in _apply(journal, found, checked, on_segment_end):
            pass
        found.is_whole = True
    except JournalDamagedError as error:
        name = _name(folder, error.path)
        if all(finding.object != name for finding in found.findings):
            found.findings.append(_damage(name, error))
        found.findings += _find_gaps(backend, folder, {finding.object for finding in found.findings})
    found.last_number, found.generation = journal.last_number, journal.generation
    found.lost_claims = journal.lost_claims
    _note_repairs(journal, folder, found)
    if state is not None:
        try:
            check(state)
        except AssertionError as error:
            problem = f"gives a state that cannot be: {error}"
            found.findings.append(Finding(severity="damage", object="journal", problem=problem))
    return found


def _apply(
    journal: Journal, found: JournalCheck, checked: Checked, on_segment_end: OnSegmentEnd
) -> Iterator[None]:
    """Replay record by record; a state is complete for a segment when the next one's first record comes."""
    number, state = 0, found.state
    for index, line in enumerate(journal.read(), start=1):
        if state is not None and journal.last_number != number:
            if number:
                on_segment_end(number, state)
            number = journal.last_number
            found.unsealed.clear()
        checked.records = index
        if state is not None:
            try:
                event = decode(line)
            except ValueError as error:
                raise JournalDamagedError(
                    f"journal, segment {journal.last_number}",
                    f"record {index} of the journal: {error}",
                    "everything after it",
                    "use the version of raysweep that wrote it, or a newer one",
                ) from error
            commands = step(state, event)
            found.unsealed.update(
                (trial_id(each.trial), each.number) for each in commands if isinstance(each, DeleteCheckpoint)
            )
        yield
    if state is not None and journal.last_number:
        on_segment_end(journal.last_number, state)


def _check_objects(
    backend: ObjectJournal, folder: SweepFolder, checked: Checked, found: JournalCheck
) -> None:
    """Every object by itself, also those that reading passes over."""
    objects = backend.list_objects()
    singles = {item.first for item in objects if not item.is_merged}
    sound: list[SegmentObject] = []
    damaged: list[tuple[SegmentObject, JournalDamagedError]] = []
    for item in objects:
        try:
            segments = backend.load(item)
            if segments is None:  # merged and deleted since the listing
                continue
            is_torn = [decode_segment(segment).is_torn for segment in segments]
            if is_torn == [True] and not item.is_merged:
                if any(o.is_merged and o.first <= item.first <= o.last for o in objects):
                    problem = f"segment {item.first} is cut short"
                    damaged.append((item, JournalDamagedError(backend.source(item), problem)))
                # Any other may be the last write of a controller that died: reading decides.
                continue
        except JournalDamagedError as error:
            damaged.append((item, error))
            continue
        checked.journal_objects += 1
        sound.append(item)
        if item.is_merged:
            headers = [read_header(segment) for segment in segments]
            claims = {header.number for header in headers if header is not None and header.is_claim}
            found.findings += [_unfenced(number) for number in sorted(claims - singles)]
    checked.segments = len({number for item in sound for number in range(item.first, item.last + 1)})
    for item, why in damaged:
        inside = [other for other in sound if other.first <= item.last and item.first <= other.last]
        is_held_twice = _covers(inside, item)
        found.findings.append(_damage(_name(folder, backend.source(item)), why, is_held_twice))


def _covers(objects: list[SegmentObject], item: SegmentObject) -> bool:
    chain = list(cover(sorted(objects, key=lambda each: (each.first, -each.last)), item.first))
    return bool(chain) and chain[-1].last >= item.last


def _damage(name: str, error: JournalDamagedError, is_held_twice: bool = False) -> Finding:
    if is_held_twice:
        fix = "other objects hold the same segments"
        return Finding(severity="damage", object=name, problem=error.problem, fix=fix)
    return Finding(
        severity="damage", object=name, problem=error.problem, lost=error.lost or "unknown", fix=error.fix
    )


def _unfenced(number: int) -> Finding:
    return Finding(
        severity="damage",
        object=f"journal/{SegmentObject(first=number, last=number).name}",
        problem="is missing: a claim's own object is never deleted",
        lost="the fence before older controllers; no record",
        fix="`raysweep resume` claims anew",
    )


def _find_gaps(backend: ObjectJournal, folder: SweepFolder, known: set[str]) -> Iterator[Finding]:
    """The numbers that no object holds, below the last one."""
    objects = backend.list_objects()
    position = 1
    for item in objects:
        if item.first > position:
            name = f"journal/{SegmentObject(first=position, last=position).name}"
            if name not in known:
                yield Finding(
                    severity="damage",
                    object=name,
                    problem="is missing, though later segments exist",
                    lost=f"segments {position} to {item.first - 1}",
                    fix=RESTORE_FIX,
                )
        position = max(position, item.last + 1)


def _note_repairs(journal: Journal, folder: SweepFolder, found: JournalCheck) -> None:
    for repair in journal.repairs:
        by = repair.generation
        repaired = f"{repair.problem}, lost {repair.lost} (repaired by generation {by})"
        found.findings.append(
            Finding(
                severity="damage" if by is None else "note",
                object=_name(folder, repair.source),
                problem=repair.problem if by is None else repaired,
                lost=repair.lost if by is None else "nothing more",
                fix=RESUME_FIX if by is None else "",
            )
        )


def _name(folder: SweepFolder, path: str) -> str:
    return path.removeprefix(f"{folder.uri}/")
