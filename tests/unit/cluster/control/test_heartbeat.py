"""The heartbeat: what it writes, and which requests to cancel reach the core."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raysweep.cluster.clock import SteadyClock
from raysweep.cluster.control import heartbeat
from raysweep.cluster.control.background import Background
from raysweep.cluster.control.backpressure import Backpressure
from raysweep.cluster.control.heartbeat import Heartbeat
from raysweep.core.vocabulary import events as ev
from raysweep.errors import StorageError, SweepDamagedError
from raysweep.outcome import Cancellation


class Folder:
    """What the heartbeat calls of a sweep's folder, in memory."""

    sweep_id = "s"

    def __init__(self) -> None:
        self.written: list[object] = []
        self.asked: Cancellation | None = None
        self.is_away = self.is_gone = False
        self.cannot_check = False
        self.checks: list[int] = []
        self.threads: set[str] = set()

    def _note_thread(self) -> None:
        self.threads.add(threading.current_thread().name)

    def write_progress(self, progress: object) -> None:
        self._note_thread()
        if self.is_away:
            raise StorageError("progress.json", "is away")
        self.written.append(progress)

    def read_cancellation(self) -> Cancellation | None:
        self._note_thread()
        if self.is_away:
            raise StorageError("cancel.json", "is away")
        return self.asked

    def check_is_there(self, claim: int) -> None:
        self._note_thread()
        self.checks.append(claim)
        if self.cannot_check:
            raise StorageError("sweep.json", "does not answer")
        if self.is_gone:
            raise SweepDamagedError("sweep.json", "is gone", "put it back")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(heartbeat, "SHOW_S", 0.01)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(heartbeat, "make_progress", lambda state, **fields: fields)
    return Folder()


def beat(
    folder: Folder, act: Callable[[], None] = lambda: None, old: Cancellation | None = None
) -> tuple[list[ev.Event], list[BaseException], list[Any]]:
    """Beat for a tenth of a second, then `act`, then beat as long again: events, failures, progress shown."""
    events: list[ev.Event] = []
    failed: list[BaseException] = []
    shown: list[Any] = []
    held = SimpleNamespace(
        folder=folder,
        state=None,
        holder=None,
        searcher=SimpleNamespace(total=3),
        claim=SimpleNamespace(number=5),
        asked=SimpleNamespace(job_number=2),
        old_cancellation=old,
    )

    async def run(thread: ThreadPoolExecutor) -> None:
        background = Background(failed.append)
        beats = Heartbeat(cast(Any, held), SteadyClock(), background, thread, events.append, shown.append)
        task = background.watch(beats.run(lambda: None))
        await asyncio.sleep(0.1)
        act()
        await asyncio.sleep(0.1)
        task.cancel()

    with ThreadPoolExecutor(1, "beat") as thread:
        asyncio.run(run(thread))
    return events, failed, shown


def test_progress_is_shown_and_written(folder: Folder) -> None:
    _, failed, shown = beat(folder)
    assert failed == []
    assert len(shown) >= len(folder.written) >= 2
    assert (shown[0]["sweep_id"], shown[0]["total"]) == ("s", 3)
    assert folder.threads == {"beat_0"}, "the storage is called on a thread that others need"


def test_a_stored_request_cancels_once(folder: Folder) -> None:
    asked = Cancellation(at=10.0, reason="enough", by="ann")

    def act() -> None:
        folder.asked = asked

    events, _, _ = beat(folder, act)
    assert [type(event) for event in events] == [ev.CancelRequested]
    assert cast(ev.CancelRequested, events[0]).reason == "enough (by ann)"


@pytest.mark.parametrize("is_old", [True, False])
def test_a_request_for_an_earlier_controller_or_another_job_is_ignored(is_old: bool, folder: Folder) -> None:
    folder.asked = Cancellation(at=10.0, reason="enough", number=0 if is_old else 1)
    events, _, _ = beat(folder, old=folder.asked if is_old else None)
    assert events == []


def test_an_outage_is_logged_once_and_ends_nothing(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    def act() -> None:
        folder.is_away = True

    _, failed, _ = beat(folder, act)
    assert failed == []
    assert caplog.text.count("is away") == 1


def test_a_folder_that_cannot_be_checked_is_logged(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    folder.cannot_check = True
    _, failed, _ = beat(folder)
    assert failed == []
    assert "the sweep's folder could not be checked: sweep.json: does not answer" in caplog.text


def test_a_folder_that_is_gone_fails_the_sweep(folder: Folder) -> None:
    folder.is_gone = True
    _, failed, _ = beat(folder)
    assert isinstance(failed[0], SweepDamagedError)
    assert folder.checks == [5], "checked more often than LOOK_S says"


def test_workers_are_held_back_until_the_writer_has_room() -> None:
    """The core hears that the storage stalls, once, and that it is over."""
    writer = SimpleNamespace(is_crowded=True, is_stalled=False)
    server, state = (
        SimpleNamespace(is_held=False),
        SimpleNamespace(controller=SimpleNamespace(is_stalled=False), phase="running"),
    )
    holds: list[bool] = []
    events: list[ev.Event] = []

    def hold_back(is_held: bool) -> None:
        server.is_held = is_held
        holds.append(is_held)

    def emit(event: ev.Event) -> None:
        events.append(event)
        state.controller.is_stalled = not cast(ev.StorageStalled, event).is_over

    server.hold_back = hold_back

    async def run() -> None:
        background = Background(lambda error: pytest.fail(str(error)))
        pressure = Backpressure(
            cast(Any, state), cast(Any, writer), cast(Any, server), background, emit, lambda: 1.0
        )
        for _ in range(3):
            pressure.hold_if_crowded()
            pressure.see_storage()
        await asyncio.sleep(0.1)
        assert holds == [True]
        writer.is_crowded = False
        await background.settle()
        pressure.see_storage()
        pressure.see_storage()

    asyncio.run(run())
    assert holds == [True, False]
    assert events == [ev.StorageStalled(at=1.0), ev.StorageStalled(at=1.0, is_over=True)]
