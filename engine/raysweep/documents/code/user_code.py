"""Calls to functions and classes that the user or a library of the user wrote.

User code can raise exceptions that are not an `Exception`: `SystemExit`, `asyncio.CancelledError`,
`KeyboardInterrupt`, the panic of a Rust library. They end an event loop or a thread without a message, and
the sweep would hang. `call` turns each of them into an `Exception`. An exception that a signal handler
raises during the call is not the user code's: it is raised unchanged.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
_signals = 0


class NotAnExceptionError(Exception):
    """Stands for what is no `Exception` and user code raised; has its class's name, text and traceback."""


def note_signal() -> None:
    """A signal has come, whose handler may raise: to be called there."""
    global _signals
    _signals += 1


def call(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it; what it raises is an `Exception`, unless a signal came meanwhile.

    Raises:
        NotAnExceptionError: in place of any other exception.
    """
    before = _signals
    try:
        return function(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        if _signals != before or _may_be_ctrl_c(error):
            raise
        raise as_exception(error) from error


def as_exception(error: BaseException) -> Exception:
    """The same as an `Exception`."""
    if isinstance(error, Exception):
        return error
    kind = type(error)
    stand_in = type(kind.__name__, (NotAnExceptionError,), {"__module__": kind.__module__})
    raised: Exception = stand_in(str(error)).with_traceback(error.__traceback__)
    return raised


def _may_be_ctrl_c(error: BaseException) -> bool:
    """True if Python's own handler may have raised it, which notes nothing."""
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
