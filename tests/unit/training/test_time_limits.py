"""When a training's limits end it."""

from __future__ import annotations

import math

import pytest

from raysweep.outcome import Usage
from raysweep.specs.train_parts import TrainStop
from raysweep.training.time_limits import ending_of, no_checkpoint

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def both(clock: Clock) -> dict[str, Clock]:
    return {"wall": clock, "monotonic": clock}


def test_without_limits_a_run_never_ends() -> None:
    ending = ending_of(TrainStop(), began_at=NOW, used=None, **both(Clock()))
    assert (ending.left_s, ending.reason) == (math.inf, "")
    assert not ending.is_over
    assert not ending.wants_checkpoint
    assert ending.asks_in_s == math.inf


def test_workers_are_asked_before_it_and_it_ends_at_the_limit() -> None:
    clock = Clock()
    ending = ending_of(TrainStop(time_budget_s=100, grace_s=30), began_at=NOW, used=None, **both(clock))
    said = {}
    for after in (0, 69, 70, 99, 100, 500):
        clock.now = NOW + after
        said[after] = (ending.asks_in_s, ending.wants_checkpoint, ending.is_over)
    assert said == {
        0: (70, False, False),
        69: (1, False, False),
        70: (0, True, False),
        99: (-29, True, False),
        100: (-30, True, True),
        500: (-430, True, True),
    }


def test_a_budget_is_that_of_all_attempts() -> None:
    used = Usage(active_s=80)
    ending = ending_of(TrainStop(time_budget_s=100), began_at=NOW - 5000, used=used, **both(Clock()))
    assert ending.left_s == 20
    ending = ending_of(TrainStop(time_budget_s=60), began_at=NOW, used=used, **both(Clock()))
    assert ending.is_over


def test_a_time_of_day_is_the_next_one_after_the_first_start() -> None:
    """A run that is resumed the next morning has met the deadline of the night that it began in."""
    stop = TrainStop(deadline="09:00 UTC")
    assert ending_of(stop, began_at=NOW, used=None, **both(Clock())).left_s == 3600
    clock = Clock()
    clock.now = NOW + 86_400
    ending = ending_of(stop, began_at=NOW, used=None, **both(clock))
    assert (ending.left_s, ending.reason) == (3600 - 86_400, "deadline")
    assert ending.is_over


@pytest.mark.parametrize(("budget_s", "reason"), [(1000.0, "time_budget"), (10_000.0, "deadline")])
def test_of_two_limits_the_first_counts(budget_s: float, reason: str) -> None:
    stop = TrainStop(deadline="2027-01-15T09:00:00+00:00", time_budget_s=budget_s)
    assert ending_of(stop, began_at=NOW, used=None, **both(Clock())).reason == reason


@pytest.mark.parametrize("by_s", [-3600.0, 1800.0, 86_400.0])
def test_a_wall_clock_that_is_set_moves_the_deadline_and_no_budget(by_s: float) -> None:
    wall, monotonic = Clock(), Clock()
    stop = TrainStop(deadline="2027-01-15T09:00:00+00:00", time_budget_s=1000)
    ending = ending_of(stop, began_at=NOW, used=None, wall=wall, monotonic=monotonic)
    wall.now += by_s
    assert ending.is_over == (by_s == 86_400.0)
    assert ending.left_s == min(1000.0, 3600.0 - by_s)
    assert ending.reason == ("deadline" if by_s == 86_400.0 else "time_budget")


def test_a_run_with_nothing_to_show_says_what_to_do() -> None:
    error = no_checkpoint("deadline")
    assert error.kind == "deadline"
    assert "stop.deadline came before the first checkpoint; give it more time" in error.message
