"""Finds the attempt whose code started a thread, a task or a piece of a pool's work.

A process runs one trial after another, so the time of a call does not tell which trial makes it. The
attempt's own thread carries its owner in `OWN`; asyncio tasks copy the context and carry it too. Python
gives a new thread an empty context: `watch_threads` marks each new thread with the owner of the thread
that started it. A `ThreadPoolExecutor` can serve several attempts: its work belongs to the attempt that
submitted it.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar
from functools import partial, wraps
from types import ModuleType
from typing import Any, Final

OWN: Final[ContextVar[Any]] = ContextVar("raysweep_attempt", default=None)
"""The session of an attempt; None: see `find_owner`."""
ENDED: Final = "ended"
"""The reason with which a call is refused whose attempt has ended."""
_MARK: Final = "_raysweep_attempt"
_watched: Final[set[str]] = set()


def find_owner() -> Any:
    """The attempt that the calling code belongs to; None: no attempt started it, as far as is known."""
    return OWN.get() or getattr(threading.current_thread(), _MARK, None)


def is_foreign() -> bool:
    """True if a library in C has started the calling thread: for which trial, is not known."""
    return isinstance(threading.current_thread(), threading._DummyThread)


def watch_threads() -> None:
    """From now on each thread knows its owner. Once a process."""
    if "threading" in _watched:  # each attempt asks
        return
    _watched.add("threading")
    start, start_raw = threading.Thread.start, _thread.start_new_thread

    @wraps(start)
    def start_owned(thread: threading.Thread) -> None:
        owner = find_owner()
        if owner is not None:
            setattr(thread, _MARK, owner)
        start(thread)

    @wraps(start_raw)
    def start_raw_owned(
        function: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, /
    ) -> int:
        owner = find_owner()
        if owner is not None and callable(function):
            context = Context()
            context.run(OWN.set, owner)
            function = partial(context.run, function)
        return start_raw(function, args, dict(kwargs or {}))

    threading.Thread.start = start_owned  # type: ignore[method-assign, assignment]
    _thread.start_new_thread = _thread.start_new = start_raw_owned


def watch_pools(module: ModuleType) -> None:
    """From now on the work of this module's `ThreadPoolExecutor` knows its owner."""
    if _is_watched(module.__name__):
        return
    submit = module.ThreadPoolExecutor.submit

    @wraps(submit)
    def submit_owned(pool: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        owner = find_owner()
        return submit(pool, fn if owner is None else _Owned(owner, fn), *args, **kwargs)

    module.ThreadPoolExecutor.submit = submit_owned


class _Owned:
    """A call that belongs to an attempt, whichever thread makes it."""

    __slots__ = ("_call", "_owner")

    def __init__(self, owner: Any, call: Callable[..., Any]) -> None:
        self._owner = owner
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        token = OWN.set(self._owner)
        try:
            return self._call(*args, **kwargs)
        finally:
            OWN.reset(token)


def _is_watched(name: str) -> bool:
    was_watched = name in _watched
    _watched.add(name)
    return was_watched
