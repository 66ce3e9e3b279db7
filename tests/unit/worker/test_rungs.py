"""At which reports a trial waits for what is decided, and for how long."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

from raysweep.errors import TrialStopped
from raysweep.messages import Answer, Job, Stop, TrialReported
from raysweep.worker.link import SocketLink
from raysweep.worker.rungs import LEAST_S, MOST_S, RungWatch
from raysweep.worker.session import Session
from raysweep.worker.sweep_info import Rungs, SweepPlace
from raysweep.worker.wire import FROM_WORKER, read_frames


class Clock:
    """Time that moves where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def patience(
    clock: Clock, watch: RungWatch, times: list[Any], attr: str = "", step_s: float = 0.5
) -> list[float]:
    """Of reports at these times, `step_s` of each after the one before."""
    found = []
    for index, at in enumerate(times):
        clock.now += step_s
        found.append(watch.patience_s({attr: at} if attr else {}, index))
        clock.now += 7.0  # in `report` itself
        watch.begin_step()
    return found


def test_reports_at_rungs_may_wait_as_long_as_a_step_took(clock: Clock) -> None:
    watch = RungWatch(Rungs(times=(1.0, 3.0, 9.0)), 0, clock.monotonic)
    assert patience(clock, watch, [None] * 10) == [0.5, 0, 0.5, 0, 0, 0, 0, 0, 0.5, 0]


def test_a_trial_that_goes_on_counts_what_lies_behind_it(clock: Clock) -> None:
    watch = RungWatch(Rungs(times=(1.0, 3.0, 9.0)), 3, clock.monotonic)
    assert patience(clock, watch, [None] * 6) == [0, 0, 0, 0, 0, 0.5]


def test_a_rung_that_is_jumped_over_is_reached_by_the_next_report(clock: Clock) -> None:
    watch = RungWatch(Rungs(attr="epoch", times=(2.5, 10.0)), 0, clock.monotonic)
    assert patience(clock, watch, [1, 2, 3, 20.0, 21], "epoch") == [0, 0, 0.5, 0.5, 0]


def test_what_is_no_number_decides_nothing(clock: Clock) -> None:
    watch = RungWatch(Rungs(attr="epoch", times=(1.0,)), 0, clock.monotonic)
    assert patience(clock, watch, [None, "1", float("nan"), [1], 1], "epoch") == [0, 0, 0, 0, 0.5]


@pytest.mark.parametrize("kind", [numpy.int64, numpy.float32, numpy.float64])
def test_times_may_be_numbers_of_numpy(clock: Clock, kind: Callable[[int], Any]) -> None:
    watch = RungWatch(Rungs(attr="epoch", times=(2.0,)), 0, clock.monotonic)
    assert patience(clock, watch, [kind(1), kind(2), kind(3)], "epoch") == [0, 0.5, 0]


def test_multiples_of_an_interval(clock: Clock) -> None:
    assert patience(clock, RungWatch(Rungs(interval=2.0), 0, clock.monotonic), [None] * 5) == [
        0,
        0.5,
        0,
        0.5,
        0,
    ]


def test_none_is_where_trials_have_done_all_their_work(clock: Clock) -> None:
    rungs = Rungs(interval=2.0, times=(3.0, 4.0), below=4.0)
    assert patience(clock, RungWatch(rungs, 0, clock.monotonic), [None] * 6) == [0, 0.5, 0.5, 0, 0, 0]


@pytest.mark.parametrize(
    ("step_s", "expected"), [(LEAST_S * 0.9, 0.0), (LEAST_S * 1.5, LEAST_S * 1.5), (60.0, MOST_S)]
)
def test_short_steps_are_not_worth_a_wait_and_long_ones_not_any(
    clock: Clock, step_s: float, expected: float
) -> None:
    watch = RungWatch(Rungs(times=(1.0,)), 0, clock.monotonic)
    assert patience(clock, watch, [None], step_s=step_s) == pytest.approx([expected])


class Trial:
    """A session that decides at its second report, and what is said on its link."""

    def __init__(self, ours: socket.socket, theirs: socket.socket, iteration: int = 0) -> None:
        self.sender = SocketLink(ours)
        place = SweepPlace(sweep_id="s-1", storage_path="", resources={}, rungs=Rungs(times=(2.0,)))
        job = Job(trial=3, attempt=1, config={}, seed=1, iteration=iteration)
        self.session = Session(job, place, self.sender)
        self.said: list[TrialReported] = []
        self._theirs = theirs
        threading.Thread(target=self._read, daemon=True).start()
        self.replies: list[Answer | Stop] = []

    def _read(self) -> None:
        for frame in read_frames(self._theirs, FROM_WORKER):
            for message in frame:
                assert isinstance(message, TrialReported)
                self.said.append(message)
                if message.is_waiting:
                    for reply in self.replies:
                        self.session.tell(reply)

    def step(self, seconds: float = 0.3) -> float:
        """Do something, and report; how long that took to return."""
        time.sleep(seconds)
        began = time.monotonic()
        self.session.report({"loss": 1.0}, None, False)
        return time.monotonic() - began


@pytest.fixture
def trial() -> Iterator[Trial]:
    ours, theirs = socket.socketpair()
    made = Trial(ours, theirs)
    yield made
    made.sender.close()
    ours.close()
    theirs.close()


def test_a_trial_that_a_rung_stops_leaves_in_that_report(trial: Trial) -> None:
    trial.replies = [Stop(trial=3, attempt=1, reason="scheduler"), Answer(trial=3, attempt=1, report=1)]
    assert trial.step() < 0.25
    with pytest.raises(TrialStopped):
        trial.step(1.0)
    assert [(message.first, message.is_waiting) for message in trial.said] == [(0, False), (1, True)]


def test_a_trial_that_goes_on_does_so_with_the_answer(trial: Trial) -> None:
    trial.replies = [Answer(trial=3, attempt=1, report=1)]
    trial.step()
    assert trial.step(1.0) < 0.5
    assert trial.step() < 0.25


def test_where_nobody_answers_it_waits_as_long_as_a_step_took(trial: Trial) -> None:
    trial.step()
    assert 0.25 < trial.step() < 1.5
    assert trial.step() < 0.25


def test_a_short_step_is_not_waited_for(trial: Trial) -> None:
    trial.step(0.0)
    trial.step(0.0)
    trial.sender.close()
    assert not any(message.is_waiting for message in trial.said)
