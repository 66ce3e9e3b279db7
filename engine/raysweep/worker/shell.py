"""Drives a `WorkerMachine`: threads bring it news, its actions go to the link and to the present attempt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from raysweep.messages import End, FailureFacts, Job, Order, ToWorker
from raysweep.worker.link import Link
from raysweep.worker.machine import Abandon, Begin, Leave, Say, Tell, WorkerMachine

# What was said last leaves within this time, or not at all.
LAST_WORDS_S: Final = 2.0


class Attempt(Protocol):
    """The attempt that runs, in this process or in one of its own."""

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    def tell(self, order: Order) -> None:
        """From any thread: act on an order. Does not block."""
        ...

    def abandon(self) -> None:
        """From any thread: end its process now."""
        ...


class WorkerShell:
    """One worker's machine, behind a lock. `is_forked`, `max_trials`: see `WorkerMachine`.

    The thread that runs attempts calls `next_job`, then `begin`, `reach` and `end` (or `die`) of each.
    """

    def __init__(self, link: Link, *, is_forked: bool = False, max_trials: int | None = None) -> None:
        self.link = link
        self._machine = WorkerMachine(is_forked=is_forked, max_trials=max_trials)
        self._attempt: Attempt | None = None
        self._next: Job | None = None
        self._is_leaving = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)

    def next_job(self, on_idle: Callable[[], None] | None = None) -> Job | None:
        """The next attempt to run; blocks. None: the worker is to end. `on_idle`: none is there yet."""
        # Not under the lock: it may flush what user code has put in the place of a stream.
        if self._next is None and on_idle is not None:
            on_idle()
        with self._lock:
            while self._next is None and not self._is_leaving:
                self._changed.wait()
            job, self._next = self._next, None
            return job

    def take(self, messages: list[ToWorker]) -> None:
        """Take the messages of the controller."""
        self._do(lambda: self._take(messages))

    def _take(self, messages: list[ToWorker]) -> None:
        for message in messages:
            self._machine.take(message)

    def lose_link(self) -> None:
        """The controller is gone, or has hung up."""
        self._do(self._machine.lose_link)

    def begin(self, attempt: Attempt | None = None) -> None:
        """User code is about to run; with `attempt`, it can be told from now on."""
        if attempt is None:
            self._do(self._machine.begin)
        else:
            self._do(lambda: self._begin(attempt))

    def _begin(self, attempt: Attempt) -> None:
        self._machine.begin()
        self._reach(attempt)

    def reach(self, attempt: Attempt) -> None:
        """The attempt can be told from now on."""
        self._do(lambda: self._reach(attempt))

    def _reach(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._machine.reach()

    def end(self, end: End, leftover: str = "") -> None:
        """The attempt says how it ended. `leftover`: why no other one may run in this process."""
        self._do(lambda: self._machine.end(end, leftover=leftover))

    def die(self, exit_code: int, *, is_kernel_oom: bool) -> None:
        """The attempt's process has ended and did not say how."""
        self._do(lambda: self._machine.die(exit_code, is_kernel_oom=is_kernel_oom))

    def exceed(self, failure: FailureFacts) -> None:
        """The attempt holds more memory than it may."""
        self._do(lambda: self._machine.exceed(failure))

    def find_process(self) -> tuple[int, int | None] | None:
        """The process of the attempt that can be told, and what it may hold in bytes (None: no limit)."""
        with self._lock:
            job, attempt = self._machine.job, self._attempt
            return (attempt.pid, job.memory_limit_bytes) if job is not None and attempt is not None else None

    def _do(self, call: Callable[[], None]) -> None:
        with self._lock:
            call()
            attempt = self._attempt
            rest = self._act() if self._machine.actions else ()
        # Not under the lock: a message may take a moment to leave, and other threads have news meanwhile.
        for action in rest:
            if isinstance(action, Say):
                (self.link.send_now if action.now else self.link.send)(action.message)
                continue
            if action.has_news:
                self.link.close(LAST_WORDS_S)
            if attempt is not None:
                attempt.abandon()

    def _act(self) -> list[Say | Abandon]:
        """Carry out what is done at once; gives the rest."""
        rest: list[Say | Abandon] = []
        actions = self._machine.actions
        while actions:
            match action := actions.popleft():
                case Say() | Abandon():
                    rest.append(action)
                case Tell(order=order):
                    assert self._attempt is not None
                    self._attempt.tell(order)
                case Begin(job=job):
                    self._next, self._attempt = job, None
                    self._changed.notify_all()
                case Leave():
                    self._is_leaving = True
                    self._changed.notify_all()
        return rest
