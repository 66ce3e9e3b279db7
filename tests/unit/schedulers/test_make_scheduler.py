"""From a spec to a scheduler."""

from __future__ import annotations

from typing import Any

from raysweep.schedulers import NOTHING, Scheduler, make_scheduler
from raysweep.schedulers.asha import AshaScheduler
from raysweep.specs import SweepSpec


def spec(**changes: Any) -> SweepSpec:
    fields: dict[str, Any] = {"name": "s", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}}
    return SweepSpec(**{**fields, "metric": "m", "mode": "min", **changes})


def test_fifo_never_stops() -> None:
    """The default lets every trial run to its end and has no state."""
    scheduler: Scheduler = make_scheduler(spec())
    assert type(scheduler) is Scheduler
    scheduler.add(0, {})
    assert scheduler.moves == frozenset()
    assert scheduler.report(0, 10**9, 1e9) is NOTHING
    assert (scheduler.end(0, None, None), scheduler.remove(0), scheduler.idle([])) == (NOTHING,) * 3
    scheduler.from_json(scheduler.to_json())
    assert scheduler.to_json() == {}


def test_asha_takes_the_specs_options() -> None:
    """Each option and the direction reach the scheduler."""
    asha = {"max_t": 27, "grace_period": 3, "reduction_factor": 3.0, "brackets": 2}
    scheduler = make_scheduler(spec(scheduler={"asha": asha | {"time_attr": "epoch"}}, seed=5))
    assert isinstance(scheduler, AshaScheduler)
    assert (scheduler.time_attr, scheduler.max_t, scheduler.moves) == ("epoch", 27.0, {"stop"})
    assert scheduler.to_json()["parameters"] == {**asha, "mode": "min", "seed": 5, "stop_last_trials": True}


def test_the_sweeps_seed_wins_over_the_specs() -> None:
    """A spec without a seed gets the one that the sweep drew."""
    for given, in_spec, expected in [(7, None, 7), (7, 5, 7), (None, 5, 5), (None, None, 0), (0, 5, 0)]:
        scheduler = make_scheduler(spec(scheduler="asha", seed=in_spec), given)
        assert scheduler.to_json()["parameters"]["seed"] == expected


def test_what_asha_takes_where_nothing_is_said() -> None:
    """As in Ray Tune, but for the seed, which Tune does not have."""
    assert AshaScheduler(mode="max").to_json()["parameters"] == {
        "mode": "max",
        "max_t": 100,
        "grace_period": 1,
        "reduction_factor": 4,
        "brackets": 1,
        "seed": 0,
        "stop_last_trials": True,
    }
