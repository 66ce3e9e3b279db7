"""The journal of a sweep: an append-only log of numbered segments, which is also the sweep's lock.

A controller owns the sweep while it is the one that wrote the last claim. It claims by creating the next
segment with a create-only put; an older controller then finds its own next number taken, and stops. What
makes that safe:

- a claim's object is never deleted, so an older controller that wakes up late still collides with it;
- compaction only deletes an object that one wider object contains whole, so what a number holds never
  changes;
- a claimant that slept between reading the end and claiming could hit a number that was written, merged and
  deleted meanwhile: the first append of a backend looks, after its put, whether the number was taken that
  way.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from raysweep.errors import JournalDamagedError, SegmentExistsError
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.journal.segment import (
    RESTORE_FIX,
    DecodedSegment,
    Segment,
    SegmentHeader,
    decode_segment,
    encode_segment,
)
from raysweep.storage.objects.retries import retrying
from raysweep.storage.objects.store import Store


class JournalBackend(Protocol):
    """The storage of segments.

    Two methods; `raysweep.testing.journal_contract` is the suite that each must pass.
    """

    def read_from(self, number: int) -> Iterator[Segment]:
        """All segments from `number` on, in order, without a gap; none if that is past the end.

        Raises: JournalDamagedError for a gap, StorageError.
        """
        ...

    def append(self, number: int, data: bytes) -> None:
        """Create segment `number`, durably and only if no segment of that number was ever written.

        Raises: SegmentExistsError, StorageError.
        """
        ...


class CompactableBackend(JournalBackend, Protocol):
    """A backend that merges old segments, one small storage operation a step."""

    def compact(self) -> Iterator[None]:
        """Merge what is worth merging. Abandoning the iterator between two steps is safe."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to append, as long as no other claim comes after it."""

    generation: int
    number: int
    writer: str

    @property
    def next_number(self) -> int:
        """The number of the first segment after the claim."""
        return self.number + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A segment that was cut short, of which the whole records are read."""

    source: str
    number: int
    kept: int
    """The number of records that are read."""
    lost: str
    """The records that are gone: `2 of 5 records`."""
    generation: int | None = None
    """The generation that said so, and continued behind it; None: it is the last segment."""

    @property
    def problem(self) -> str:
        """The repair without its source and without what is lost."""
        return f"segment {self.number} was cut short; kept {self.kept}"

    def __str__(self) -> str:
        by = "" if self.generation is None else f" (repaired by generation {self.generation})"
        return f"{self.source}: {self.problem}, lost {self.lost}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContents:
    """A journal read whole, for tools and tests; a controller reads segment by segment (`Journal.read`)."""

    records: list[bytes]
    last_number: int
    generation: int
    claims: tuple[Claim, ...]
    repairs: tuple[Repair, ...]


class Journal:
    """Reads a journal from where it last stopped, checks it, and claims its end.

    `last_number`, `generation`, `claims` and `repairs` speak of what was read so far.
    """

    def __init__(self, backend: JournalBackend) -> None:
        self.backend = backend
        self.last_number = 0
        self.generation = 0
        self.claims: list[Claim] = []
        self.repairs: list[Repair] = []
        self.lost_claims = 0
        """The claims at the end that were cut off so early that their generation cannot be read."""
        self._torn: _Torn | None = None

    @classmethod
    def open(cls, store: Store, sweep_id: str) -> Journal:
        """The journal of a sweep; it need not exist yet."""
        return cls(ObjectJournal(store, f"{sweep_id}/journal"))

    def skip_to(self, number: int, generation: int) -> None:
        """Read on behind segment `number` only: a snapshot of that generation holds what came before.

        `claims` and `repairs` then speak of what is read from here on.
        """
        self.last_number, self.generation = number, generation

    def read(self) -> Iterator[bytes]:
        """The records not read before, in order. Exhaust it before you claim.

        A torn last segment yields its whole records, and `repairs` lists it.

        Raises: JournalDamagedError, StorageError.
        """
        for segment in self.backend.read_from(self.last_number + 1):
            decoded = decode_segment(segment)
            if decoded.is_torn and self._torn is None:
                self._torn = _Torn(segment=segment, decoded=decoded)
                self._check_order(segment, decoded.header)
                continue
            if self._torn is not None:
                yield from self._accept_torn(segment, decoded)
            self._check_order(segment, decoded.header)
            self._advance(segment.number, decoded.header)
            yield from decoded.records
        if self._torn is not None and not self._torn.is_read:
            yield from self._read_torn_end(self._torn)

    def contents(self) -> JournalContents:
        """Read to the end and return everything. Call it on a fresh journal."""
        records = list(self.read())
        return JournalContents(
            records=records,
            last_number=self.last_number,
            generation=self.generation,
            claims=tuple(self.claims),
            repairs=tuple(self.repairs),
        )

    def claim(self, make_record: Callable[[int], bytes], *, give_up_after_s: float = 60.0) -> Claim:
        """Become the writer: append the first segment of the next generation, with `make_record(generation)`.

        The record counts as read: apply it yourself.

        Raises: SegmentExistsError if the journal continued since it was read: read the rest and decide again.
            StorageUnavailableError after `give_up_after_s` of trying.
        """
        torn = self._torn
        header = SegmentHeader(
            generation=self.generation + 1 + self.lost_claims,
            number=self.last_number + 1,
            is_claim=True,
            writer=secrets.token_hex(8),
            repaired=torn.segment.number if torn else None,
            kept=len(torn.decoded.records) if torn else 0,
        )
        data = encode_segment(header, [make_record(header.generation)])
        retrying(give_up_after_s)(append_once, self.backend, header.number, data)
        self._torn = None
        self._advance(header.number, header)
        return self.claims[-1]

    def _advance(self, number: int, header: SegmentHeader | None) -> None:
        self.last_number = number
        if header is None:
            return
        self.generation = header.generation
        if header.is_claim:
            self.lost_claims = 0
            self.claims.append(Claim(generation=header.generation, number=number, writer=header.writer))

    def _check_order(self, segment: Segment, header: SegmentHeader | None) -> None:
        if header is None:
            return
        in_order = (
            header.generation > self.generation if header.is_claim else header.generation == self.generation
        )
        if not in_order:
            raise JournalDamagedError(
                segment.source,
                f"segment {segment.number} has generation {header.generation}, after {self.generation}",
                f"the order of what follows segment {segment.number - 1}",
                RESTORE_FIX,
            )

    def _accept_torn(self, segment: Segment, decoded: DecodedSegment) -> Sequence[bytes]:
        """A torn segment is good if a claim right after it says so."""
        torn, header = self._torn, decoded.header
        assert torn is not None
        kept = torn.decoded.records
        if (
            header is None
            or decoded.is_torn
            or (header.repaired, header.kept) != (torn.segment.number, len(kept))
        ):
            raise JournalDamagedError(
                torn.segment.source,
                f"segment {torn.segment.number} is cut short, and the next does not say that it repaired it",
                torn.lost,
                RESTORE_FIX,
            )
        self._torn = None
        if torn.is_read:
            return ()
        self._advance(torn.segment.number, torn.decoded.header)
        self.repairs.append(replace(torn.repair, generation=header.generation))
        return kept

    def _read_torn_end(self, torn: _Torn) -> Sequence[bytes]:
        torn.is_read = True
        self.repairs.append(torn.repair)
        self._advance(torn.segment.number, torn.decoded.header)
        # It may have been a claim: its generation must not be given out twice.
        self.lost_claims = 1 if torn.decoded.header is None else 0
        return torn.decoded.records


class _Torn:
    """A segment that was cut short, and whether its records were given out already."""

    def __init__(self, *, segment: Segment, decoded: DecodedSegment) -> None:
        self.segment = segment
        self.decoded = decoded
        self.is_read = False

    @property
    def lost(self) -> str:
        header = self.decoded.header
        if header is None:
            return f"all records of segment {self.segment.number}"
        return f"{header.records - len(self.decoded.records)} of {header.records} records"

    @property
    def repair(self) -> Repair:
        kept = len(self.decoded.records)
        source, number = self.segment.source, self.segment.number
        return Repair(source=source, number=number, kept=kept, lost=self.lost)


def claim(
    backend: JournalBackend, make_record: Callable[[int], bytes], *, give_up_after_s: float = 60.0
) -> tuple[int, int]:
    """Read to the end and claim, again while others append meanwhile; returns (generation, next_number).

    For tools and tests that do not care what the journal holds; a controller replays it with `Journal`.
    """
    journal = Journal(backend)
    while True:
        for _ in journal.read():
            pass
        try:
            claimed = journal.claim(make_record, give_up_after_s=give_up_after_s)
        except SegmentExistsError:
            continue
        return claimed.generation, claimed.next_number


def append_once(backend: JournalBackend, number: int, data: bytes) -> None:
    """Append; a put of ours that seemed to fail but landed counts as success.

    Raises: SegmentExistsError if the number holds something else.
    """
    try:
        backend.append(number, data)
    except SegmentExistsError:
        found = next(iter(backend.read_from(number)), None)
        if found is None or found.data != data:
            raise
