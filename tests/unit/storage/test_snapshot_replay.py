"""A sweep's state from a snapshot and the rest of the journal equals the state from the whole journal."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.cluster import replay as room
from raysweep.core import SweepState, encode
from raysweep.core import events as ev
from raysweep.spec import SweepSpec
from raysweep.storage.folder import SweepFolder, SweepRecord
from raysweep.storage.store import open_store
from raysweep.storage.writer import JournalWriter

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
    assert folder.read_snapshot_latest().number == first_journal.last_number
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
    from raysweep.core import decode, step

    for number, line in enumerate(journal.read(), start=1):
        step(state, decode(line))
        if number == 9:
            folder.write_snapshot(number, state.to_json())
            at_snapshot = len([t for t in state.trials.values() if t.state == "completed"])
    rebuilt = room.rebuild(folder, _record(folder)).state
    assert rebuilt.to_json() == state.to_json()
    assert 0 < at_snapshot < 5


def test_a_damaged_snapshot_costs_nothing_but_time(folder: SweepFolder, tmp_path: Path) -> None:
    plain = room.replay(folder.journal(), _record(folder))
    folder.write_snapshot(3, {"nonsense": True})
    assert room.rebuild(folder, _record(folder)).state.to_json() == plain.to_json()
    for path in (tmp_path / "s-1" / "snapshots").iterdir():
        path.write_bytes(b"not json")
    assert room.rebuild(folder, _record(folder)).state.to_json() == plain.to_json()


def test_a_claim_after_a_snapshot_takes_the_next_generation(folder: SweepFolder) -> None:
    read = room.rebuild(folder, _record(folder))
    folder.write_snapshot(read.journal.last_number, read.state.to_json())
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
                at=10.0, trial=5, attempt=2, number=1_001_000 + number, report=number, uri=f"u/{number}"
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
