"""Uploads pause while the trial writes its next checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raysweep.worker.checkpoints import uploader
from raysweep.worker.checkpoints.uploader import Handover, Uploader
from tests.unit.worker.handed_over import LONG_S


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


def test_nothing_pauses_while_another_checkpoint_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that works inside of `rs.new_checkpoint()` while two wait would wait for room after that."""
    monkeypatch.setattr(uploader, "PAUSE_S", 10 * LONG_S)
    began, may_store, stored = threading.Event(), threading.Event(), threading.Semaphore(0)

    def store(handover: Handover) -> None:
        began.set()
        may_store.wait(LONG_S)
        found.go_on()
        stored.release()

    found = Uploader(threading.Condition(), store)
    for number in (1, 2, 3):
        found.add(Handover(folder=Path(), number=number, report=0, metrics={}))
    assert began.wait(LONG_S)
    with found.paused():
        may_store.set()
        assert stored.acquire(timeout=LONG_S)
        assert stored.acquire(timeout=LONG_S)
        assert found.has_room
        assert not stored.acquire(timeout=0.1), "nothing waits for the last one"
    assert stored.acquire(timeout=LONG_S)
