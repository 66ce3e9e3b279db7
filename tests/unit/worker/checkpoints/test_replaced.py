"""At its end a trial skips checkpoints that would be deleted at once; uploads pause while it writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.messages import Stop
from raysweep.specs import SweepSpec
from raysweep.worker.checkpoints import uploader
from raysweep.worker.checkpoints.uploader import Handover, Uploader
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import Keeps, SweepPlace
from tests.unit.worker.handed_over import JOB, LONG_S, Ears, Gate, ears, gate, hand_over, restored, until

__all__ = ["ears", "gate"]  # fixtures

Make = Callable[[Keeps | None], Session]


@pytest.fixture
def make(tmp_path: Path, gate: Gate, ears: Ears) -> Make:
    def session(keeps: Keeps | None) -> Session:
        place = SweepPlace(
            sweep_id="s", storage_path=str(tmp_path / "store"), resources={}, metric="loss", keeps=keeps
        )
        return Session(JOB, place, ears)

    return session


def ended(session: Session, gate: Gate, losses: tuple[float, float, float]) -> None:
    """The first checkpoint is being stored, the others wait, when user code has ended."""
    for loss in losses:
        hand_over(session, f"{loss}", loss=loss)
        assert gate.reached.wait(LONG_S)
    ender = threading.Thread(target=session.finish)
    ender.start()
    until(lambda: session._saver._uploader._is_needed > 0)
    gate.opened.set()
    ender.join(LONG_S)
    assert not ender.is_alive()


@pytest.mark.parametrize(
    ("keeps", "losses", "stored"),
    [
        (Keeps(last=1, best=0), (3.0, 1.0, 2.0), [7, 9]),
        (Keeps(last=2, best=0), (3.0, 1.0, 2.0), [7, 8, 9]),
        (Keeps(last=1, best=1), (3.0, 2.0, 1.0), [7, 9]),
        (Keeps(last=1, best=1), (3.0, 1.0, 2.0), [7, 8, 9]),
        (Keeps(last=1, best=1), (3.0, 1.0, 1.0), [7, 8, 9]),
        (Keeps(last=1, best=1, is_max=True), (1.0, 2.0, 3.0), [7, 9]),
        (Keeps(last=1, best=1, is_max=True), (1.0, 3.0, 2.0), [7, 8, 9]),
        (Keeps(last=1, best=2), (3.0, 2.0, 1.0), [7, 8, 9]),
        (Keeps(last=1, best=1), (3.0, float("nan"), 1.0), [7, 9]),
        (None, (3.0, 2.0, 1.0), [7, 8, 9]),
    ],
    ids=str,
)
def test_what_would_be_deleted_at_once_is_not_stored(
    keeps: Keeps | None, losses: tuple[float, float, float], stored: list[int], make: Make, gate: Gate,
    ears: Ears, tmp_path: Path,
) -> None:  # fmt: skip
    ended(make(keeps), gate, losses)
    assert ears.saved() == stored
    assert restored(gate, 9, tmp_path) == {"text": f"{losses[-1]}".encode()}
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_better_one_that_is_stored_counts(make: Make, gate: Gate, ears: Ears) -> None:
    session = make(Keeps(last=1, best=1))
    gate.opened.set()
    hand_over(session, "best", loss=0.1)
    until(lambda: ears.saved() == [7])
    gate.opened.clear()
    gate.reached.clear()
    ended(session, gate, (3.0, 1.0, 2.0))
    assert ears.saved() == [7, 8, 10]


def test_a_trial_that_was_told_to_stop_stores_all(make: Make, gate: Gate, ears: Ears) -> None:
    """Reports after that may rank nothing: what is better by them is not kept for it."""
    session = make(Keeps(last=1, best=0))
    for loss in (3.0, 2.0, 1.0):
        hand_over(session, f"{loss}", loss=loss)
        assert gate.reached.wait(LONG_S)
    session.tell(Stop(JOB.trial, JOB.attempt, "limit"))
    gate.opened.set()
    session.finish()
    assert ears.saved() == [7, 8, 9]


def spec(**checkpoint: Any) -> SweepSpec:
    return SweepSpec(
        name="s", trainable="m:f", metric="auc", mode="max", param_space={"x": 1}, checkpoint=checkpoint
    )


def test_what_is_kept_follows_from_the_spec() -> None:
    assert Keeps.of(spec()) == Keeps(last=1, best=1, is_max=True)
    assert Keeps.of(spec(keep_last=3, keep_best=False)) == Keeps(last=3, best=0, is_max=True)
    by_size = {"metric": "size", "mode": "min", "num": 2}
    assert Keeps.of(spec(keep_best=by_size)) == Keeps(last=1, best=2, is_max=False)
    assert Keeps.of(spec(every_n=3)) is None, "counts what is stored"


# -- pauses --------------------------------------------------------------------------------------------


def go_on(of: Uploader) -> threading.Thread:
    thread = threading.Thread(target=of.go_on)
    thread.start()
    return thread


def test_an_upload_pauses_while_the_trial_writes() -> None:
    found = Uploader(threading.Condition(), lambda handover: None)
    with found.paused():
        thread = go_on(found)
        thread.join(0.1)
        assert thread.is_alive()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_an_upload_that_the_trial_waits_for_does_not_pause() -> None:
    found = Uploader(threading.Condition(), lambda handover: None)
    with found.paused():
        thread = go_on(found)
        with found.needed():
            thread.join(LONG_S)
            assert not thread.is_alive()


def test_a_pause_ends_with_the_checkpoint_that_the_trial_has_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`rs.report` inside of `rs.new_checkpoint()`, and then a wait for the checkpoint's evaluation."""
    monkeypatch.setattr(uploader, "PAUSE_S", 10 * LONG_S)
    stored = threading.Event()

    def store(handover: Handover) -> None:
        found.go_on()
        stored.set()

    found = Uploader(threading.Condition(), store)
    with found.paused():
        found.add(Handover(folder=Path(), number=1, report=0, metrics={}))
        assert stored.wait(LONG_S)


def test_a_trial_that_writes_without_end_holds_no_upload_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploader, "PAUSE_S", 0.05)
    found = Uploader(threading.Condition(), lambda handover: None)
    with found.paused():
        thread = go_on(found)
        thread.join(LONG_S)
        assert not thread.is_alive()
