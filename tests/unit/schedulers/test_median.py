"""MedianScheduler by itself. tests/engine/test_median_differential.py has the oracle."""

from __future__ import annotations

import timeit
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Pause, Resume, Stop
from raysweep.schedulers.median_stopping import MedianScheduler


def median(**changes: Any) -> MedianScheduler:
    return MedianScheduler(**{"mode": "min", "grace_period": 1, "min_samples_required": 2, **changes})


def test_stops_whose_best_is_worse_than_the_median_of_the_others_means() -> None:
    scheduler = median()
    for trial, values in enumerate([(1.0, 3.0), (3.0, 5.0), (9.0, 9.0)]):
        for time, value in enumerate(values, start=1):
            assert scheduler.report(trial, time, value) == (
                ((2, Stop()),) if trial == 2 and time == 1 else ()
            )
    # The means up to time 2 are 2 and 4, that of trial 2 is not known: the median is 3.
    assert scheduler.report(3, 2, 3.0) == NOTHING, "as good as the median is not worse"
    assert scheduler.report(4, 2, 3.01) == ((4, Stop()),)


def test_too_few_others_stop_nobody_and_neither_does_the_grace_period() -> None:
    scheduler = median(grace_period=2)
    for trial in range(3):
        assert scheduler.report(trial, 1, float(trial)) == NOTHING
        assert scheduler.report(trial, 2, float(trial)) == (((2, Stop()),) if trial == 2 else NOTHING)


def test_without_hard_stop_a_trial_is_paused_once_and_goes_on_when_no_other_runs() -> None:
    scheduler = median(hard_stop=False)
    assert scheduler.moves == {"pause"}
    for trial in range(2):
        scheduler.report(trial, 1, 0.0)
    assert scheduler.report(2, 1, 1.0) == ((2, Pause()),)
    assert scheduler.idle([5, 2]) == ((2, Resume()), (5, Resume()))
    assert scheduler.report(2, 2, 9.0) == NOTHING


def test_a_time_that_is_reported_again_after_a_restart_counts_once() -> None:
    scheduler, again = median(), median()
    for trial in range(3):
        for time in (1, 2, 3):
            scheduler.report(trial, time, 1.0 + trial / 10)
            again.report(trial, time, 1.0 + trial / 10)
    for time in (2, 3):
        assert again.report(0, time, 50.0) == NOTHING
    assert again.to_json() == scheduler.to_json()


def test_state_of_other_parameters_is_refused() -> None:
    with pytest.raises(SpecError, match=r"scheduler\.median_stopping\.grace_period.*1.*7"):
        median(grace_period=7).from_json(median().to_json())


def test_cost_of_a_report_does_not_grow_with_the_reports() -> None:
    """A comparison with 5,000 trials of 20 reports costs microseconds: nothing is summed anew."""
    scheduler = median()
    for trial in range(5_000):
        for time in range(1, 21):
            scheduler.report(trial, time, (trial * 7919) % 5_003 - 100.0 * time)
    numbers = iter(range(5_000, 10**9))
    seconds = min(timeit.repeat(lambda: scheduler.report(next(numbers), 20, 5.0), number=100, repeat=5)) / 100
    assert seconds < 1e-3
