"""HyperBandScheduler: brackets, rungs, The oracle: tests/engine/test_hyperband_differential.py."""

from __future__ import annotations

import math
import timeit
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Pause, Resume, Stop
from raysweep.schedulers.hyperband import HyperBandScheduler
from raysweep.schedulers.machinery.brackets import bracket_size, halvings, milestone


def hyperband(trials: int = 0, **changes: Any) -> HyperBandScheduler:
    scheduler = HyperBandScheduler(**{"mode": "min", "max_t": 9, "reduction_factor": 3, **changes})
    for trial in range(trials):
        scheduler.add(trial, {})
    return scheduler


def test_brackets_are_those_of_the_paper() -> None:
    """Table 1 of Li et al.: R = 81, eta = 3."""
    assert halvings(81, 3) == 4
    assert [bracket_size(s, 4, 3) for s in (4, 3, 2, 1, 0)] == [81, 34, 15, 8, 5]
    assert [[milestone(81, 3, left) for left in range(s, -1, -1)] for s in (4, 1)] == [
        [1, 3, 9, 27, 81],
        [27, 81],
    ]


@pytest.mark.parametrize(("power", "eta"), [(5, 3), (3, 10), (20, 2), (6, 1.5)])
def test_a_power_of_the_factor_is_not_missed_by_a_rounding_error(power: int, eta: float) -> None:
    """The logarithm of 243 to the base 3 is 4.999..."""
    assert halvings(math.prod([eta] * power), eta) == power


def test_the_last_rung_is_at_max_t_whatever_it_is() -> None:
    assert [milestone(100, 3, left) for left in (4, 3, 2, 1, 0)] == [1, 3, 11, 33, 100]


def test_all_wait_until_the_last_then_a_third_goes_on() -> None:
    scheduler = hyperband(9)
    for trial in range(8):
        assert scheduler.report(trial, 1, float(trial)) == ((trial, Pause()),)
    decisions = scheduler.report(8, 1, -1.0)
    assert [number for number, verdict in decisions if verdict == Resume()] == [0, 1, 8]
    assert [number for number, verdict in decisions if verdict == Stop()] == [2, 3, 4, 5, 6, 7]
    assert scheduler.report(8, 2, 5.0) == NOTHING
    assert scheduler.report(8, 3, 5.0) == ((8, Pause()),)


def test_of_equal_trials_the_first_go_on() -> None:
    scheduler = hyperband(9)
    for trial in range(9):
        decisions = scheduler.report(trial, 1, 0.5)
    assert [number for number, verdict in decisions if verdict == Resume()] == [0, 1, 2]


def test_who_ends_or_fails_is_not_waited_for() -> None:
    scheduler = hyperband(9)
    for trial in range(7):
        scheduler.report(trial, 1, float(trial))
    assert scheduler.remove(7) == NOTHING, "it may come back, if it was cut"
    decisions = scheduler.end(8, 1, 0.0)
    assert [number for number, verdict in decisions if verdict == Resume()] == [0, 1, 2]


def test_a_failure_that_comes_last_is_noticed_when_nothing_else_runs() -> None:
    scheduler = hyperband(9)
    for trial in range(8):
        scheduler.report(trial, 1, float(trial))
    scheduler.remove(8)
    assert [number for number, verdict in scheduler.idle(range(8)) if verdict == Resume()] == [0, 1, 2]


def test_it_is_noticed_by_a_successor_too() -> None:
    scheduler, successor = hyperband(9), hyperband()
    for trial in range(8):
        scheduler.report(trial, 1, float(trial))
    scheduler.remove(8)
    successor.from_json(scheduler.to_json())
    assert successor.idle(range(8)) == scheduler.idle(range(8)) != NOTHING


def test_a_trial_that_was_cut_and_comes_back_is_waited_for_again() -> None:
    scheduler = hyperband(9)
    for trial in range(8):
        scheduler.report(trial, 1, float(trial))
    for trial in range(9):
        scheduler.remove(trial)
    for trial in range(9):
        scheduler.add(trial, {})
    assert scheduler.report(0, 2, 99.0) == ((0, Pause()),), "it is measured by its first report at the rung"
    assert (0, Resume()) in scheduler.report(8, 1, 50.0)


def test_a_bracket_that_nothing_fills_goes_on_with_those_it_has() -> None:
    scheduler = hyperband(4)
    for trial in range(4):
        assert scheduler.report(trial, 1, float(trial)) == ((trial, Pause()),)
    decisions = scheduler.idle([0, 1, 2, 3])
    assert decisions == ((0, Resume()), (1, Resume()), (2, Stop()), (3, Stop()))


def test_who_is_far_ahead_does_not_run_on() -> None:
    """Trials that report seldom come as far as the next rung at once: there they wait for the others."""
    scheduler = hyperband(9)
    for trial in range(8):
        scheduler.report(trial, 4 if trial == 0 else 1, float(trial))
    decisions = scheduler.report(8, 1, 50.0)
    assert [number for number, verdict in decisions if verdict == Resume()] == [1, 2]
    scheduler.report(1, 3, 1.0)
    assert (0, Resume()) in scheduler.report(2, 3, 2.0)


def test_max_t_is_the_engines_to_carry_out() -> None:
    scheduler = hyperband(9)
    assert scheduler.max_t == 9
    assert scheduler.report(0, 9, 1.0) == NOTHING


@pytest.mark.parametrize(
    ("field", "changes"), [("max_t", {"max_t": 0}), ("reduction_factor", {"reduction_factor": 1})]
)
def test_bad_parameters_are_named(field: str, changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=rf"scheduler\.hyperband\.{field}"):
        hyperband(**changes)


def test_state_of_other_parameters_is_refused() -> None:
    with pytest.raises(SpecError, match=r"scheduler\.hyperband\.max_t.*9.*27"):
        hyperband(max_t=27).from_json(hyperband().to_json())


def test_cost_of_a_report_does_not_grow_with_the_brackets() -> None:
    scheduler = hyperband(10_000)
    numbers = iter(range(10_000))
    seconds = min(timeit.repeat(lambda: scheduler.report(next(numbers), 1, 5.0), number=500, repeat=5)) / 500
    assert seconds < 1e-3
