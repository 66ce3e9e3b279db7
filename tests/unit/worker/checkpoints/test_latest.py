"""`upload: latest`: a trial never waits for its uploads; what waits is skipped for the newest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.errors import TrialStopped
from raysweep.messages import CheckpointCommitted, CheckpointFailed, Stop
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import SweepPlace
from tests.unit.worker.handed_over import (
    JOB,
    LONG_S,
    Ears,
    Gate,
    ears,
    gate,
    hand_over,
    make,
    restored,
    settled,
    until,
)

__all__ = ["ears", "gate", "settled"]  # fixtures


@pytest.fixture
def session(tmp_path: Path, gate: Gate, ears: Ears) -> Iterator[Session]:
    store = str(tmp_path / "store")
    place = SweepPlace(sweep_id="s", storage_path=store, resources={}, metric="loss", upload="latest")
    session = Session(JOB, place, ears)
    yield session
    gate.opened.set()
    session.finish()


def test_what_waits_is_skipped_for_the_newest(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    hand_over(session, "stored now", loss=1.0)
    assert gate.reached.wait(LONG_S)
    for number in range(8, 14):
        hand_over(session, f"{number}", loss=float(number))
        (top,) = (tmp_path / "staging").iterdir()
        assert len([path for path in top.iterdir() if path.is_dir()]) == 2, "one is stored, one waits"
    assert ears.busy() == [], "the trial has not waited"
    gate.opened.set()
    session.finish()
    found = [message for message in ears.heard if isinstance(message, CheckpointCommitted)]
    assert [(each.number, each.report, each.score) for each in found] == [(7, 0, 1.0), (13, 6, 13.0)]
    assert restored(gate, 13, tmp_path) == {"text": b"13"}
    assert not [message for message in ears.heard if isinstance(message, CheckpointFailed)]
    assert ears.rows == 7, "all reports count"
    assert list((tmp_path / "staging").iterdir()) == []


@pytest.mark.usefixtures("settled")
def test_a_directory_is_whole_though_those_before_it_were_skipped(
    session: Session, gate: Gate, ears: Ears, tmp_path: Path
) -> None:
    """What they had copied, and it has not, is in none of the stored ones."""
    source = make(tmp_path / "in", first="1")
    session.report({"loss": 1.0}, source, False)
    assert gate.reached.wait(LONG_S)
    for number in range(8, 12):
        make(source, **{f"file{number}": f"{number}"})
        session.report({"loss": 1.0}, source, False)
    gate.opened.set()
    session.finish()
    assert ears.saved() == [7, 11]
    expected = {"first": b"1", **{f"file{number}": b"%d" % number for number in range(8, 12)}}
    assert restored(gate, 11, tmp_path) == expected


def test_one_that_is_waited_for_is_not_skipped(session: Session, gate: Gate, ears: Ears) -> None:
    hand_over(session, "stored now")
    assert gate.reached.wait(LONG_S)
    hand_over(session, "skipped")
    session.answer(100)
    waiting = threading.Thread(target=hand_over, args=(session, "waited for"), kwargs={"wait": True})
    waiting.start()
    until(lambda: ears.busy() == [True])
    for _ in range(2):
        hand_over(session, "later")
    gate.opened.set()
    waiting.join(LONG_S)
    session.finish()
    assert ears.saved() == [7, 9, 11]


def test_one_that_ends_the_trial_is_not_skipped(session: Session, gate: Gate, ears: Ears) -> None:
    hand_over(session, "stored now")
    assert gate.reached.wait(LONG_S)
    hand_over(session, "skipped")
    session.tell(Stop(*JOB.who, reason="preempt", wants_checkpoint=True, allows="checkpoint"))
    threading.Timer(0.1, gate.opened.set).start()
    with pytest.raises(TrialStopped):
        hand_over(session, "the last")
    assert ears.saved() == [7, 9]


def test_the_newest_is_given_back(session: Session, gate: Gate) -> None:
    hand_over(session, "stored now")
    assert gate.reached.wait(LONG_S)
    for text in ("skipped", "newest"):
        hand_over(session, text)
    threading.Timer(0.1, gate.opened.set).start()
    checkpoint = session.get_checkpoint()
    assert checkpoint is not None
    with checkpoint as folder:
        assert (folder / "text").read_text() == "newest"
