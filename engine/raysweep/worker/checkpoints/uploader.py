"""Stores what a trial has handed over, in its order, on a thread of its own, at low priority.

With `block`, at most `MAX_WAITING` wait beside the one that is being stored: then the trial waits. So the
disk holds three at most, and a trial that checkpoints faster than its storage takes is slowed down. With
`latest` the trial never waits: the next one replaces what waits, unless a caller waits for it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from raysweep import faultplan
from raysweep.worker.checkpoints.captures import Capture

MAX_WAITING: Final = 2
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
        self._thread: threading.Thread | None = None

    @property
    def has_room(self) -> bool:
        """Whether another may be handed over now."""
        return self._policy == "latest" or len(self._waiting) < MAX_WAITING

    @property
    def is_idle(self) -> bool:
        """Whether all is stored that was handed over."""
        return not self._waiting and not self._is_storing

    def add(self, handover: Handover, *, is_awaited: bool = False) -> list[Handover]:
        """Have it stored; those that it overtook, which never will be. `is_awaited`: none may overtake it."""
        handover.is_awaited = is_awaited
        overtaken: list[Handover] = []
        with self._changed:
            if self._policy == "latest":
                overtaken = [each for each in self._waiting if not each.is_awaited]
                self._waiting = deque(each for each in self._waiting if each.is_awaited)
            self._waiting.append(handover)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="raysweep-uploader", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return overtaken

    def go_on(self) -> None:
        """Raises: UploadAbandonedError: no caller waits for it any more."""
        if self._is_abandoned:
            raise UploadAbandonedError

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
