"""A trial's worker is SIGKILLed in each state of the trial's life, under each isolation. Real processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

import raysweep as rs
from raysweep.testing import FaultPlan

pytestmark = [
    pytest.mark.ray,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("ray_cluster"),
]
MakeSpec = Callable[..., rs.SweepSpec]
Lines = Callable[[], list[list[str]]]
# Of the costly ones: a worker's or an actor's death means a new process with all its imports.
slow = pytest.mark.slow


@pytest.mark.parametrize(
    "isolation", ["process", pytest.param("worker", marks=slow), pytest.param("actor", marks=slow)]
)
def test_killed_in_each_state(isolation: str, make_spec: MakeSpec, lines: Lines, plan: FaultPlan) -> None:
    plan = (
        plan.kill_worker_at(on="load")
        .kill_worker_at(trial=0, on="begin")
        .kill_worker_at(trial=1, step=2, on="report")
        .kill_worker_at(trial=2, step=3, on="checkpoint")
        .kill_worker_at(trial=3, step=3, on="reported")
        .exit_at(trial=4, step=1, code=3)
    )
    spec = make_spec("steps", {"steps": 4, "pause": 0.05}, num_samples=6, isolation=isolation)
    with plan.active():
        outcome = rs.run_sweep(spec, key="k")
    plan.assert_fired()
    assert outcome.counts == {"completed": 6}
    kinds = [[a.error and a.error.kind for a in trial.attempts] for trial in outcome.trials]
    assert kinds == [["worker_died", None]] * 5 + [[None]], "only whom it was meant for"
    assert all(trial.metrics["step"] == 4 for trial in outcome.trials)
    # Steps made by each trial in total: those behind its newest committed checkpoint were not made again.
    # Up to three were on their way when the process died, and the word of one that was stored.
    steps = Counter(line[1] for line in lines() if line[0] == "step")
    resumed = {line[1]: int(line[3]) for line in lines() if line[0] == "resumed"}
    assert steps["5"] == 4
    assert resumed.get("1", 0) in (0, 1)
    # Stored in their order: those of steps 1 and 2 were there, that of step 3 lacked its manifest.
    assert resumed.get("2", 0) in (1, 2)
    assert resumed.get("3", 0) in (0, 1, 2, 3)
    assert "0" not in resumed
    assert all(steps[trial] <= 4 + 3 for trial in "012345")


@pytest.mark.slow
@pytest.mark.parametrize(
    "isolation", ["worker", pytest.param("process", marks=slow), pytest.param("actor", marks=slow)]
)
def test_killed_while_it_stops(isolation: str, make_spec: MakeSpec, lines: Lines, plan: FaultPlan) -> None:
    """It was to end anyway: what it had reported counts, and it does not run again."""
    plan = plan.kill_worker_at(trial=1, on="stop")
    spec = make_spec("forever", num_samples=3, isolation=isolation, stop={"trial": {"training_iteration": 5}})
    with plan.active():
        outcome = rs.run_sweep(spec, key="k")
    plan.assert_fired()
    assert outcome.counts == {"completed": 3}
    assert [trial.metrics["training_iteration"] for trial in outcome.trials] == [5, 5, 5]
    assert Counter(line[1] for line in lines() if line[0] == "start") == {"0": 1, "1": 1, "2": 1}


@pytest.mark.servers
def test_killed_with_trials_queued_behind(make_spec: MakeSpec, lines: Lines, plan: FaultPlan) -> None:
    """Short trials wait in the worker's own queue; those that had not begun run elsewhere.

    It is known which one ran: the results of its forerunners, however fresh, left the worker before it began.
    """
    plan = plan.kill_worker_at(trial=90, on="begin").kill_worker_at(trial=150, on="begin")
    spec = make_spec("noop", num_samples=200, isolation="worker")
    with plan.active():
        outcome = rs.run_sweep(spec, key="k")
    plan.assert_fired()
    assert outcome.counts == {"completed": 200}
    kinds = {
        trial.number: [attempt.error and attempt.error.kind for attempt in trial.attempts]
        for trial in outcome.trials
        if len(trial.attempts) > 1
    }
    assert kinds == {90: ["worker_died", None], 150: ["worker_died", None]}
    assert Counter(int(line[1]) for line in lines()) == dict.fromkeys(range(200), 1)


@slow
@pytest.mark.parametrize("isolation", ["worker", "process", "actor"])
def test_killed_again_and_again_is_given_up(isolation: str, make_spec: MakeSpec, plan: FaultPlan) -> None:
    plan = plan.kill_worker_at(trial=1, step=1, times=10)
    spec = make_spec("steps", {"steps": 2}, num_samples=3, isolation=isolation)
    with plan.active():
        outcome = rs.run_sweep(spec, key="k")
    assert plan.fired() == (1 + spec.failure.max_worker_deaths,)
    assert outcome.counts == {"completed": 2, "failed": 1}
    assert outcome.trials[1].error is not None
    assert outcome.trials[1].error.kind == "worker_died"
