"""A call on a thread of its own: what it returns and whatever it raises come back."""

from __future__ import annotations

import threading

import pytest

from raysweep.errors import TrialStopped
from raysweep.threads import start_thread


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
