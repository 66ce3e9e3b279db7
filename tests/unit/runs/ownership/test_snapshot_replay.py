"""A sweep's state from a snapshot and the rest of the journal equals the state from the whole journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from raysweep.cluster import snapshots as making
from raysweep.cluster.snapshots import Snapshots
from raysweep.core import SweepState, decode, encode, step
from raysweep.core.state.frozen import freeze, thaw
from raysweep.core.vocabulary import events as ev
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership import replay as room
from raysweep.runs.snapshots import SnapshotFolder
from raysweep.specs import SweepSpec
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import WrappedStore

SPEC = SweepSpec.from_any(
    {
        "name": "s",
        "trainable": "m:f",
        "metric": "loss",
        "mode": "min",
        "num_samples": 6,
        "param_space": {"x": {"uniform": [0, 1]}},
    }
)


def _events() -> list[ev.Event]:
    configs = tuple({"x": number / 10} for number in range(6))
    events: list[ev.Event] = [
        ev.CapacityChanged(at=1.0, slots=1),
        ev.ConfigsSuggested(at=1.0, first=0, configs=configs, is_exhausted=True),
        ev.SlotOpened(at=1.0, slot=0, node="n"),
    ]
    for trial in range(5):
        events += [
            ev.TrialStarted(at=2.0 + trial, trial=trial, attempt=1),
            ev.TrialReported(
                at=2.5 + trial, trial=trial, attempt=1, first=0, keys=("loss",), rows=([float(trial)],)
            ),
            ev.TrialReturned(at=2.6 + trial, trial=trial, attempt=1),
        ]
    return events


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    folder = SweepFolder(open_store(tmp_path), "s-1")
    folder.write_spec_if_absent(SweepRecord(digest="d", key="k", seed=3, spec=SPEC.to_dict()))
    journal = folder.journal()
    assert not list(journal.read())
    claim = journal.claim(lambda generation: encode(ev.ControllerStarted(at=0.5, generation=generation)))
    with JournalWriter(
        journal.backend, claim.generation, claim.next_number, lambda error: None, writer=claim.writer
    ) as writer:
        for event in _events():
            writer.write(encode(event))
            writer.flush()
    return folder


def _record(folder: SweepFolder) -> SweepRecord:
    record = folder.read_spec()
    assert record is not None
    return record


def test_the_same_state_with_and_without_a_snapshot(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = room.replay(folder.journal(), _record(folder))
    # The threshold is for long nights; the mechanism is the same for a short one.
    monkeypatch.setattr(room, "SNAPSHOT_AFTER_RECORDS", 5)
    read = room.rebuild(folder, _record(folder))
    first_journal, first = read.journal, read.state
    assert folder.snapshots.read_newest().number == first_journal.last_number
    again = room.rebuild(folder, _record(folder))
    journal, second = again.journal, again.state
    assert [trial.state for trial in plain.trials.values()] == ["completed"] * 5 + ["queued"]
    assert plain.to_json() == first.to_json() == second.to_json()
    assert journal.last_number == first_journal.last_number
    assert journal.generation == first_journal.generation == 1


def test_what_came_after_the_snapshot_is_replayed(folder: SweepFolder) -> None:
    """A snapshot of the middle of the journal, then the rest of it, one event a segment."""
    journal = folder.journal()
    state = SweepState.create(SPEC, 3)
    for number, line in enumerate(journal.read(), start=1):
        step(state, decode(line))
        if number == 9:
            folder.snapshots.write(number, freeze(state).parts())
            at_snapshot = len([t for t in state.trials.values() if t.state == "completed"])
    rebuilt = room.rebuild(folder, _record(folder)).state
    assert rebuilt.to_json() == state.to_json()
    assert 0 < at_snapshot < 5


def test_a_damaged_snapshot_costs_nothing_but_time(folder: SweepFolder, tmp_path: Path) -> None:
    plain = room.replay(folder.journal(), _record(folder))
    folder.snapshots.write(3, [b'{"nonsense":true}'])
    assert room.rebuild(folder, _record(folder)).state.to_json() == plain.to_json()
    for path in (tmp_path / "s-1" / "snapshots").iterdir():
        path.write_bytes(b"not json")
    assert room.rebuild(folder, _record(folder)).state.to_json() == plain.to_json()


def test_a_claim_after_a_snapshot_takes_the_next_generation(folder: SweepFolder) -> None:
    read = room.rebuild(folder, _record(folder))
    folder.snapshots.write(read.journal.last_number, freeze(read.state).parts())
    again = room.rebuild(folder, _record(folder)).journal
    claim = again.claim(lambda generation: encode(ev.ControllerStarted(at=9.0, generation=generation)))
    assert claim.generation == 2
    assert folder.journal().contents().generation == 2


def test_what_was_discarded_near_the_end_is_known(folder: SweepFolder) -> None:
    """A controller may have died between the record and the deletion: the next one catches up on it."""
    assert room.rebuild(folder, _record(folder)).discarded == ()
    journal = folder.journal()
    for _ in journal.read():
        pass
    claim = journal.claim(lambda generation: encode(ev.ControllerStarted(at=9.0, generation=generation)))
    events = [
        ev.CapacityChanged(at=9.0, slots=1),
        ev.SlotOpened(at=9.0, slot=1, node="n"),
        ev.TrialStarted(at=9.0, trial=5, attempt=2),
        *(
            ev.CheckpointCommitted(
                at=10.0, trial=5, attempt=2, number=10**13 + number, report=number, uri=f"u/{number}"
            )
            for number in range(3)
        ),
    ]
    with JournalWriter(
        journal.backend, claim.generation, claim.next_number, lambda error: None, writer=claim.writer
    ) as writer:
        for event in events:
            writer.write(encode(event))
            writer.flush()
    assert room.rebuild(folder, _record(folder)).discarded == ("u/0", "u/1")


class Controller:
    """The part of a controller that matters here: state, writer, snapshots."""

    def __init__(self, folder: SweepFolder) -> None:
        journal = folder.journal()
        assert not list(journal.read())
        started = ev.ControllerStarted(at=0.5, generation=1)
        claim = journal.claim(lambda generation: encode(started))
        self.state = SweepState.create(SPEC, 3)
        step(self.state, started)
        self.writer = JournalWriter(
            journal.backend,
            claim.generation,
            claim.next_number,
            lambda error: None,
            writer=claim.writer,
            interval_s=30.0,
        )
        self.undeleted: list[str] = []
        self.snapshots = Snapshots(folder, self.writer, self.state, lambda: self.undeleted)

    def take(self, events: list[ev.Event]) -> None:
        for event in events:
            step(self.state, event)
            self.writer.write(encode(event))

    def close(self) -> None:
        self.writer.close()
        self.snapshots.close()


@pytest.fixture
def empty(tmp_path: Path) -> SweepFolder:
    folder = SweepFolder(open_store(tmp_path), "s-2")
    folder.write_spec_if_absent(SweepRecord(digest="d", key="k", seed=3, spec=SPEC.to_dict()))
    return folder


def test_a_snapshot_while_the_sweep_runs_is_of_the_end_of_a_segment(empty: SweepFolder) -> None:
    """What is written behind it goes into the next segment, though both were committed together."""
    controller, events = Controller(empty), _events()
    controller.take(events[:8])
    then = controller.state.to_json()
    controller.snapshots.begin()
    controller.take(events[8:])
    controller.close()
    snapshot = empty.snapshots.read_newest()
    assert snapshot.state is not None
    assert thaw(snapshot.state).to_json() == then
    assert (snapshot.number, empty.journal().contents().last_number) == (2, 3)
    journal, state, applied = room.read_state(empty, _record(empty))
    assert applied == len(events) - 8
    assert (
        state.to_json()
        == controller.state.to_json()
        == room.replay(empty.journal(), _record(empty)).to_json()
    )
    assert (journal.generation, journal.last_number) == (1, 3)


def test_where_all_is_durable_the_snapshot_is_of_the_segment_before(empty: SweepFolder) -> None:
    controller, events = Controller(empty), _events()
    controller.snapshots.begin()
    controller.take(events)
    controller.close()
    assert empty.snapshots.read_newest().number == 1
    assert room.rebuild(empty, _record(empty)).state.to_json() == controller.state.to_json()


def test_a_snapshot_comes_after_so_many_records_and_so_much_time(
    empty: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "EVERY_RECORDS", 10)
    monkeypatch.setattr(making, "EVERY_S", 0.0)
    controller, events = Controller(empty), _events()
    controller.take(events[:9])
    controller.snapshots.look()
    assert empty.snapshots.read_newest().number == 0
    controller.take(events[9:12])
    controller.snapshots.look()
    controller.close()
    assert empty.snapshots.read_newest().number == 2


@pytest.mark.parametrize(("used_s", "pause_s"), [(2.0, making.SHARE * 2.0), (0.1, making.RESTS * 2.0)])
def test_one_follows_another(
    used_s: float, pause_s: float, empty: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that took long are rarer: they may take a share of a processor, and a share of the time."""
    monkeypatch.setattr(making, "EVERY_RECORDS", 1)
    monkeypatch.setattr(making, "EVERY_S", 0.0)
    now = [0.0]
    used = [0.0]
    monkeypatch.setattr(making, "monotonic", lambda: now[0])
    monkeypatch.setattr(making, "thread_time", lambda: used[0])
    controller, events = Controller(empty), _events()
    write = SnapshotFolder.write

    def write_slowly(
        folder: SnapshotFolder, number: int, parts: Iterable[bytes], discarded: Sequence[str]
    ) -> None:
        now[0] += 2.0
        used[0] += used_s
        write(folder, number, parts, discarded)

    monkeypatch.setattr(SnapshotFolder, "write", write_slowly)
    taken = iter(events)

    def look(at: float) -> int:
        now[0] = max(at, now[0])
        controller.take([next(taken)])
        controller.snapshots.look()
        controller.writer.flush()
        while controller.snapshots._is_under_way:
            time.sleep(0.01)
        return empty.snapshots.read_newest().number

    first = look(0.0)
    assert now[0] == 2.0
    assert look(2.0 + pause_s - 0.1) == first
    assert look(2.0 + pause_s + 0.1) > first
    controller.close()


class HeldStore(WrappedStore):
    """A store whose snapshots take as long as the test wants."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.may_go_on = threading.Event()
        self.puts: list[str] = []

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        if "/snapshots/" in key:
            self.puts.append(key)
            assert self.may_go_on.wait(10)
        super().put(key, data, durable=durable)


def test_there_are_never_two_at_once(empty: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "EVERY_RECORDS", 1)
    monkeypatch.setattr(making, "EVERY_S", 0.0)
    store = HeldStore(empty.store)
    controller, events = Controller(SweepFolder(store, "s-2")), _events()
    for event in events:
        controller.take([event])
        controller.snapshots.look()
        controller.writer.flush()
    store.may_go_on.set()
    controller.close()
    assert len(store.puts) == 1
    assert room.rebuild(empty, _record(empty)).state.to_json() == controller.state.to_json()


def test_what_was_not_deleted_yet_is_in_the_snapshot(empty: SweepFolder) -> None:
    """Else a controller that dies right after it leaves checkpoints that nobody knows of."""
    controller = Controller(empty)
    controller.take(_events()[:4])
    controller.undeleted = ["u/1", "u/2"]
    controller.snapshots.begin()
    controller.close()
    assert room.rebuild(empty, _record(empty)).discarded == ("u/1", "u/2")


def _late_checkpoint(state: SweepState) -> None:
    step(state, ev.CheckpointCommitted(at=9.0, trial=0, attempt=1, number=0, report=0, uri="u/0"))


def _failed_checkpoint(state: SweepState) -> None:
    step(state, ev.CheckpointFailed(at=9.0, trial=0, attempt=1, number=0, problem="full"))


def _reopened(state: SweepState) -> None:
    step(state, ev.ControllerStarted(at=10.0, generation=2, is_reopening=True))
    assert state.trials[5].state == "pending"


@pytest.mark.parametrize("change", [_late_checkpoint, _failed_checkpoint, _reopened])
def test_what_is_frozen_stays_as_it_is(change: Callable[[SweepState], None]) -> None:
    state = SweepState.create(SPEC, 3)
    for event in (ev.ControllerStarted(at=0.5, generation=1), *_events()):
        step(state, event)
    if change is _reopened:
        step(state, ev.CancelRequested(at=8.0, reason="stop"))
        step(state, ev.TrialsRecalled(at=8.0, slot=0, trials=(5,)))
        step(state, ev.SweepEnded(at=8.0))
        assert state.trials[5].state == "cancelled"
    before, frozen = state.to_json(), freeze(state)
    change(state)
    assert state.to_json() != before
    assert thaw(b"".join(frozen.parts())).to_json() == before
