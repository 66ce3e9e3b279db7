"""DEHB's scheduler: each trial ends at the time of its rung."""

from __future__ import annotations

from collections import Counter

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Stop, make_scheduler
from raysweep.schedulers.dehb import DehbScheduler
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec


def test_a_trial_stops_at_the_time_of_its_rung_and_at_none_before() -> None:
    """For 9 and 3 a band is 9, 3 and 1 trials; 3 and 1; and 3: for 1, 3, 9; 3, 9; and 9 epochs."""
    scheduler = DehbScheduler(max_t=9, reduction_factor=3)
    ends = [1] * 9 + [3] * 3 + [9] + [3] * 3 + [9] + [9] * 3
    for number, end in enumerate(ends * 2):
        scheduler.add(number, {})
        for time in range(1, end):
            assert scheduler.report(number, time, 0.0) == NOTHING
        if end < 9:
            assert scheduler.report(number, end, 0.0) == ((number, Stop()),)
            assert scheduler.report(number, end + 1, 0.0) == ((number, Stop()),), "one that missed its time"
        else:
            assert scheduler.report(number, end, 0.0) == NOTHING, "it has done all its work"


def test_the_sweep_gives_each_trial_its_time_and_no_other_one_a_say() -> None:
    spec = SweepSpec(
        name="a",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="loss",
        mode="max",
        num_samples=20,
        seed=2,
        search="dehb",
        scheduler={"dehb": {"max_t": 9}},
    )
    outcome = simulate(spec, lambda config, epoch: {"loss": config["x"]}, slots=3).outcome
    assert Counter(trial.metrics["training_iteration"] for trial in outcome.trials) == {1: 9, 3: 6, 9: 5}
    assert Counter(trial.state for trial in outcome.trials) == {"stopped": 15, "completed": 5}


def test_it_is_made_from_the_spec() -> None:
    options = {"max_t": 16, "reduction_factor": 4, "time_attr": "epoch"}
    spec = SweepSpec(
        name="a",
        trainable="m:f",
        param_space={"x": {"uniform": [0, 1]}},
        metric="loss",
        mode="min",
        search="dehb",
        scheduler={"dehb": options},
    )
    scheduler = make_scheduler(spec)
    assert isinstance(scheduler, DehbScheduler)
    assert (scheduler.time_attr, scheduler.max_t) == ("epoch", 16.0)
    assert scheduler.to_json() == {"parameters": {"max_t": 16, "reduction_factor": 4.0}}
    assert scheduler.report(0, 1, 0.0) == ((0, Stop()),)
    assert scheduler.report(16, 3, 0.0) == NOTHING


def test_bad_parameters_and_a_state_of_others_are_refused() -> None:
    with pytest.raises(SpecError, match=r"^scheduler\.dehb\.max_t: 0\.5 is less than 1"):
        DehbScheduler(max_t=0.5)
    with pytest.raises(SpecError, match=r"^scheduler\.dehb\.reduction_factor: 1 is not greater"):
        DehbScheduler(reduction_factor=1)
    with pytest.raises(SpecError):
        DehbScheduler(max_t=9).from_json(DehbScheduler(max_t=27).to_json())
