"""The listeners to a sweep's progress while its task runs in this process: a live table, an artifact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raysweep.outcome import SweepProgress

OnProgress = Callable[[SweepProgress], None]
_listeners: list[OnProgress] = []


@contextmanager
def listening(listener: OnProgress) -> Iterator[None]:
    """Call `listener` about twice a second while a sweep task runs in this process."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def tell_listeners(progress: SweepProgress) -> None:
    """Pass the progress on to all listeners."""
    for listener in tuple(_listeners):
        listener(progress)
