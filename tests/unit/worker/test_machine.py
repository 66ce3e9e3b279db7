"""What a worker does with what it is told: case by case, and under all orders in which things may happen."""

from __future__ import annotations

import signal
from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raysweep import messages as msg
from raysweep.messages import (
    Answer,
    Exit,
    FailureFacts,
    Interrupt,
    Job,
    Kill,
    Order,
    Recall,
    Spent,
    Stop,
    ToWorker,
)
from raysweep.worker.machine import Abandon, Action, Begin, Leave, Say, Tell, WorkerMachine
from tests.sampling import examples

HELD = FailureFacts(origin="memory", type="MemoryLimitExceeded", message="too much", memory_bytes=7)


def job(trial: int, attempt: int = 1) -> Job:
    return Job(trial=trial, attempt=attempt, config={}, seed=1)


def stop(trial: int, attempt: int = 1) -> Stop:
    return Stop(trial=trial, attempt=attempt, reason="limit")


def returned(trial: int, attempt: int = 1) -> msg.TrialReturned:
    return msg.TrialReturned(trial=trial, attempt=attempt)


class Driven:
    """Each method is one input; gives what came of it."""

    def __init__(self, *, is_forked: bool = False, max_trials: int | None = None) -> None:
        self.machine = WorkerMachine(is_forked=is_forked, max_trials=max_trials)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **fields: Any) -> list[Action]:
            getattr(self.machine, name)(*arguments, **fields)
            actions = list(self.machine.actions)
            self.machine.actions.clear()
            return actions

        return call

    def running(self, *trials: int) -> Driven:
        """It was handed these, and runs the first."""
        for trial in trials:
            self.take(job(trial))
        self.begin()
        self.reach()
        return self


def test_jobs_run_one_after_the_other() -> None:
    driven = Driven()
    assert driven.take(job(3)) == [Begin(job(3))]
    assert driven.take(job(1)) == []
    assert driven.begin() == [Say(msg.TrialStarted(trial=3, attempt=1), now=True)]
    assert driven.reach() == []
    assert driven.end(returned(3)) == [Say(returned(3)), Begin(job(1))]
    assert driven.end(returned(1)) == [Say(returned(1))]
    assert driven.take(job(2)) == [Begin(job(2))]


def test_an_order_that_comes_early_is_kept_for_its_attempt_and_for_no_other() -> None:
    driven = Driven()
    assert driven.take(stop(3, 2)) == [], "nobody runs"
    driven.take(job(3, 2))
    assert driven.take(Answer(trial=3, attempt=1, report=5)) == [], "it has ended"
    assert driven.take(Answer(trial=3, attempt=2, report=0)) == []
    assert driven.take(stop(3, 2)) == []
    assert driven.take(stop(4)) == [], "it has not begun: it would have been recalled"
    assert driven.reach() == [Tell(Answer(trial=3, attempt=2, report=0)), Tell(stop(3, 2))]
    assert driven.take(Interrupt(trial=3, attempt=2)) == [Tell(Interrupt(trial=3, attempt=2))]


def test_what_was_kept_is_not_the_next_ones() -> None:
    driven = Driven()
    driven.take(job(3))
    driven.take(stop(3))
    driven.take(job(3, 2))
    driven.end(returned(3))
    assert driven.reach() == []


def test_what_has_not_begun_is_given_back() -> None:
    driven = Driven().running(1, 2, 3, 4)
    assert driven.take(Recall(trials=[4, 1, 2, 9])) == [Say(msg.TrialsRecalled(trials=[2, 4]))]
    assert driven.take(Recall(trials=[4])) == [Say(msg.TrialsRecalled(trials=[]))]
    assert driven.end(returned(1)) == [Say(returned(1)), Begin(job(3))]


def test_after_exit_nothing_begins() -> None:
    assert Driven().take(Exit()) == [Leave()]
    driven = Driven().running(1, 2)
    assert driven.take(Exit()) == []
    assert driven.take(job(3)) == []
    assert driven.take(stop(1)) == [Tell(stop(1))]
    assert driven.end(returned(1)) == [Say(returned(1)), Leave()]


def test_without_a_link_nobody_could_learn_of_what_runs() -> None:
    assert Driven().lose_link() == [Leave()]
    driven = Driven().running(1, 2)
    assert driven.lose_link() == [Abandon()]
    assert driven.die(-signal.SIGKILL)[-1] == Leave()
    early = Driven(is_forked=True)
    early.take(job(1))
    assert early.lose_link() == [], "it has no process yet"
    assert early.reach() == [Abandon()]


@pytest.mark.parametrize(
    ("exit_code", "is_kernel_oom", "failure"),
    [
        (0, False, FailureFacts(origin="process", type="ProcessDied", exit_code=0)),
        (3, True, FailureFacts(origin="process", type="ProcessDied", exit_code=3)),
        (-11, True, FailureFacts(origin="process", type="ProcessDied", exit_code=-11)),
        (-9, False, FailureFacts(origin="process", type="ProcessDied", exit_code=-9)),
        (-9, True, FailureFacts(origin="memory", type="KernelOutOfMemory", exit_code=-9)),
        (-40, False, FailureFacts(origin="process", type="ProcessDied", exit_code=-40)),
    ],
)
def test_how_a_process_died(exit_code: int, is_kernel_oom: bool, failure: FailureFacts) -> None:
    said, begun = Driven(is_forked=True).running(1, 2).die(exit_code, is_kernel_oom=is_kernel_oom)
    assert begun == Begin(job(2))
    assert isinstance(said, Say)
    assert isinstance(said.message, msg.TrialFailed)
    facts = said.message.failure
    assert (facts.origin, facts.type, facts.exit_code) == (failure.origin, failure.type, failure.exit_code)
    how = {0: "exit code 0", 3: "exit code 3", -11: "signal SIGSEGV", -40: "signal 40"}
    assert how.get(exit_code, "") in facts.message


def test_a_process_that_was_killed_on_purpose_was_stopped() -> None:
    driven = Driven(is_forked=True).running(1)
    kill = Kill(trial=1, attempt=1)
    assert driven.take(kill) == [Tell(kill)]
    assert driven.die(-9, is_kernel_oom=True) == [Say(msg.TrialStopped(trial=1, attempt=1, was_killed=True))]
    driven.take(job(2))
    (said,) = driven.die(-9)
    assert isinstance(said.message, msg.TrialFailed), "the next one was not"


def test_a_process_that_holds_too_much_is_killed_and_says_why() -> None:
    driven = Driven(is_forked=True).running(1)
    assert driven.exceed(HELD) == [Abandon()]
    driven.take(Kill(trial=1, attempt=1))
    assert driven.die(-9) == [Say(msg.TrialFailed(trial=1, attempt=1, failure=HELD))]
    assert driven.exceed(HELD) == [], "nothing runs"
    driven.take(job(2))
    (said,) = driven.die(1)
    assert said.message.failure.origin == "process", "what one held is not held against the next"


def test_a_process_that_ended_in_time_did_not_exceed() -> None:
    driven = Driven(is_forked=True).running(1)
    driven.exceed(HELD)
    assert driven.end(returned(1)) == [Say(returned(1))]


def test_a_worker_that_holds_too_much_says_so_and_goes() -> None:
    driven = Driven().running(1, 2)
    failed = msg.TrialFailed(trial=1, attempt=1, failure=HELD)
    assert driven.exceed(HELD) == [Say(failed), Leave(), Abandon(has_news=True)]
    assert driven.end(returned(1)) == [], "it has ended already"


def test_an_end_of_another_attempt_ends_nothing() -> None:
    driven = Driven().running(1)
    assert driven.end(returned(1, 2)) == []
    assert driven.end(returned(1)) == [Say(returned(1))]


TRIALS = st.integers(min_value=0, max_value=4)
RARELY = st.integers(min_value=0, max_value=15)
KINDS = st.sampled_from([Stop, Interrupt, Kill, Answer])


def test_after_as_many_trials_as_it_runs_a_worker_begins_no_other() -> None:
    worker = Driven(max_trials=2)
    for number in (1, 2, 3):
        worker.take(job(number))
    worker.begin()
    worker.reach()
    assert worker.end(returned(1)) == [Say(returned(1)), Begin(job(2))]
    worker.begin()
    assert worker.end(returned(2)) == [Say(Spent(2, 1, leftover="")), Say(returned(2))]
    assert worker.take(Recall(trials=[3])) == [Say(msg.TrialsRecalled(trials=[3]))]


@pytest.mark.parametrize("max_trials", [None, 50])
def test_a_failed_trial_is_the_last_of_a_worker_with_a_limit(max_trials: int | None) -> None:
    worker = Driven(max_trials=max_trials)
    worker.take(job(1))
    worker.take(job(2))
    worker.begin()
    failed = msg.TrialFailed(1, 1, failure=HELD)
    last = [Say(Spent(1, 1, leftover="")), Say(failed)]
    assert worker.end(failed) == (last if max_trials else [Say(failed), Begin(job(2))])


def test_after_a_leftover_nothing_begins_and_what_waits_can_be_asked_back() -> None:
    worker = Driven()
    worker.take(job(1))
    worker.take(job(2))
    worker.begin()
    spent = Say(Spent(1, 1, leftover="a process group"))
    assert worker.end(returned(1), leftover="a process group") == [spent, Say(returned(1))]
    assert worker.take(job(3)) == []
    assert worker.take(Recall(trials=[2])) == [Say(msg.TrialsRecalled(trials=[2]))]
    assert worker.take(Exit()) == [Leave()]


class Interleavings(RuleBasedStateMachine):
    """A controller that says anything at any time, and attempts that go their way."""

    def __init__(self, *, is_forked: bool) -> None:
        super().__init__()
        self.is_forked = is_forked
        self.machine = WorkerMachine(is_forked=is_forked)
        self.attempts: dict[int, int] = {}
        self.waiting: deque[Job] = deque()
        self.present: Job | None = None
        self.is_reached = self.is_begun = self.was_killed = self.was_exceeded = False
        self.is_closed = self.is_alone = self.has_left = self.is_abandoned = False
        self.owed: deque[Order] = deque()
        self.ended: list[tuple[int, int]] = []
        self.unanswered = 0

    # -- the controller

    @rule(trial=TRIALS)
    def hand(self, trial: int) -> None:
        attempt = self.attempts[trial] = self.attempts.get(trial, 0) + 1
        self.waiting.append(job(trial, attempt))
        self.take(self.waiting[-1])

    @rule(trials=st.lists(TRIALS, unique=True))
    def recall(self, trials: list[int]) -> None:
        self.unanswered += 1
        self.take(Recall(trials=trials))

    @rule(kind=KINDS, trial=TRIALS, back=st.integers(0, 1))
    def order(self, kind: Any, trial: int, back: int) -> None:
        self.give(kind, (trial, self.attempts.get(trial, 1) - back))

    @precondition(lambda self: self.present is not None)
    @rule(kind=KINDS)
    def order_present(self, kind: Any) -> None:
        assert self.present is not None
        self.give(kind, self.present.who)

    def give(self, kind: Any, who: tuple[int, int]) -> None:
        fields: dict[Any, dict[str, Any]] = {Stop: {"reason": "limit"}, Answer: {"report": 0}}
        order = kind(*who, **fields.get(kind, {}))
        if self.present is not None and self.present.who == who:
            self.owed.append(order)
            self.was_killed |= kind is Kill
        self.take(order)

    @rule(odds=RARELY)
    def exit(self, odds: int) -> None:
        if odds:
            return
        self.is_closed = True
        self.take(Exit())

    @rule(odds=RARELY)
    def lose_link(self, odds: int) -> None:
        if odds:
            return
        self.is_closed = self.is_alone = True
        self.machine.lose_link()
        self.carry()

    def take(self, message: ToWorker) -> None:
        self.machine.take(message)
        self.carry()

    # -- the attempt

    @precondition(lambda self: self.present is not None and not self.is_begun)
    @rule()
    def begin(self) -> None:
        self.is_begun = True
        self.machine.begin()
        assert self.present is not None
        trial, attempt = self.present.who
        assert self.machine.actions.popleft() == Say(msg.TrialStarted(trial=trial, attempt=attempt), now=True)
        self.carry()

    @precondition(lambda self: self.present is not None and not self.is_reached)
    @rule()
    def reach(self) -> None:
        self.is_reached = True
        self.machine.reach()
        self.carry()

    @precondition(lambda self: self.present is not None and self.is_begun)
    @rule(kind=st.sampled_from([msg.TrialReturned, msg.TrialStopped]))
    def end(self, kind: Any) -> None:
        assert self.present is not None
        trial, attempt = self.present.who
        self.finish(lambda: self.machine.end(kind(trial=trial, attempt=attempt)), kind)

    @precondition(lambda self: self.present is not None and self.is_forked)
    @rule(exit_code=st.sampled_from([0, 1, -9, -40]), is_kernel_oom=st.booleans())
    def die(self, exit_code: int, is_kernel_oom: bool) -> None:
        kind = msg.TrialStopped if self.was_killed and not self.was_exceeded else msg.TrialFailed
        self.finish(lambda: self.machine.die(exit_code, is_kernel_oom=is_kernel_oom), kind)

    @precondition(lambda self: self.present is not None and self.is_reached)
    @rule()
    def exceed(self) -> None:
        if self.is_forked:
            self.was_exceeded = True
            self.machine.exceed(HELD)
            assert self.machine.actions.popleft() == Abandon()
            self.carry()
        else:
            self.is_closed = True
            self.finish(lambda: self.machine.exceed(HELD), msg.TrialFailed, is_last=True)

    def finish(self, call: Any, kind: Any, *, is_last: bool = False) -> None:
        present, self.present = self.present, None
        assert present is not None
        self.owed.clear()
        call()
        said = self.machine.actions.popleft()
        assert isinstance(said, Say)
        end: Any = said.message
        assert isinstance(end, kind)
        assert end.who == present.who
        assert end.who not in self.ended, "an attempt ends twice"
        self.ended.append(end.who)
        if is_last:
            assert self.machine.actions.pop() == Abandon(has_news=True)
        self.is_reached = self.is_begun = self.was_killed = self.was_exceeded = self.is_abandoned = False
        self.carry()
        assert self.present is not None or self.is_closed or not self.waiting, "it idles"

    # -- what comes of it

    def carry(self) -> None:
        while self.machine.actions:
            action = self.machine.actions.popleft()
            match action:
                case Begin(job=begun):
                    assert self.present is None, "two attempts at once"
                    assert not self.is_closed, "it begins something at its end"
                    assert begun == self.waiting.popleft(), "out of order"
                    self.present = begun
                case Tell(order=order):
                    assert self.is_reached, "it cannot be told anything yet"
                    assert order == self.owed.popleft(), "another order, or not in order"
                case Say(message=msg.TrialsRecalled(trials=trials)):
                    self.unanswered -= 1
                    taken = {waiting.trial for waiting in self.waiting if waiting.trial in trials}
                    assert taken == set(trials), "it gives back what it has begun"
                    self.waiting = deque(waiting for waiting in self.waiting if waiting.trial not in trials)
                case Abandon():
                    assert self.is_reached, "there is nobody to abandon"
                    assert self.is_alone, "the controller would have learned of it"
                    self.is_abandoned = True
                case Leave():
                    assert self.is_closed, "nobody has asked it to go"
                    assert self.present is None, "it goes while something runs"
                    self.has_left = True
                case _:
                    raise AssertionError(f"unexpected: {action}")

    @invariant()
    def nothing_is_owed(self) -> None:
        assert self.unanswered == 0, "a recall without an answer"
        assert not (self.is_reached and self.owed), "an order that nobody heard"
        assert self.has_left == (self.is_closed and self.present is None), "it goes, or should"
        assert not (self.is_alone and self.is_reached) or self.is_abandoned, "it runs on without a controller"
        who = None if self.present is None else self.present.who
        assert who == (None if self.machine.job is None else self.machine.job.who)


class Warm(Interleavings):
    """A warm worker."""

    def __init__(self) -> None:
        super().__init__(is_forked=False)


class Forked(Interleavings):
    """A worker that forks."""

    def __init__(self) -> None:
        super().__init__(is_forked=True)


TestWarm = Warm.TestCase
TestWarm.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
TestForked = Forked.TestCase
TestForked.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
