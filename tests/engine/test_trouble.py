"""Trials that hang, workers that do not start, memory that is too much, resources that never come."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import SlotFailed, TrialReturned, TrialStopped
from raysweep.errors import ClusterLostError, InfeasibleResourcesError
from raysweep.outcome import SweepProgress
from tests.engine.conftest import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.faults]
Run = Callable[..., rs.SweepOutcome]
Events = Callable[..., list[Any]]
Lines = Callable[[], list[list[str]]]
HERE = "tests.engine.trouble"
GIB = 2**30


@pytest.mark.parametrize(
    "isolation",
    [
        "worker",
        pytest.param("process", marks=pytest.mark.slow),
        pytest.param("actor", marks=pytest.mark.slow),
    ],
)
def test_a_trial_that_hangs_is_killed_and_tried_again(isolation: str, run: Run, events: Events) -> None:
    failure = {"report_timeout_s": 1.0}
    outcome = run(f"{HERE}:hang_once", isolation=isolation, failure=failure)
    (trial,) = outcome.trials
    assert [attempt.end for attempt in trial.attempts] == ["failed", "completed"]
    error = trial.attempts[0].error
    assert error is not None
    assert (error.kind, error.type) == ("hung", "TrialHung")
    assert "no report for 1 s" in error.message
    assert error.traceback is not None
    assert "wait_for_ever" in error.traceback, "it says where it hung"
    assert len(events(TrialStopped)) == 1


@pytest.mark.slow
def test_a_worker_that_hangs_in_an_import_is_given_up(run: Run, events: Events) -> None:
    with pytest.raises(ClusterLostError, match="StartTimeout: the trainable was still being loaded"):
        run("tests.engine.stuck_import:train", failure={"start_timeout_s": 0.5})
    assert {event.failure.type for event in events(SlotFailed)} == {"StartTimeout"}


@pytest.mark.parametrize("isolation", ["process", pytest.param("worker", marks=pytest.mark.slow)])
def test_a_trial_over_its_memory_is_ended_and_gets_more(isolation: str, run: Run, lines: Lines) -> None:
    outcome = run(
        f"{HERE}:grow",
        {"gib": 2},
        isolation=isolation,
        resources={"cpu": 1, "memory": GIB},
        failure={"memory_limit_factor": 1.5},
    )
    (trial,) = outcome.trials
    assert [attempt.end for attempt in trial.attempts] == ["failed", "completed"]
    error = trial.attempts[0].error
    assert error is not None
    assert (error.kind, error.type) == ("oom", "MemoryLimitExceeded")
    assert "its limit is 1.50 GiB" in error.message
    assert [line[1] for line in lines()] == ["1", "2"]


@pytest.mark.slow
def test_memory_that_no_node_has_fails_the_trial_and_not_the_sweep(run: Run) -> None:
    outcome = run(
        f"{HERE}:grow",
        {"gib": {"choice": [2]}},
        resources={"cpu": 1, "memory": GIB},
        failure={"memory_limit_factor": 1.5, "oom_memory_factor": 1000, "max_worker_deaths": 9},
    )
    # The largest node has more than 1 GiB: all of it is tried first, and there the second attempt is small.
    assert outcome[0].state == "completed"


@pytest.mark.parametrize(
    ("trainable", "space", "says"),
    [
        ("wait_for_own_task", {}, "inside the trial's own resources"),
        pytest.param(
            "wait_for_own_group",
            {"cpus": 2},
            "asked for a placement group of {CPU: 2}",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_deadlock_over_resources_is_explained(
    trainable: str, space: dict[str, Any], says: str, run: Run
) -> None:
    started_at = time.monotonic()
    with pytest.raises(InfeasibleResourcesError, match=says):
        run(f"{HERE}:{trainable}", space, failure={"placement_timeout_s": 2.0})
    assert time.monotonic() - started_at < 60
    assert wait_for(lambda: not groups_alive(), 10)


def test_what_a_killed_trial_had_asked_ray_for_goes_with_it(run: Run) -> None:
    """Ray itself would keep its placement group until the job's end: the next attempt would wait for ever."""
    outcome = run(f"{HERE}:group_of_its_own", {}, max_concurrent_trials=1, isolation="worker")
    assert outcome.counts == {"completed": 1}
    assert [attempt.end for attempt in outcome[0].attempts] == ["failed", "completed"]
    assert wait_for(lambda: not groups_alive(), 10)


def groups_alive() -> list[str]:
    """The placement groups that hold resources of the cluster, or wait for them."""
    from ray.util.placement_group import placement_group_table

    return [name for name, group in placement_group_table().items() if group["state"] != "REMOVED"]


@pytest.mark.slow
def test_a_deadlock_takes_nothing_that_had_ended(run: Run, events: Events) -> None:
    fields = {"num_samples": 2, "max_concurrent_trials": 1, "failure": {"placement_timeout_s": 2.0}}
    with pytest.raises(InfeasibleResourcesError):
        run(f"{HERE}:wait_for_own_task", {"from": 1}, **fields)
    assert [event.trial for event in events(TrialReturned)] == [0]


def test_a_worker_without_a_place_says_who_has_it(run: Run, ray_cluster: Any) -> None:
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    taken = placement_group([{"CPU": 2}])
    assert taken.wait(30)
    seen: list[str] = []

    def give_back(progress: SweepProgress) -> None:
        if progress.notes and not seen:
            seen.extend(progress.notes)
            remove_placement_group(taken)

    from tests.engine.conftest import HERE as TRAINABLES

    assert ray.is_initialized()
    outcome = run(f"{TRAINABLES}:noop", failure={"placement_timeout_s": 1.0}, on_progress=give_back)
    assert outcome.status == "completed"
    assert "a worker waits for a place: it asks for {CPU: 1}" in seen[0]
    assert "others hold {CPU: 2}" in seen[0]


def test_a_long_traceback_is_stored_whole(run: Run, storage: Path) -> None:
    outcome = run(f"{HERE}:fail_deeply", failure={"max_failures": 0})
    error = outcome[0].error
    assert error is not None
    assert error.traceback is not None
    assert len(error.traceback) <= 4096
    assert error.traceback_uri is not None
    whole = Path(error.traceback_uri.removeprefix("file://")).read_text()
    assert "line 000000" in whole
    assert "line 002999" in whole
    assert str(storage) in error.traceback_uri
