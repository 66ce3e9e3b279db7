"""The writer: durable in groups, bounded, patient with the storage, obedient to a newer controller."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from raysweep.errors import FencedError, RaysweepError, StorageError, StorageUnavailableError
from raysweep.storage.journal.journal import Claim, Journal, JournalBackend, claim
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.journal.segment import Segment
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store
from raysweep.testing import MemoryBackend


class FlakyBackend:
    """A backend whose next appends fail, before or after they took place."""

    def __init__(self, inner: MemoryBackend) -> None:
        self.inner = inner
        self.fail_before = 0
        self.fail_after = 0
        self.failed = 0
        self.gate = threading.Event()
        self.gate.set()

    def append(self, number: int, data: bytes) -> None:
        self.gate.wait(30)
        if self.fail_before:
            self.fail_before -= 1
            self.failed += 1
            raise StorageUnavailableError("flaky", "refused")
        self.inner.append(number, data)
        if self.fail_after:
            self.fail_after -= 1
            self.failed += 1
            raise StorageUnavailableError("flaky", "timed out")

    def read_from(self, number: int) -> Iterator[Segment]:
        return self.inner.read_from(number)


class Setup:
    """A claimed journal, a writer on it and what the writer reported."""

    def __init__(self, backend: JournalBackend, **options: object) -> None:
        self.errors: list[RaysweepError] = []
        self.notes: list[str] = []
        self.claim: Claim = Journal(backend).claim(lambda generation: b'"claim"')
        self.backend = backend
        self.writer = JournalWriter(
            backend,
            self.claim.generation,
            self.claim.next_number,
            self.errors.append,
            sweep_id="s",
            on_note=self.notes.append,
            **options,  # type: ignore[arg-type]
        )

    def records(self) -> list[bytes]:
        return Journal(self.backend).contents().records[1:]


@pytest.fixture
def flaky() -> FlakyBackend:
    return FlakyBackend(MemoryBackend())


def test_flush_makes_durable_at_once_and_in_order() -> None:
    setup = Setup(MemoryBackend(), interval_s=30)
    written = [b'{"n":%d}' % n for n in range(1000)]
    for record in written:
        setup.writer.write(record)
    started = time.monotonic()
    setup.writer.flush(10)
    assert time.monotonic() - started < 5
    assert setup.records() == written
    assert setup.writer.pending_bytes == 0
    setup.writer.close()


def test_a_write_after_a_quiet_time_is_durable_at_once_and_the_next_within_the_interval() -> None:
    setup = Setup(MemoryBackend(), interval_s=3)
    written_at = time.monotonic()
    setup.writer.write(b"1")
    _wait_for_records(setup, 1)
    assert time.monotonic() - written_at < 2.8
    setup.writer.write(b"2")
    time.sleep(0.1)
    assert setup.records() == [b"1"]  # gathered, not yet put
    _wait_for_records(setup, 2)
    assert time.monotonic() - written_at >= 2.9
    setup.writer.close()


def _wait_for_records(setup: Setup, count: int) -> None:
    deadline = time.monotonic() + 10
    while len(setup.records()) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(setup.records()) == count


def test_many_writes_make_few_segments() -> None:
    backend = MemoryBackend()
    setup = Setup(backend, interval_s=0.05)
    started = time.monotonic()
    for _ in range(60):
        setup.writer.write(b"1")
        time.sleep(0.005)
    setup.writer.close()
    assert len(backend.segments) - 1 <= (time.monotonic() - started) / 0.05 + 2
    assert len(setup.records()) == 60


def test_close_writes_what_is_pending_and_ends_the_thread() -> None:
    setup = Setup(MemoryBackend(), interval_s=30)
    setup.writer.write(b"1")
    setup.writer.close()
    setup.writer.close()
    assert setup.records() == [b"1"]
    assert not any(
        thread.name == "raysweep-journal" and thread.is_alive() for thread in threading.enumerate()
    )
    with pytest.raises(ValueError, match="closed"):
        setup.writer.write(b"2")
    assert setup.errors == []


def test_a_newline_is_refused() -> None:
    with Setup(MemoryBackend()).writer as writer, pytest.raises(ValueError, match="newline"):
        writer.write(b"{}\n")


def test_transient_failures_are_tried_again(flaky: FlakyBackend) -> None:
    setup = Setup(flaky, interval_s=0.01)
    flaky.fail_before = 3
    setup.writer.write(b"1")
    setup.writer.flush(20)
    assert flaky.failed == 3
    assert setup.records() == [b"1"]
    assert setup.errors == []
    setup.writer.close()


def test_a_put_that_landed_though_it_timed_out_counts_once(flaky: FlakyBackend) -> None:
    setup = Setup(flaky, interval_s=0.01)
    flaky.fail_after = 1
    setup.writer.write(b"1")
    setup.writer.flush(20)
    setup.writer.write(b"2")
    setup.writer.flush(20)
    assert flaky.failed == 1
    assert setup.records() == [b"1", b"2"]
    assert setup.errors == []
    setup.writer.close()


def test_the_writer_gives_up_after_its_bound(flaky: FlakyBackend) -> None:
    setup = Setup(flaky, interval_s=0.01, give_up_after_s=0.3)
    flaky.fail_before = 10**9
    setup.writer.write(b"1")
    with pytest.raises(StorageUnavailableError, match="could not be written for"):
        setup.writer.flush(20)
    assert [type(error) for error in setup.errors] == [StorageUnavailableError]
    with pytest.raises(StorageUnavailableError):
        setup.writer.write(b"2")
    with pytest.raises(StorageUnavailableError):
        setup.writer.close()


def test_flush_can_time_out_and_writing_goes_on(flaky: FlakyBackend) -> None:
    setup = Setup(flaky, interval_s=0.01)
    flaky.gate.clear()
    setup.writer.write(b"1")
    with pytest.raises(StorageUnavailableError, match="not durable after"):
        setup.writer.flush(0.05)
    flaky.gate.set()
    setup.writer.flush(10)
    assert setup.records() == [b"1"]
    setup.writer.close()


def test_close_gives_up_on_dead_storage(flaky: FlakyBackend) -> None:
    setup = Setup(flaky, interval_s=0.01)
    flaky.fail_before = 10**9
    setup.writer.write(b"1")
    started = time.monotonic()
    with pytest.raises(StorageUnavailableError):
        setup.writer.close(0.3)
    assert time.monotonic() - started < 5


def test_an_outage_bounds_what_is_pending(flaky: FlakyBackend) -> None:
    setup = Setup(flaky, interval_s=0.01, max_pending_bytes=10_000)
    flaky.gate.clear()
    record = b"x" * 90
    finished = threading.Event()

    def write_much() -> None:
        for _ in range(1000):
            setup.writer.write(record)
        finished.set()

    thread = threading.Thread(target=write_much)
    thread.start()
    assert not finished.wait(0.3)
    assert 9_000 <= setup.writer.pending_bytes <= 10_100
    flaky.gate.set()
    assert finished.wait(20)
    thread.join()
    setup.writer.close()
    assert len(setup.records()) == 1000


def test_a_blocked_write_hears_of_the_end(flaky: FlakyBackend) -> None:
    setup = Setup(flaky, interval_s=0.01, max_pending_bytes=100, give_up_after_s=0.3)
    flaky.fail_before = 10**9
    setup.writer.write(b"x" * 60)
    setup.writer.write(b"x" * 60)
    with pytest.raises(StorageUnavailableError):
        setup.writer.write(b"x" * 60)


def test_large_batches_are_cut_into_segments() -> None:
    backend = MemoryBackend()
    setup = Setup(backend, interval_s=30, max_segment_bytes=1000)
    written = [b"%d" % n * 50 for n in range(100)] + [b"y" * 5000, b"z"]
    for record in written:
        setup.writer.write(record)
    setup.writer.close()
    assert setup.records() == written
    assert all(len(data) < 1300 for data in list(backend.segments.values()) if b"yyy" not in data)


def test_many_threads_lose_nothing() -> None:
    setup = Setup(MemoryBackend(), interval_s=0.001)

    def write(name: int) -> None:
        for n in range(500):
            setup.writer.write(b'{"t":%d,"n":%d}' % (name, n))
            if n % 50 == 0:
                setup.writer.flush(20)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    setup.writer.close()
    records = setup.records()
    for name in range(4):
        mine = [record for record in records if record.startswith(b'{"t":%d,' % name)]
        assert mine == [b'{"t":%d,"n":%d}' % (name, n) for n in range(500)]


def test_compaction_runs_beside_the_writing(tmp_path: object) -> None:
    backend = ObjectJournal(open_store(f"{tmp_path}/store"), "s/journal")
    setup = Setup(backend, interval_s=0.001)
    for n in range(200):
        setup.writer.write(b"%d" % n)
        setup.writer.flush(20)
    deadline = time.monotonic() + 20
    while len(backend.list_objects()) > 80 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(backend.list_objects()) <= 80
    assert setup.records() == [b"%d" % n for n in range(200)]
    setup.writer.close()
    assert (setup.errors, setup.notes) == ([], [])


class BrokenCompaction(MemoryBackend):
    def compact(self) -> Iterator[None]:
        yield
        raise StorageError("journal", "a merged object differs")


def test_failing_compaction_is_said_and_stops_nothing() -> None:
    setup = Setup(BrokenCompaction(), interval_s=0.001, compact_every=2)
    for n in range(6):
        setup.writer.write(b"%d" % n)
        setup.writer.flush(20)
    setup.writer.close()
    assert any("a merged object differs" in note for note in setup.notes)
    assert setup.errors == []
    assert len(setup.records()) == 6


class Exploding(MemoryBackend):
    def append(self, number: int, data: bytes) -> None:
        if number > 1:
            raise RuntimeError("a bug")
        super().append(number, data)


def test_a_bug_in_the_backend_reaches_the_controller() -> None:
    setup = Setup(Exploding(), interval_s=0.001)
    setup.writer.write(b"1")
    with pytest.raises(StorageUnavailableError, match="RuntimeError: a bug"):
        setup.writer.flush(10)
    assert isinstance(setup.errors[0].__cause__, RuntimeError)


def test_fencing_names_both_generations() -> None:
    backend = MemoryBackend()
    setup = Setup(backend, interval_s=0.001)
    claim(backend, lambda generation: b"1")
    claim(backend, lambda generation: b"1")
    setup.writer.write(b"1")
    with pytest.raises(FencedError) as caught:
        setup.writer.flush(10)
    assert (caught.value.sweep_id, caught.value.generation, caught.value.by_generation) == ("s", 1, 2)


def test_records_are_sealed_by_the_next_segment() -> None:
    """A torn end takes the last segment at most."""
    setup = Setup(MemoryBackend(), interval_s=60)
    with setup.writer as writer:
        assert (writer.written, writer.sealed) == (0, 0)
        for number in range(3):
            writer.write(b"%d" % number)
        writer.flush()
        assert (writer.written, writer.sealed) == (3, 0)
        writer.write(b"3")
        assert writer.sealed == 0
        writer.flush()
        assert (writer.written, writer.sealed) == (4, 3)


def test_how_far_the_journal_lags_behind() -> None:
    flaky = FlakyBackend(MemoryBackend())
    setup = Setup(flaky)
    with setup.writer as writer:
        assert writer.behind_s == 0.0
        flaky.gate.clear()
        writer.write(b"1")
        time.sleep(0.1)
        assert 0.1 <= writer.behind_s < 10  # in the put
        writer.write(b"2")
        time.sleep(0.1)
        assert 0.2 <= writer.behind_s < 10
        flaky.gate.set()
        writer.flush()
        assert writer.behind_s == 0.0


def test_a_mark_is_told_the_segment_that_ends_there_once_it_is_durable(flaky: FlakyBackend) -> None:
    setup, ended = Setup(flaky, interval_s=0.0), []
    setup.writer.mark(ended.append)
    assert ended == [setup.claim.number], "all is durable: the claim is the end"
    flaky.gate.clear()
    setup.writer.write(b"1")
    setup.writer.write(b"2")
    setup.writer.mark(ended.append)
    setup.writer.write(b"3")
    assert len(ended) == 1
    flaky.gate.set()
    setup.writer.close()
    journal = Journal(flaky)
    ends = {}
    for record in journal.read():
        ends[record] = journal.last_number
    assert ended[1:] == [ends[b"2"]]
    assert ends[b"3"] == ends[b"2"] + 1
