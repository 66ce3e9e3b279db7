"""Callbacks and trackers: what is called as a sweep runs, one file for each.

`events` has what a callback receives, `base` what one is made from, `registry` the names that a spec may use.
The process that calls them is in `delivery/`; nothing here reads a journal.
"""

from raysweep.hooks.base import Callback, CallbackOptions, CallbackSetup, SinkDownError
from raysweep.hooks.events import (
    CheckpointSaved,
    Notice,
    Report,
    SweepEnd,
    SweepStart,
    TrialEnd,
    TrialRef,
    TrialStart,
)

__all__ = [
    "Callback",
    "CallbackOptions",
    "CallbackSetup",
    "CheckpointSaved",
    "Notice",
    "Report",
    "SinkDownError",
    "SweepEnd",
    "SweepStart",
    "TrialEnd",
    "TrialRef",
    "TrialStart",
]
