"""Interval timers: one that a trial has set must not end the next trial, nor the process."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Final

_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def armed_timers() -> list[int]:
    """The timers of this process that run."""
    return [timer for timer in _TIMERS if signal.getitimer(timer)[0]]


def disarm_timers(before: Sequence[int] = ()) -> None:
    """End those that did not run before: their signal would end the next trial, or this process."""
    for timer in _TIMERS:
        if signal.getitimer(timer)[0] and timer not in before:
            signal.setitimer(timer, 0.0)
