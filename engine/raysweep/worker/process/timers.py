"""Interval timers: one that a trial has set must not end the next trial, nor the process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

_REAL: Final = signal.ITIMER_REAL
_VIRTUAL: Final = signal.ITIMER_VIRTUAL
_PROF: Final = signal.ITIMER_PROF
_get: Final = signal.getitimer


def armed_timers() -> list[int]:
    """The timers of this process that run."""
    return [timer for timer in (_REAL, _VIRTUAL, _PROF) if _get(timer)[0]]


def disarm_timers(before: Sequence[int] = ()) -> None:
    """End those that did not run before: their signal would end the next trial, or this process."""
    if _get(_REAL)[0] or _get(_VIRTUAL)[0] or _get(_PROF)[0]:
        for timer in armed_timers():
            if timer not in before:
                signal.setitimer(timer, 0.0)
