"""A call on a thread of its own and what came of it; modules that another thread may be importing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import Any, Final, TypeVar

T = TypeVar("T")
LISTEN_S: Final = 0.2
"""The delay until a thread that waits for another one hears of a signal."""


def loaded_module(name: str) -> Any:
    """A module that this process has imported; None for one that it has not, or that is being imported now.

    `sys.modules` has a module from the start of its import, when its names are not there yet.
    """
    module = sys.modules.get(name)
    is_partial = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_partial else module


def start_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Run the call on a daemon thread. The future holds what it returns, or whatever it raises."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # who waits may leave, the call continues

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised again where the result is asked for
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def result_of(running: Future[T]) -> T:
    """Wait for what a thread returns, or raise what it raised. A signal is heard meanwhile.

    A wait without a limit may sleep through one: Python looks for signals before it begins to wait, and one
    that comes right then, or that the system gives to another thread, wakes no thread.
    """
    while not wait([running], LISTEN_S).done:
        pass
    return running.result()


async def on_thread(call: Callable[[], T], *, within_s: float | None = None) -> T:
    """Await a call that may block, on a thread of its own.

    The threads of an event loop are few and shared: one mount that hangs would hold up whatever else runs on
    the loop. Raises TimeoutError after `within_s`; the call itself continues.
    """
    import asyncio  # a fork server starts faster without it

    context = copy_context()
    running = start_thread(lambda: context.run(call), "raysweep-call")
    # Not `wait_for`: on Python 3.11 it forgets that it was cancelled where the call returns at that moment.
    async with asyncio.timeout(within_s):
        return await asyncio.wrap_future(running)
