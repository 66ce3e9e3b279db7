"""Background work and the core's timer on the event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raysweep.cluster.control.background import Background
from raysweep.cluster.control.timer import CoreTimer
from raysweep.cluster.control.tracebacks import Tracebacks
from raysweep.core.vocabulary.commands import SetTimer
from raysweep.errors import StorageError
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.local import LocalStore


def test_an_error_in_the_background_reaches_fail() -> None:
    failed: list[BaseException] = []
    error = ValueError("x")

    async def work() -> None:
        raise error

    async def run() -> None:
        background = Background(failed.append)
        background.spawn(work())
        await background.settle()
        background.watch(work())
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert failed == [error, error]


def test_a_cancelled_task_is_no_failure() -> None:
    failed: list[BaseException] = []

    async def run() -> None:
        task = Background(failed.append).watch(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert failed == []


def test_settle_waits_for_work_that_starts_meanwhile_and_not_for_watched_work() -> None:
    done: list[str] = []
    release = threading.Event()

    async def run() -> None:
        background = Background(lambda error: None)

        async def first() -> None:
            await asyncio.sleep(0.01)
            background.spawn_on(pool, second)
            done.append("first")

        def second() -> None:
            release.wait(5)
            done.append(threading.current_thread().name)

        background.watch(asyncio.sleep(60))
        background.spawn(first())
        asyncio.get_running_loop().call_later(0.05, release.set)
        await background.settle()

    with ThreadPoolExecutor(1, "own") as pool:
        asyncio.run(asyncio.wait_for(run(), 10))
    assert done == ["first", "own_0"]


def test_a_later_timer_replaces_the_earlier() -> None:
    fired: list[float] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        timer = CoreTimer(lambda: fired.append(loop.time()), loop.time)
        began = loop.time()
        timer.set(SetTimer(at=began + 0.01))
        timer.set(SetTimer(at=began + 0.05))
        await asyncio.sleep(0.03)
        assert not fired
        await asyncio.sleep(0.05)
        assert len(fired) == 1
        timer.set(SetTimer(at=began))  # in the past: at once
        await asyncio.sleep(0.01)
        assert len(fired) == 2
        timer.set(SetTimer(at=loop.time() + 0.01))
        timer.set(SetTimer(at=None))
        await asyncio.sleep(0.03)

    asyncio.run(run())
    assert len(fired) == 2


def test_a_traceback_is_stored_below_the_folder(tmp_path: Any) -> None:
    folder = SweepFolder(LocalStore(tmp_path), "s")
    with ThreadPoolExecutor(1) as thread:

        async def run() -> str:
            background = Background(lambda error: pytest.fail(str(error)))
            path = Tracebacks(folder, background, thread).keep(3, 1, "Traceback: x")
            await background.settle()
            return path

        path = asyncio.run(run())
    assert path == "errors/00003-1.txt"
    assert (tmp_path / "s" / path).read_text() == "Traceback: x"


def test_a_traceback_that_cannot_be_stored_ends_nothing(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = SweepFolder(LocalStore(tmp_path), "s")

    def refuse(*args: object, **kwargs: object) -> None:
        raise StorageError("errors", "is full")

    monkeypatch.setattr(folder, "write_text", refuse)
    failed: list[BaseException] = []
    with ThreadPoolExecutor(1) as thread:

        async def run() -> None:
            background = Background(failed.append)
            Tracebacks(folder, background, thread).keep(3, 1, "Traceback: x")
            await background.settle()

        asyncio.run(run())
    assert failed == []
    assert "the traceback of trial 00003 was not stored" in caplog.text
