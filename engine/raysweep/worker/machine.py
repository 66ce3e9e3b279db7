"""The worker's state machine: messages and news of the present attempt in, actions out.

Without sockets, threads or clocks. The warm worker, the forked child and `testing.run_trial` drive the same
machine (`worker.shell`). Rules:

1. One attempt at a time, in the order of the queue. `Begin` is followed by exactly one of: `end`, `die`.
2. An order reaches the attempt that it names, or none. What comes before that can be told anything is kept
   for it, in order.
3. The controller hears `TrialStarted` of an attempt whose user code runs, and exactly one end of each
   attempt.
4. Each `Recall` is answered by one `TrialsRecalled`: the attempts that had not begun, and never will.
5. After `Exit` nothing begins, nor after an attempt with a leftover. When the link is gone, nothing could
   learn of what the present attempt does: it is abandoned.
"""

from __future__ import annotations

import signal
from collections import deque

from msgspec import Struct

from raysweep import messages as msg
from raysweep.messages import End, Exit, FailureFacts, FromWorker, Job, Kill, Order, Recall, Spent, ToWorker


class Begin(Struct, frozen=True):
    """Start this attempt."""

    job: Job


class Tell(Struct, frozen=True):
    """Hand an order to the present attempt."""

    order: Order


class Say(Struct, frozen=True):
    """Send a message to the controller; `now`: it must not be lost with this process."""

    message: FromWorker
    now: bool = False


class Abandon(Struct, frozen=True):
    """End the attempt's process now; `has_news`: once the controller has been sent what was said."""

    has_news: bool = False


class Leave(Struct, frozen=True):
    """The worker is to end: nothing runs, and nothing will."""


Action = Begin | Tell | Say | Abandon | Leave


class WorkerMachine:
    """One worker. `is_forked`: each attempt has a process of its own, which can end without the worker.

    `max_trials`: after so many attempts, or one that failed, it begins no other; None: no limit.

    Its caller carries out `actions`, in order, after each input.
    """

    def __init__(self, *, is_forked: bool = False, max_trials: int | None = None) -> None:
        self.actions: deque[Action] = deque()
        self.job: Job | None = None
        """The present attempt, from `Begin` to its end."""
        self._is_forked = is_forked
        self._max_trials, self._ended = max_trials, 0
        self._queue: deque[Job] = deque()
        self._kept: list[Order] = []
        self._is_reached = self._was_killed = False
        self._is_closed = self._is_alone = self._is_spent = False
        self._excess: FailureFacts | None = None

    # -- from the controller -----------------------------------------------------------------------

    def take(self, message: ToWorker) -> None:
        """One message."""
        match message:
            case Job():
                self._queue.append(message)
                self._go_on()
            case Recall():
                self._recall(message.trials)
            case Exit():
                self._is_closed = True
                self._go_on()
            case _:
                self._take_order(message)

    def lose_link(self) -> None:
        """Nothing can be said or heard any more."""
        self._is_closed = self._is_alone = True
        if self._is_reached:
            self.actions.append(Abandon())
        self._go_on()

    def _take_order(self, order: Order) -> None:
        job = self.job
        if job is None or order.who != job.who:
            return  # meant for one that has ended meanwhile
        self._was_killed |= isinstance(order, Kill)
        if self._is_reached:
            self.actions.append(Tell(order))
        else:
            self._kept.append(order)

    def _recall(self, trials: list[int]) -> None:
        taken = [job.trial for job in self._queue if job.trial in trials]
        self._queue = deque(job for job in self._queue if job.trial not in trials)
        self.actions.append(Say(msg.TrialsRecalled(trials=taken)))

    # -- from the attempt --------------------------------------------------------------------------

    def begin(self) -> None:
        """User code is about to run: should the process be killed, it is known of whom."""
        if self.job is not None:
            self.actions.append(Say(msg.TrialStarted(*self.job.who), now=True))

    def reach(self) -> None:
        """From now on the attempt can be told what is said of it; of what was kept, first."""
        self._is_reached = self.job is not None
        self.actions.extend(map(Tell, self._kept))
        if self._is_alone:
            self.actions.append(Abandon())

    def exceed(self, failure: FailureFacts) -> None:
        """The attempt holds more memory than it may. Where this process is its own, it ends with it."""
        if self.job is None:
            return
        self._excess = failure
        if self._is_forked:
            self.actions.append(Abandon())
            return
        self.end(msg.TrialFailed(*self.job.who, failure=failure), goes_on=False)
        self.actions.append(Abandon(has_news=True))

    def end(self, end: End, *, goes_on: bool = True, leftover: str = "") -> None:
        """The attempt says how it ended; of one that has ended already it is ignored.

        With a `leftover` no other attempt begins: the controller replaces the worker.
        """
        if self.job is None or end.who != self.job.who:
            return
        self.job = None
        self._is_reached = self._was_killed = False
        self._excess = None
        self._kept.clear()
        self._is_closed |= not goes_on
        self._ended += 1
        if leftover or self._is_used_up(end):
            # First: with the end, a gang would get its next trial.
            self._is_spent = True
            self.actions.append(Say(Spent(*end.who, leftover=leftover)))
        self.actions.append(Say(end))
        self._go_on()

    def _is_used_up(self, end: End) -> bool:
        """True if it was the last attempt that this worker runs."""
        if self._max_trials is None:
            return False
        return self._ended >= self._max_trials or isinstance(end, msg.TrialFailed)

    def die(self, exit_code: int, *, is_kernel_oom: bool = False) -> None:
        """The attempt's process has ended, or is about to, and did not say how. Below 0: by that signal."""
        job = self.job
        if job is None:
            return
        if self._excess is not None:
            self.end(msg.TrialFailed(*job.who, failure=self._excess))
        elif self._was_killed:
            self.end(msg.TrialStopped(*job.who, was_killed=True))
        else:
            # Where the attempt has no process of its own, this one is ending, and begins nothing.
            failed = msg.TrialFailed(*job.who, failure=explain_death(exit_code, is_kernel_oom))
            self.end(failed, goes_on=self._is_forked)

    def _go_on(self) -> None:
        if self.job is not None:
            return
        if self._is_closed:
            self.actions.append(Leave())
        elif self._queue and not self._is_spent:
            self.job = self._queue.popleft()
            self.actions.append(Begin(self.job))


def explain_death(exit_code: int, is_kernel_oom: bool) -> FailureFacts:
    """The facts of a process that ended and did not say how. Below 0: by that signal."""
    if exit_code == -signal.SIGKILL and is_kernel_oom:
        message = "the kernel ended the trial's process: the container is out of memory"
        return FailureFacts(origin="memory", type="KernelOutOfMemory", message=message, exit_code=exit_code)
    how = f"signal {_name_signal(-exit_code)}" if exit_code < 0 else f"exit code {exit_code}"
    message = f"the trial's process ended with {how}"
    return FailureFacts(origin="process", type="ProcessDied", message=message, exit_code=exit_code)


def _name_signal(number: int) -> str:
    """Its name; real-time signals have only numbers."""
    return next((known.name for known in signal.Signals if known == number), str(number))
