"""What is said of when a scheduler decides, and when it does."""

from __future__ import annotations

from typing import Any

import pytest

import raysweep as rs
from raysweep.schedulers import make_scheduler
from raysweep.worker.rungs import RungWatch
from raysweep.worker.sweep_info import Rungs

TRIALS, MAX_T = 60, 27
SCHEDULERS: dict[str, Any] = {
    "asha": {"max_t": MAX_T, "reduction_factor": 3, "brackets": 2},
    "pasha": {"max_t": MAX_T},
    "hyperband": {"max_t": MAX_T},
}


def make_spec(scheduler: Any, **fields: Any) -> rs.SweepSpec:
    plain: dict[str, Any] = {
        "name": "t",
        "trainable": "benchmarks.trainables:noop",
        "param_space": {"x": {"uniform": [0, 1]}},
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "seed": 1,
        "num_samples": TRIALS,
    }
    return rs.SweepSpec(scheduler=scheduler, **plain | fields)


@pytest.mark.parametrize(
    "scheduler",
    [
        *({kind: options} for kind, options in SCHEDULERS.items()),
        {"asha": {"max_t": MAX_T, "type": "promotion"}},
        {"pbt": {"perturbation_interval": 4}},
    ],
    ids=lambda scheduler: "-".join(
        [*scheduler, *(str(v) for v in scheduler[next(iter(scheduler))].values())]
    ),
)
def test_a_verdict_on_who_reports_comes_at_a_rung(scheduler: dict[str, Any]) -> None:
    spec = make_spec(scheduler)
    decides, rungs = make_scheduler(spec, 1), Rungs.of(spec)
    decided = 0
    for trial in range(TRIALS):
        decides.add(trial, {"x": trial / TRIALS})
        watch = RungWatch(rungs, 0)
        watch._began = -1000.0  # each step took long
        for time in range(1, MAX_T + 1):
            is_rung = watch.patience_s({}, time - 1) > 0
            own = [verdict for number, verdict in decides.report(trial, time, (trial * 7 % 60) / time)
                   if number == trial]  # fmt: skip
            decided += bool(own)
            assert is_rung or not own or time == MAX_T, f"decided at {time}: {own}"
            if own:
                break
    assert decided > TRIALS / 3


def test_where_a_trial_has_done_all_its_work_there_is_none() -> None:
    """It ends by itself then, and what its code does at its end should be done."""
    halving = {"asha": {"max_t": 9, "reduction_factor": 3, "time_attr": "epoch"}}
    found = Rungs.of(make_spec(halving, stop={"trial": {"epoch": 5}}))
    assert found == Rungs(attr="epoch", times=(1.0, 3.0), below=9)
    assert Rungs.of(make_spec({"hyperband": {"max_t": 9}})) == Rungs(times=(1.0, 3.0), below=9)
    assert not Rungs.of(make_spec("fifo", stop={"trial": {"training_iteration": 10}}))


def test_there_are_none_where_each_report_decides_or_nobody_knows() -> None:
    assert not Rungs.of(make_spec("fifo"))
    assert not Rungs.of(make_spec("median_stopping"))
    train = {"num_workers": 2, "driver": {}}
    assert not Rungs.of(make_spec({"asha": {"max_t": 9}}, scaling=train))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"max_t": 9, "time_attr": "epoch"}, Rungs(attr="epoch", below=9)),
        ({"max_t": "nine"}, Rungs()),
        ({"max_t": True}, Rungs()),
        ({}, Rungs()),
    ],
)
def test_of_a_users_class_only_time_and_end_are_known(options: dict[str, Any], expected: Rungs) -> None:
    """Its options may be anything; nothing imports it here."""
    assert Rungs.of(make_spec({"no_such_module:Mine": options})) == expected
