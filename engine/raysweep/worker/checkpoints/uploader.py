"""Stores what a trial has handed over, in its order, on a thread of its own, at low priority.

With `block`, at most `MAX_WAITING` wait beside the one that is being stored: then the trial waits. So the
disk holds three at most, and a trial that checkpoints faster than its storage takes is slowed down. With
`latest` the trial never waits: the next one replaces what waits, unless a caller waits for it.

While the trial writes its next checkpoint the upload pauses: both would take the same disk, and the trial
waits for its own writing only. It does not pause while the trial or another checkpoint waits for the upload.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from raysweep import faultplan
from raysweep.worker.checkpoints.captures import Capture

MAX_WAITING: Final = 2
PAUSE_S: Final = 30.0
"""An upload waits so long at most for the trial to write its next checkpoint."""
_NICENESS: Final = 10


class UploadAbandonedError(Exception):
    """No caller waits for this upload any more."""


@dataclass(slots=True, kw_only=True, eq=False)
class Handover:
    """A directory that is to become a checkpoint. `capture`: what is stored of it."""

    folder: Path
    number: int
    report: int
    metrics: dict[str, Any]
    capture: Capture = field(init=False)
    is_awaited: bool = False
    context: AbstractContextManager[None] = field(default_factory=faultplan.carry_report)


class Uploader:
    """One attempt's. `changed` guards it, and is notified when something was stored.

    `store` stores one, and tells the controller how that went; it calls `go_on` now and then.
    """

    def __init__(
        self,
        changed: threading.Condition,
        store: Callable[[Handover], None],
        policy: Literal["block", "latest"] = "block",
    ) -> None:
        self._changed = changed
        self._store = store
        self._policy = policy
        self._waiting: deque[Handover] = deque()
        self._is_storing = self._is_abandoned = False
        self._paused_until: float | None = None
        self._is_needed = 0
        self._thread: threading.Thread | None = None

    @property
    def has_room(self) -> bool:
        """True if another may be handed over now."""
        return self._policy == "latest" or len(self._waiting) < MAX_WAITING

    @property
    def is_idle(self) -> bool:
        """True if all is stored that was handed over."""
        return not self._waiting and not self._is_storing

    def add(self, handover: Handover, *, is_awaited: bool = False) -> list[Handover]:
        """Have it stored; those that it overtook, which never will be. `is_awaited`: none may overtake it.

        The trial has written it: a pause ends here, also inside of `rs.new_checkpoint()`.
        """
        handover.is_awaited = is_awaited
        overtaken: list[Handover] = []
        with self._changed:
            self._paused_until = None
            if self._policy == "latest":
                overtaken = [each for each in self._waiting if not each.is_awaited]
                self._waiting = deque(each for each in self._waiting if each.is_awaited)
            self._waiting.append(handover)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="raysweep-uploader", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return overtaken

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The trial writes a checkpoint: nothing is stored meanwhile, for PAUSE_S, unless others wait."""
        self._paused_until = time.monotonic() + PAUSE_S
        try:
            yield
        finally:
            with self._changed:
                self._paused_until = None
                self._changed.notify_all()

    @contextmanager
    def needed(self) -> Iterator[None]:
        """The trial waits for what is stored: nothing pauses."""
        with self._changed:
            self._is_needed += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_needed -= 1

    def go_on(self) -> None:
        """Wait while it is paused. Raises: UploadAbandonedError: no caller waits for it any more."""
        if self._paused_until is not None:
            with self._changed:
                while (left_s := self._pause_left_s()) > 0.0:
                    self._changed.wait(left_s)
        if self._is_abandoned:
            raise UploadAbandonedError

    def _pause_left_s(self) -> float:
        until = self._paused_until
        # Once another one waits for its turn, the trial may soon wait for room.
        if until is None or self._waiting or self._is_needed or self._is_abandoned:
            return 0.0
        return until - time.monotonic()

    def close(self) -> None:
        """Store nothing more: what is being stored ends before its next object."""
        with self._changed:
            self._is_abandoned = True
            self._waiting.clear()
            self._changed.notify_all()

    def _run(self) -> None:
        with suppress(OSError):  # the training goes first; Linux has a priority for each thread
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while (handover := self._next()) is not None:
            try:
                self._store(handover)
            except UploadAbandonedError:
                return
            finally:
                with self._changed:
                    self._is_storing = False
                    self._changed.notify_all()

    def _next(self) -> Handover | None:
        with self._changed:
            while not self._waiting and not self._is_abandoned:
                self._changed.wait()
            if self._is_abandoned:
                return None
            self._is_storing = True
            handover = self._waiting.popleft()
            self._changed.notify_all()  # there is room now
            return handover
