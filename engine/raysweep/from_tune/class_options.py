"""Options of a class of Ray Tune, in Ray Tune's own words."""

from __future__ import annotations

from pydantic import Field

from raysweep.documents.base import SpecModel


class TuneOptions(SpecModel):
    """The options of a `tune.Trainable` class; of no effect on a function."""

    checkpoint_frequency: int = Field(default=0, ge=0)
    """`save_checkpoint` is called after every so many steps; 0: only where one is asked for."""
    checkpoint_at_end: bool = False
    """Call it after a trial's last step, too. Not after that of a trial that the scheduler stops: that
    is learnt of when the trial has continued."""
    reuse_actors: bool = False
    """Let a warm worker call `reset_config` for its next trial, not `cleanup` and a new `setup`."""
