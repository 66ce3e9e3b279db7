"""What nothing needs any more is deleted once its record is sealed: a torn end could bring it back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from raysweep.cluster.checkpoint_deletion import Discards
from raysweep.errors import RaysweepError, StorageError
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.journal import Journal
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import Operation, WrappedStore
from raysweep.testing import MemoryBackend

T = TypeVar("T")


@pytest.fixture
def writer() -> Iterator[JournalWriter]:
    """It commits only what is flushed."""
    errors: list[RaysweepError] = []
    backend = MemoryBackend()
    claim = Journal(backend).claim(lambda generation: b'"claim"')
    with JournalWriter(
        backend, claim.generation, claim.next_number, errors.append, interval_s=3600.0
    ) as writer:
        commit(writer)
        yield writer
    assert errors == []


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def checkpoints(store: Store) -> CheckpointStore:
    return CheckpointStore(store, "s")


def commit(writer: JournalWriter) -> None:
    """A segment with one record."""
    writer.write(b"{}")
    writer.flush(10)


def save(checkpoints: CheckpointStore, tmp_path: Path, number: int) -> str:
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    (source / "file").write_text(str(number))
    return checkpoints.save("00000", number, source).uri


def test_nothing_is_due_before_a_segment_lies_behind_the_one_with_its_record(
    writer: JournalWriter, checkpoints: CheckpointStore
) -> None:
    discards = Discards(checkpoints, writer, ())
    assert not discards
    writer.write(b'"the record that makes it needless"')
    discards.add("a")
    assert discards
    assert discards.take_due() == [], "written"
    writer.flush(10)
    assert discards.take_due() == [], "durable, but the last segment could be torn"
    commit(writer)
    assert discards.take_due() == ["a"], "sealed"
    assert discards.take_due() == []
    assert not discards


def test_each_waits_for_its_own_record(writer: JournalWriter, checkpoints: CheckpointStore) -> None:
    discards = Discards(checkpoints, writer, ())
    due = []
    for uri in ("a", "b", "c"):
        writer.write(b"{}")
        discards.add(uri)
        writer.flush(10)
        due.append(discards.take_due())
    commit(writer)
    due.append(discards.take_due())
    assert due == [[], ["a"], ["b"], ["c"]]


def test_a_record_that_shares_its_segment_with_others_waits_with_them(
    writer: JournalWriter, checkpoints: CheckpointStore
) -> None:
    discards = Discards(checkpoints, writer, ())
    for uri in ("a", "b"):
        writer.write(b"{}")
        discards.add(uri)
    writer.flush(10)
    assert discards.take_due() == []
    commit(writer)
    assert discards.take_due() == ["a", "b"]


def test_what_an_earlier_controller_left_is_due_at_once(
    writer: JournalWriter, checkpoints: CheckpointStore
) -> None:
    """The claim of this one lies behind those records."""
    discards = Discards(checkpoints, writer, ("a", "b"))
    discards.add("c")
    assert discards.take_due() == ["a", "b"]


def test_a_torn_end_still_finds_the_checkpoint_that_it_names(
    writer: JournalWriter, checkpoints: CheckpointStore, tmp_path: Path
) -> None:
    """As a sweep does it: after each record, delete what is due."""
    uris = [save(checkpoints, tmp_path, number) for number in range(4)]
    discards = Discards(checkpoints, writer, ())
    for newest in range(1, 4):
        writer.write(b'"checkpoint %d"' % newest)
        discards.add(uris[newest - 1])
        writer.flush(10)
        discards.delete(discards.take_due())
        # Were the last segment lost, the trial would continue from the one before.
        assert checkpoints.numbers("00000")[:1] == (newest - 1,)


class Refusing(WrappedStore):
    """A store that does not delete the manifest of checkpoint 0."""

    def delete(self, *keys: str) -> None:
        if any(key.endswith("/0.json") for key in keys):
            raise StorageError(keys[0], "access denied")
        super().delete(*keys)


def test_what_cannot_be_deleted_is_said_and_the_rest_is_deleted(
    writer: JournalWriter, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = CheckpointStore(Refusing(store), "s")
    uris = [save(checkpoints, tmp_path, number) for number in range(2)]
    with caplog.at_level(logging.WARNING, logger="raysweep"):
        discards = Discards(checkpoints, writer, uris)
        discards.delete(discards.take_due())
    assert discards.undeleted() == [], "it is said once"
    assert checkpoints.numbers("00000") == (0,)
    assert "access denied" in caplog.text
    assert uris[0] in caplog.text


class Counting(WrappedStore):
    """How many requests there were; the first deletion of a manifest waits until it is let go."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.requests = 0
        self.is_in, self.may_go = threading.Event(), threading.Event()

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        self.requests += 1
        if operation == "delete" and not self.is_in.is_set():
            self.is_in.set()
            assert self.may_go.wait(60)
        return call()


def test_what_comes_due_while_a_thread_deletes_goes_with_its_next_look(
    writer: JournalWriter, store: Store, tmp_path: Path
) -> None:
    """Twenty that wait cost a few requests together, not each as many as there are checkpoints."""
    counting = Counting(store)
    uris = [save(CheckpointStore(store, "s"), tmp_path, number) for number in range(22)]
    discards = Discards(CheckpointStore(counting, "s"), writer, uris[:1])
    first = threading.Thread(target=discards.delete, args=(discards.take_due(),))
    first.start()
    assert counting.is_in.wait(60)
    for uri in uris[1:21]:
        discards.add(uri)
        commit(writer)
        commit(writer)
        discards.delete(discards.take_due())  # of another thread: it has nothing to do
    assert counting.requests == 1
    counting.may_go.set()
    first.join(60)
    assert CheckpointStore(store, "s").numbers("00000") == (21,)
    assert discards.undeleted() == []
    assert counting.requests < 60


def test_what_a_champion_or_a_training_needs_stays_and_is_asked_for_once(
    writer: JournalWriter, checkpoints: CheckpointStore, tmp_path: Path
) -> None:
    asked: list[int] = []
    uris = [save(checkpoints, tmp_path, number) for number in range(3)]

    def find_pins() -> set[str]:
        asked.append(1)
        return {checkpoints.addresses.reference(uris[1])}

    discards = Discards(checkpoints, writer, uris[:2], find_pins)
    assert asked == [], "not on the controller's own thread"
    discards.delete(discards.take_due())
    assert checkpoints.numbers("00000") == (1, 2)
    discards.add(uris[2])
    commit(writer)
    commit(writer)
    discards.delete(discards.take_due())
    assert checkpoints.numbers("00000") == (1,)
    assert (discards.undeleted(), asked) == ([], [1])


def test_nothing_is_deleted_while_nobody_knows_what_is_pinned(
    writer: JournalWriter, checkpoints: CheckpointStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def find_pins() -> set[str]:
        raise StorageError("champions/night.json", "is damaged")

    uris = [save(checkpoints, tmp_path, number) for number in range(2)]
    discards = Discards(checkpoints, writer, uris, find_pins)
    with caplog.at_level(logging.WARNING, logger="raysweep"):
        discards.delete(discards.take_due())
    assert checkpoints.numbers("00000") == (0, 1)
    assert "champions/night.json" in caplog.text
