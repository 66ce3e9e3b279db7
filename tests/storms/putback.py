"""Faults that the engine once had, put back one at a time: storms have to find each within minutes.

A fault is put back in the process from which all others of a storm are forked. The fork server of
`isolation: process` is an interpreter of its own, and keeps the engine as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final


class _WallClock:
    """A controller's clock that goes by the wall clock alone."""

    def __init__(self, started_at: float = 0.0) -> None:
        pass

    def now(self) -> float:
        return time.time()

    def ahead_s(self) -> float:
        return 0.0

    def has_moved(self, ahead_s: float) -> bool:
        return False


def _any_session(call: str) -> Any:
    """The attempt that runs, whoever calls."""
    trial = import_module("raysweep.trial")
    return trial._session


def _ask_on_thread(self: Any, loop: Any) -> None:
    """`Asking._run`, which a BaseException ends without a word."""
    while (work := self._work.get()) is not None and not self._is_over:
        try:
            self._do(work, loop)
        except Exception as error:  # noqa: BLE001  as it was
            self._call(loop, self._fail, error)
            return


def _ask_as_cut(state: Any, trial: Any, grace_s: float, out: Any, *, wants_checkpoint: bool) -> None:
    """`stopping._ask`, which takes a trial that is asked to end for one that was cut."""
    state.end.has_cut = True
    moves = import_module("raysweep.core.handlers.transitions")
    moves.ask_to_end(
        state, trial, "ending", out, grace_s=max(0.0, grace_s), wants_checkpoint=wants_checkpoint
    )


def _plain_call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def _no_text(*args: Any, **kwargs: Any) -> str:
    return ""


PUT_BACK: Final[Mapping[str, Mapping[str, Any]]] = {
    "strays": {"raysweep.trial:_find_session": _any_session},
    "budget": {
        "raysweep.core.handlers.follow_up:_settle": _nothing,
        "raysweep.core.handlers.sweep_end:_ask": _ask_as_cut,
    },
    "storage": {"raysweep.cluster.run:check_end": _nothing},
    "marks": {
        "raysweep.worker.process.leftovers:Leftovers.clear": _no_text,
        "raysweep.worker.process.leftovers:Leftovers.disarm": _nothing,
    },
    "processes": {
        "raysweep.worker.process.descendants:Descendants.end": _no_text,
        "raysweep.worker.actor:guard_descendants": _nothing,
    },
    "clock": {"raysweep.cluster.controller:SteadyClock": _WallClock},
    "hooks": {
        "raysweep.documents.code.user_code:call": _plain_call,
        "raysweep.cluster.search_thread:Asking._run": _ask_on_thread,
    },
}
"""By name, what is replaced by what: `module:attribute`."""


def put_back(fault: str) -> None:
    """Give this process, and those that it forks, the fault."""
    for place, replacement in PUT_BACK[fault].items():
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        target: Any = import_module(module)
        for owner in owners:
            target = getattr(target, owner)
        assert hasattr(target, name), f"{place} is gone: put {fault!r} back in another way"
        setattr(target, name, replacement)
