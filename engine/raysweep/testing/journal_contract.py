"""The suite that every journal backend must pass.

    class TestMyBackend(JournalBackendContract):
        def make_backend(self) -> JournalBackend: ...
        def remove_segment(self, backend, number) -> None: ...

Override `reopen` where another process would open the same journal anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from raysweep.errors import FencedError, JournalDamagedError, RaysweepError, SegmentExistsError
from raysweep.storage.journal.journal import Journal, JournalBackend, append_once, claim
from raysweep.storage.journal.segment import SegmentHeader, encode_segment
from raysweep.storage.journal.writer import JournalWriter


def record(text: str) -> bytes:
    """A record whose content is `text`."""
    return b'{"text":"%s"}' % text.encode()


def claim_record(generation: int) -> bytes:
    """The record in the claim of a generation."""
    return record(f"claim {generation}")


class JournalBackendContract:
    """Inherit it, name the class `Test...`, and fill in the first two methods."""

    def make_backend(self) -> JournalBackend:
        """An empty journal."""
        raise NotImplementedError

    def remove_segment(self, backend: JournalBackend, number: int) -> None:
        """Destroy one segment behind the backend's back."""
        raise NotImplementedError

    def reopen(self, backend: JournalBackend) -> JournalBackend:
        """The same journal, as another controller sees it."""
        return backend

    @pytest.fixture
    def backend(self) -> JournalBackend:
        return self.make_backend()

    def test_an_empty_journal_reads_as_nothing(self, backend: JournalBackend) -> None:
        assert list(backend.read_from(1)) == []
        contents = Journal(backend).contents()
        assert (contents.records, contents.last_number, contents.generation) == ([], 0, 0)

    def test_segments_come_back_in_order_byte_for_byte(self, backend: JournalBackend) -> None:
        written = {n: bytes([n]) * (1 if n % 2 else 300_000) for n in range(1, 13)}
        for number, data in written.items():
            backend.append(number, data)
        for handle in (backend, self.reopen(backend)):
            assert [(s.number, s.data) for s in handle.read_from(1)] == list(written.items())

    def test_reading_starts_where_asked(self, backend: JournalBackend) -> None:
        for number in range(1, 6):
            backend.append(number, b"x")
        assert [segment.number for segment in backend.read_from(4)] == [4, 5]
        assert list(backend.read_from(6)) == []

    def test_a_segment_is_written_once(self, backend: JournalBackend) -> None:
        backend.append(1, b"first")
        with pytest.raises(SegmentExistsError) as caught:
            self.reopen(backend).append(1, b"second")
        assert caught.value.number == 1
        assert [segment.data for segment in backend.read_from(1)] == [b"first"]

    def test_one_of_many_wins_a_number(self, backend: JournalBackend) -> None:
        won: list[int] = []

        def attempt(index: int) -> None:
            handle = self.reopen(backend)
            try:
                handle.append(1, b"%d" % index)
            except SegmentExistsError:
                return
            won.append(index)

        run_at_once([partial(attempt, index) for index in range(8)])
        assert len(won) == 1
        assert [segment.data for segment in backend.read_from(1)] == [b"%d" % won[0]]

    def test_our_own_write_that_landed_unnoticed_is_no_collision(self, backend: JournalBackend) -> None:
        data = encode_segment(SegmentHeader(generation=1, number=1, is_claim=True), [claim_record(1)])
        backend.append(1, data)
        append_once(self.reopen(backend), 1, data)
        with pytest.raises(SegmentExistsError):
            append_once(self.reopen(backend), 1, data + b" ")

    def test_a_missing_segment_is_damage(self, backend: JournalBackend) -> None:
        claim(backend, claim_record)
        self._write(backend, 1, 2, 4)
        self.remove_segment(backend, 3)
        with pytest.raises(JournalDamagedError) as caught:
            Journal(self.reopen(backend)).contents()
        assert "3" in caught.value.path
        assert caught.value.lost

    def test_claims_count_up(self, backend: JournalBackend) -> None:
        assert claim(backend, claim_record) == (1, 2)
        assert claim(self.reopen(backend), claim_record) == (2, 3)
        contents = Journal(self.reopen(backend)).contents()
        assert [(c.generation, c.number) for c in contents.claims] == [(1, 1), (2, 2)]
        assert contents.records == [claim_record(1), claim_record(2)]

    def test_racing_claims_get_different_generations(self, backend: JournalBackend) -> None:
        generations: list[int] = []
        racers = [lambda: generations.append(claim(self.reopen(backend), claim_record)[0])] * 6
        run_at_once(racers)
        assert sorted(generations) == [1, 2, 3, 4, 5, 6]

    def test_a_claim_on_a_journal_that_went_on_is_refused(self, backend: JournalBackend) -> None:
        journal = Journal(backend)
        assert list(journal.read()) == []
        claim(self.reopen(backend), claim_record)
        with pytest.raises(SegmentExistsError):
            journal.claim(claim_record)
        assert list(journal.read()) == [claim_record(1)]
        assert journal.claim(claim_record).generation == 2

    def test_a_superseded_writer_stops_and_leaves_no_trace(self, backend: JournalBackend) -> None:
        errors: list[RaysweepError] = []
        generation, number = claim(backend, claim_record)
        writer = JournalWriter(backend, generation, number, errors.append, sweep_id="s", interval_s=0.01)
        writer.write(record("before"))
        writer.flush(10)
        claim(self.reopen(backend), claim_record)
        writer.write(record("after"))
        with pytest.raises(FencedError) as caught:
            writer.flush(10)
        assert (caught.value.generation, caught.value.by_generation) == (1, 2)
        with pytest.raises(FencedError):
            writer.write(record("again"))
        with pytest.raises(FencedError):
            writer.close(10)
        assert [type(error) for error in errors] == [FencedError]
        records = Journal(self.reopen(backend)).contents().records
        assert records == [claim_record(1), record("before"), claim_record(2)]

    def test_a_superseded_writer_collides_after_compaction_too(self, backend: JournalBackend) -> None:
        compact = getattr(backend, "compact", None)
        if compact is None:
            pytest.skip("this backend does not compact")
        stale = self.reopen(backend)
        _, number = claim(stale, claim_record)
        generation, next_number = claim(backend, claim_record)
        self._write(backend, generation, next_number, 150)
        before = Journal(self.reopen(backend)).contents()
        for _ in compact():
            pass
        assert Journal(self.reopen(backend)).contents() == before
        late = encode_segment(SegmentHeader(generation=1, number=number), [record("late")])
        with pytest.raises(SegmentExistsError):
            stale.append(number, late)
        # One that slept between reading the end and claiming: its number was merged away meanwhile.
        for taken in (number + 5, number + 100):
            with pytest.raises(SegmentExistsError):
                self.reopen(backend).append(taken, late)
        assert Journal(self.reopen(backend)).contents() == before

    def _write(self, backend: JournalBackend, generation: int, first: int, count: int) -> None:
        for number in range(first, first + count):
            header = SegmentHeader(generation=generation, number=number)
            backend.append(number, encode_segment(header, [record(f"{number}a"), record(f"{number}b")]))


def run_at_once(calls: Sequence[Callable[[], object]]) -> None:
    """Run the calls in threads that start together; the first error is raised."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        barrier.wait()
        call()

    with ThreadPoolExecutor(len(calls)) as pool:
        for future in [pool.submit(run, call) for call in calls]:
            future.result()
