"""A call on a thread of its own, and what came of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Run the call on a daemon thread. The future holds what it returns, or whatever it raises."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised again where the result is asked for
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
