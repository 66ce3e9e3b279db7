"""A call on a thread of its own: what it returns and whatever it raises come back."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from raysweep.errors import TrialStopped
from raysweep.threads import loaded_module, result_of, start_thread


def test_what_it_returns_comes_from_another_thread() -> None:
    found = start_thread(threading.current_thread, "mine").result(10)
    assert (found.name, found.daemon) == ("mine", True)


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), SystemExit(3), TrialStopped()])
def test_whatever_it_raises_is_raised_where_it_is_asked_for(error: BaseException) -> None:
    def fail() -> None:
        raise error

    running = start_thread(fail, "mine")
    with pytest.raises(type(error)) as caught:
        running.result(10)
    assert caught.value is error
    assert running.exception() is error


@pytest.mark.parametrize("where", ["main thread", "other thread"])
def test_who_waits_for_it_hears_ctrl_c_wherever_the_system_delivers_it(where: str) -> None:
    """To another thread, as to the main one right as it begins to wait: nothing wakes that."""
    ended, main = threading.Event(), threading.get_ident()

    def interrupt() -> None:
        time.sleep(0.2)
        signal.pthread_kill(main if where == "main thread" else threading.get_ident(), signal.SIGINT)
        ended.wait(30)

    running = start_thread(interrupt, "mine")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            result_of(running)
        assert not running.done(), "at once, and not at its end"
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()
    assert result_of(running) is None


def test_the_result_is_what_the_thread_returned_or_raised() -> None:
    assert result_of(start_thread(lambda: 3, "mine")) == 3
    with pytest.raises(ZeroDivisionError):
        result_of(start_thread(lambda: 1 // 0, "mine"))


def test_a_module_that_another_thread_imports_is_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray on the thread of another sweep: it takes a second, and its names come last."""
    name = "slow_to_import_by_threads"
    (tmp_path / f"{name}.py").write_text("import time\ntime.sleep(0.5)\nvalue = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert loaded_module(name) is None
    importing = start_thread(lambda: __import__(name), "importing")
    deadline = time.monotonic() + 10
    while name not in sys.modules and time.monotonic() < deadline:
        time.sleep(0.001)
    assert loaded_module(name) is None
    importing.result(10)
    assert loaded_module(name).value == 1
    assert loaded_module("time") is time
    del sys.modules[name]
