"""Keeps a flow's process alive whose worker has died: nothing reads what it prints any more.

Prefect's console handler prints with rich, which ends a process that writes to a broken pipe by `SystemExit`.
To Prefect that is a flow that a user has aborted; here it is an orphan that still waits for its sweep.
"""

from __future__ import annotations

import logging
import os
import select
from contextlib import suppress
from typing import Any, Final

_OUTPUTS: Final = (1, 2)


def outlive_readers() -> None:
    """From now on a log line that nothing reads is dropped, and does not end the process."""
    for handler in _handlers():
        console: Any = getattr(handler, "console", None)
        if console is not None and hasattr(console, "on_broken_pipe"):
            console.on_broken_pipe = drop_unread


def drop_unread() -> None:
    """Send output to nowhere if what read it is gone."""
    for number in _OUTPUTS:
        if _is_unread(number):
            with suppress(OSError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, number)
                os.close(null)


def is_broken_pipe(error: Any) -> bool:
    """True if a process ended because nothing read its output any more."""
    return isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError)


def _is_unread(number: int) -> bool:
    """True if a file descriptor is a pipe without a reader."""
    watch = select.poll()
    watch.register(number, 0)
    with suppress(OSError):
        return any(event & select.POLLERR for _, event in watch.poll(0))
    return False


def _handlers() -> set[logging.Handler]:
    loggers = [logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)]
    return {handler for logger in loggers for handler in logger.handlers}
