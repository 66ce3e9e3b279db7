"""Compaction: controllers in any number and any order of steps lose nothing and fence nobody wrongly."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raysweep.errors import JournalDamagedError, SegmentExistsError, StorageError
from raysweep.storage.journal import compaction
from raysweep.storage.journal.compaction import plan_merges
from raysweep.storage.journal.journal import Claim, Journal
from raysweep.storage.journal.names import SegmentObject, cover
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.journal.segment import SegmentHeader, encode_segment
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import ObjectInfo, Store
from raysweep.storage.objects.wrapped import WrappedStore
from tests.sampling import examples

CONTROLLERS = st.integers(0, 2)


class _Controller:
    """A controller that may sleep between any two of its storage operations."""

    def __init__(self, store: Store) -> None:
        self.backend = ObjectJournal(store, "s/journal")
        self.journal = Journal(self.backend)
        self.claim: Claim | None = None
        self.next_number = 0
        self.compaction: Iterator[None] | None = None


class JournalMachine(RuleBasedStateMachine):
    """Three controllers and a reader on one journal; the model is a list of records."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(compaction, "SINGLES", 4), patch.object(compaction, "FAN_IN", 2)]
        for each in self.patches:
            each.start()
        self.store = open_store(f"memory://{secrets.token_hex(8)}")
        self.controllers = [_Controller(self.store) for _ in range(3)]
        self.records: list[bytes] = []
        self.owner: _Controller | None = None
        self.count = 0
        self.reader: Iterator[bytes] | None = None
        self.seen: list[bytes] = []
        self.present = 0

    def teardown(self) -> None:
        self.check_all()
        for each in self.patches:
            each.stop()

    @rule(index=CONTROLLERS)
    def read_to_the_end(self, index: int) -> None:
        for _ in self.controllers[index].journal.read():
            pass

    @rule(index=CONTROLLERS)
    def claim(self, index: int) -> None:
        controller = self.controllers[index]
        journal, record = controller.journal, b'{"claim":%d}' % self.count
        is_current = journal.last_number == self._tail()
        self.count += 1
        try:
            claimed = journal.claim(lambda generation: record)
        except SegmentExistsError:
            assert not is_current
            return
        assert is_current
        self.records.append(record)
        controller.claim, controller.next_number = claimed, claimed.next_number
        self.owner = controller

    @rule(index=CONTROLLERS, segments=st.integers(1, 9))
    def write(self, index: int, segments: int) -> None:
        controller = self.controllers[index]
        if controller.claim is None:
            return
        for _ in range(segments):
            record = b'{"n":%d}' % self.count
            self.count += 1
            header = SegmentHeader(generation=controller.claim.generation, number=controller.next_number)
            try:
                controller.backend.append(controller.next_number, encode_segment(header, [record]))
            except SegmentExistsError:
                assert controller is not self.owner
                return
            assert controller is self.owner
            controller.next_number += 1
            self.records.append(record)

    @rule(index=CONTROLLERS, steps=st.integers(1, 12))
    def compact(self, index: int, steps: int) -> None:
        controller = self.controllers[index]
        for _ in range(steps):
            if controller.compaction is None:
                controller.compaction = controller.backend.compact()
            try:
                next(controller.compaction)
            except StopIteration:
                controller.compaction = None

    @rule(index=CONTROLLERS)
    def crash(self, index: int) -> None:
        self.controllers[index] = _Controller(self.store)

    @precondition(lambda self: self.reader is None)
    @rule()
    def start_reading(self) -> None:
        self.reader = Journal(ObjectJournal(self.store, "s/journal")).read()
        self.seen, self.present = [], len(self.records)

    @precondition(lambda self: self.reader is not None)
    @rule(steps=st.integers(1, 20))
    def read_on(self, steps: int) -> None:
        assert self.reader is not None
        for _ in range(steps):
            record = next(self.reader, None)
            if record is None:
                assert len(self.seen) >= self.present
                self.reader = None
                break
            self.seen.append(record)
        assert self.seen == self.records[: len(self.seen)]

    @invariant()
    def check_all(self) -> None:
        assert Journal(ObjectJournal(self.store, "s/journal")).contents().records == self.records

    def _tail(self) -> int:
        return Journal(ObjectJournal(self.store, "s/journal")).contents().last_number


JournalMachine.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
TestJournalMachine = JournalMachine.TestCase


def _run_all(backend: ObjectJournal) -> None:
    for _ in backend.compact():
        pass


def test_a_night_leaves_tens_of_objects() -> None:
    """Eight hours at four segments a second, on the plan alone."""
    objects: dict[tuple[int, int], int] = {}
    total = 8 * 3600 * 4
    rewritten = 0
    for number in range(1, total + 1):
        objects[number, number] = 4000
        if number % 64:
            continue
        listed = sorted(
            (SegmentObject(first=a, last=b, size_bytes=size) for (a, b), size in objects.items()),
            key=lambda item: (item.first, -item.last),
        )
        for run in plan_merges(listed):
            size = sum(item.size_bytes for item in run)
            rewritten += size
            for item in run:
                del objects[item.first, item.last]
            objects[run[0].first, run[-1].last] = size
    assert len(objects) < 150
    assert sum(1 for a, b in objects if a < b) < 50
    assert max(objects.values()) <= compaction.MAX_OBJECT_BYTES
    assert rewritten < 4 * total * 4000


def test_plan_keeps_full_objects_and_the_newest_alone() -> None:
    full = SegmentObject(first=1, last=64, size_bytes=compaction.MAX_OBJECT_BYTES)
    singles = [SegmentObject(first=n, last=n, size_bytes=10) for n in range(65, 130)]
    assert plan_merges([full, *singles]) == [singles[:64]]
    assert plan_merges([full, *singles[:64]]) == []
    assert plan_merges([]) == []


def test_plan_bounds_the_size_of_a_merged_object() -> None:
    size = compaction.MAX_OBJECT_BYTES // 4
    singles = [SegmentObject(first=n, last=n, size_bytes=size) for n in range(1, 130)]
    runs = plan_merges(singles)
    assert runs
    assert all(len(run) == 4 for run in runs)


def test_cover_takes_the_widest_and_stops_at_a_gap() -> None:
    objects = [SegmentObject(first=a, last=b) for a, b in ((1, 4), (1, 1), (3, 6), (3, 3), (7, 7), (9, 9))]
    assert [(o.first, o.last) for o in cover(objects, 1)] == [(1, 4), (3, 6), (7, 7)]
    assert [(o.first, o.last) for o in cover(objects, 9)] == [(9, 9)]
    assert list(cover(objects, 8)) == []


def test_compaction_keeps_claims_and_cleans_up_after_a_crash(store: Store) -> None:
    backend = ObjectJournal(store, "s/journal")
    claimed = Journal(backend).claim(lambda generation: b"{}")
    for number in range(claimed.next_number, claimed.next_number + 70):
        backend.append(number, encode_segment(SegmentHeader(generation=1, number=number), [b"{}"]))
    before = Journal(backend).contents()
    steps = backend.compact()
    while not any(item.is_merged for item in backend.list_objects()):
        next(steps)
    assert len(backend.list_objects()) == 72  # merged, nothing deleted: here the controller dies
    fresh = ObjectJournal(store, "s/journal")
    _run_all(fresh)
    names = [(item.first, item.last) for item in fresh.list_objects()]
    assert names == [(1, 64), (1, 1), *((n, n) for n in range(65, 72))]
    assert Journal(fresh).contents() == before


def test_a_merged_object_that_differs_is_not_trusted(store: Store) -> None:
    backend = ObjectJournal(store, "s/journal")
    claimed = Journal(backend).claim(lambda generation: b"{}")
    for number in range(claimed.next_number, claimed.next_number + 70):
        backend.append(number, encode_segment(SegmentHeader(generation=1, number=number), [b"{}"]))
    before = Journal(backend).contents()
    store.put("s/journal/000000000001-000000000064.jsonl", b"torn")
    with pytest.raises(StorageError):
        _run_all(backend)
    assert Journal(backend).contents() == before


@pytest.mark.usefixtures("small_merges")
def test_what_another_merged_meanwhile_has_to_be_the_same(store: Store) -> None:
    """Both had planned it; the other was first, with something else in it."""
    backend = ObjectJournal(store, "s/journal")
    write_segments(backend, 1, 5)
    steps = backend.compact()
    next(steps)
    wide = SegmentObject(first=1, last=4)
    store.put(backend.key(wide), b"other", durable=True)
    with pytest.raises(StorageError, match="differs from the segments it was merged from"):
        list(steps)
    assert all(store.exists(backend.key(SegmentObject(first=n, last=n))) for n in range(1, 6))


class PausedStore(WrappedStore):
    """Something happens between the moment at which a listing read the names, and its return.

    A folder's listing looks at each file after it has read their names, and leaves out what is gone by then.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.meanwhile: list[Callable[[], object]] = []

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        found = super().list(prefix)
        first = next(found, None)
        if first is not None and self.meanwhile:
            self.meanwhile.pop(0)()
        if first is not None and self.inner.exists(first.key):
            yield first
        yield from found


@pytest.fixture
def small_merges() -> Iterator[None]:
    """Merging 64 segments, and 8 such objects, takes long."""
    with patch.object(compaction, "SINGLES", 4), patch.object(compaction, "FAN_IN", 2):
        yield


def write_segments(journal: ObjectJournal, first: int, last: int) -> None:
    for number in range(first, last + 1):
        header = SegmentHeader(generation=1, number=number, is_claim=number == 1)
        journal.append(number, encode_segment(header, [b"%d" % number]))


def merge(journal: ObjectJournal) -> None:
    for _ in journal.compact():
        pass


@pytest.mark.usefixtures("small_merges")
@pytest.mark.parametrize(("start", "merged"), [(2, 0), (1, 4), (5, 4)])
def test_a_listing_that_spans_a_compaction_does_not_end_the_journal_early(
    tmp_path: Path, start: int, merged: int
) -> None:
    """It shows what was merged long ago, but neither what is being merged nor what that is merged into."""
    store = PausedStore(open_store(str(tmp_path)))
    writer = ObjectJournal(store.inner, "s/journal")
    write_segments(writer, 1, merged + 1)
    merge(writer)
    write_segments(writer, merged + 2, merged + 4)

    def go_on() -> None:
        write_segments(writer, merged + 5, merged + 5)
        merge(writer)

    store.meanwhile.append(go_on)
    segments = list(ObjectJournal(store, "s/journal").read_from(start))
    assert store.meanwhile == []
    assert [segment.number for segment in segments] == list(range(start, merged + 6))


@pytest.mark.usefixtures("small_merges")
def test_a_late_claim_is_refused_though_its_number_is_being_merged_once_more(tmp_path: Path) -> None:
    """The listing that looks whether the number was merged spans the merging into a wider object."""
    store = PausedStore(open_store(str(tmp_path)))
    writer = ObjectJournal(store.inner, "s/journal")
    write_segments(writer, 1, 5)
    merge(writer)
    write_segments(writer, 6, 9)
    for step, _ in enumerate(writer.compact()):
        if len([item for item in writer.list_objects() if item.is_merged]) == 2:
            break
        assert step < 20
    # 1 to 4 and 5 to 8 lie in an object each; the next round makes one of them.
    store.meanwhile.append(lambda: merge(ObjectJournal(store.inner, "s/journal")))
    late = encode_segment(SegmentHeader(generation=2, number=3, is_claim=True), [b"late"])
    with pytest.raises(SegmentExistsError):
        ObjectJournal(store, "s/journal").append(3, late)
    assert store.meanwhile == []
    records = [segment.number for segment in ObjectJournal(store.inner, "s/journal").read_from(1)]
    assert records == list(range(1, 10))


@pytest.mark.usefixtures("small_merges")
def test_a_late_claim_that_landed_is_not_read_though_its_number_is_being_merged_once_more(
    tmp_path: Path,
) -> None:
    store = PausedStore(open_store(str(tmp_path)))
    writer = ObjectJournal(store.inner, "s/journal")
    write_segments(writer, 1, 5)
    merge(writer)
    write_segments(writer, 6, 9)
    next(step for step in writer.compact() if len([o for o in writer.list_objects() if o.is_merged]) == 2)
    late = encode_segment(SegmentHeader(generation=2, number=3, is_claim=True), [b"late"])
    assert store.put_if_absent("s/journal/000000000003.jsonl", late)
    reader = ObjectJournal(store, "s/journal")
    segment = reader.load(SegmentObject(first=3, last=3))
    assert segment is not None
    store.meanwhile.append(lambda: merge(ObjectJournal(store.inner, "s/journal")))
    assert reader._is_superseded(segment[0], set())


def test_a_damaged_segment_is_not_merged_away(store: Store) -> None:
    """What would be deleted is looked at first: the damage stays where it can be seen and mended."""
    backend = ObjectJournal(store, "s/journal")
    for number in range(1, 71):
        data = encode_segment(SegmentHeader(generation=1, number=number), [b'{"n":1}'])
        backend.append(number, data)
    key = backend.key(SegmentObject(first=3, last=3))
    data = store.get(key)
    assert data is not None
    store.put(key, data.replace(b'"n":1', b'"n":2'))
    with pytest.raises(JournalDamagedError):
        _run_all(ObjectJournal(store, "s/journal"))
    assert [item for item in backend.list_objects() if item.is_merged] == []
    assert len(backend.list_objects()) == 70
