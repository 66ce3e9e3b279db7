"""The end of an attempt: if and how it was told to end, and what it may still do. See `TrialStopped`."""

from __future__ import annotations

import threading
from typing import NoReturn

from raysweep.errors import TrialStopped


class Ending:
    """The orders to one attempt to end. `changed` guards what other threads change, and is notified of it.

    `reason` is None until it was told to end. `wants_checkpoint`: it may continue to its next checkpoint.
    `allows`: what it may still make, which is `nothing`, a `checkpoint` that it has in hand, or a `report`.
    `is_interrupted`: it must end now, not only at its next report; `interrupt` of the runner sees to it.
    `was_raised`: user code got `TrialStopped`.
    """

    __slots__ = ("allows", "changed", "is_interrupted", "lock", "reason", "wants_checkpoint", "was_raised")

    def __init__(self) -> None:
        self.reason: str | None = None
        self.wants_checkpoint = False
        self.allows = "nothing"
        self.is_interrupted = False
        self.was_raised = False
        self.lock = threading.RLock()
        """Of `changed`: to take it alone costs less."""
        self.changed = threading.Condition(self.lock)

    @property
    def is_asked(self) -> bool:
        """True if it was told to end."""
        return self.reason is not None

    @property
    def is_due(self) -> bool:
        """True if it was told to end without a checkpoint, or no longer has the time for one."""
        return self.reason is not None and (self.is_interrupted or not self.wants_checkpoint)

    @property
    def may_checkpoint(self) -> bool:
        """True if it was told to end and can still hand over a checkpoint."""
        return self.reason is not None and self.allows != "nothing"

    def may_report(self, has_checkpoint: bool) -> bool:
        """True if a trial that was told to end may report once more."""
        is_taken = self.wants_checkpoint or self.allows == "report"
        return is_taken or (has_checkpoint and self.may_checkpoint)

    def ask(self, reason: str, wants_checkpoint: bool, allows: str) -> None:
        """From another thread: end at the next report, or the next one with a checkpoint."""
        with self.changed:
            if self.reason != "damage":
                self.reason, self.wants_checkpoint, self.allows = reason, wants_checkpoint, allows
            self.changed.notify_all()

    def interrupt(self) -> None:
        """From another thread: end now. What waits for an answer waits no longer."""
        with self.changed:
            self.is_interrupted = True
            self.changed.notify_all()

    def go_back(self) -> NoReturn:
        """End for a damaged checkpoint, whatever else the attempt is told.

        Nothing that it does counts any more: should user code swallow this and begin anew, its reports would
        be taken for those that follow the checkpoint.

        Raises:
            TrialStopped
        """
        with self.changed:
            self.reason, self.wants_checkpoint, self.allows = "damage", False, "nothing"
            self.is_interrupted = True
        self.raise_stopped()

    def raise_if_interrupted(self) -> None:
        """On the main thread, where an interruption may have come too early to be raised.

        Raises:
            TrialStopped: It has come.
        """
        if self.is_interrupted and self.reason is not None:
            self.raise_stopped()

    def raise_if_asked(self) -> None:
        """As `raise_if_interrupted`, already when it was only told to end.

        Raises:
            TrialStopped: It was.
        """
        if self.reason is not None:
            self.raise_stopped()

    def raise_if_over(self) -> None:
        """For code that only waits for others: as `raise_if_interrupted`, already when it was told to end and
        may make nothing more.

        Raises:
            TrialStopped: It was.
        """
        may_make_more = self.wants_checkpoint or self.allows != "nothing"
        if self.reason is not None and (self.is_interrupted or not may_make_more):
            self.raise_stopped()

    def raise_stopped(self) -> NoReturn:
        """Raise `TrialStopped` in user code."""
        self.was_raised = True
        raise TrialStopped(self.reason or "stopped")
