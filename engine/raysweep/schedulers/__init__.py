"""Schedulers: pure policies that turn reports into verdicts on trials. Each is one file of this room."""

from raysweep.schedulers.base import (
    NOTHING,
    TRAINING_ITERATION,
    Decisions,
    Exploit,
    Move,
    Pause,
    PolicySetup,
    Resize,
    Resume,
    Scheduler,
    Stop,
    Verdict,
    tell_end,
    tell_report,
)
from raysweep.schedulers.judge import Judge, make_judge
from raysweep.schedulers.making import load_scheduler, make_scheduler

__all__ = [
    "NOTHING",
    "TRAINING_ITERATION",
    "Decisions",
    "Exploit",
    "Judge",
    "Move",
    "Pause",
    "PolicySetup",
    "Resize",
    "Resume",
    "Scheduler",
    "Stop",
    "Verdict",
    "load_scheduler",
    "make_judge",
    "make_scheduler",
    "tell_end",
    "tell_report",
]
