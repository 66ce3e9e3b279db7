"""The waits of an attempt: inside `report`, for a checkpoint that is moved, or until it must end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

from raysweep.messages import TrialBusy
from raysweep.worker.ending import Ending
from raysweep.worker.link import Link


class Waiting:
    """One attempt's. `link` gets `TrialBusy` while it cannot report; None: nothing watches this rank.

    `thread`: the one that runs the attempt, which alone is interrupted. `is_busy`: it is in `report`, which
    raises `TrialStopped` itself: an interruption could leave a lock locked.
    """

    __slots__ = ("_link", "_who", "ending", "is_busy", "thread")

    def __init__(self, who: tuple[int, int], link: Link | None, ending: Ending) -> None:
        self.ending = ending
        self.is_busy = False
        self._who = who
        self._link = link
        self.thread = get_ident()

    def say_busy(self, *, is_over: bool) -> None:
        """Tell the controller that the attempt cannot report, or can again."""
        if self._link is not None:
            self._link.send(TrialBusy(*self._who, is_over=is_over))

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something, or until the attempt must end now. `is_so` is asked with `changed` held."""
        changed = self.ending.changed
        with changed:
            if is_so():
                return
        was_busy = self.is_busy
        self._be_busy(True)
        try:
            self.say_busy(is_over=False)
            with changed:
                while not is_so() and not self.ending.is_interrupted:
                    changed.wait()
            self.say_busy(is_over=True)
        finally:
            self._be_busy(was_busy)

    @contextmanager
    def while_moving(self, *, says_end: bool = True) -> Iterator[None]:
        """Inside `report`, while a checkpoint is moved: that may take long, and no lock of the link is held.

        The attempt cannot report meanwhile; it can be interrupted. `says_end`: what is stored says so itself,
        else this does.
        """
        self.say_busy(is_over=False)
        self._be_busy(False)
        try:
            yield
        finally:
            self._be_busy(True)
        if says_end:
            self.say_busy(is_over=True)

    def _be_busy(self, is_busy: bool) -> None:
        if get_ident() == self.thread:
            self.is_busy = is_busy
