"""A stop reaches a trial at its next report; one that does not listen is interrupted, then killed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import SlotOpened, TrialStarted, TrialStopped
from tests.sampling import first_of

pytestmark = pytest.mark.here
Run = Callable[..., rs.SweepOutcome]
Events = Callable[..., list[Any]]
Lines = Callable[[], list[list[str]]]


def test_asha_stops_a_trial_at_its_next_report(run: Run, lines: Lines) -> None:
    asha = {"asha": {"max_t": 8, "grace_period": 1, "reduction_factor": 2}}
    outcome = run("stoppable", num_samples=4, scheduler=asha, max_concurrent_trials=1)
    assert [trial.state for trial in outcome.trials] == ["completed", "stopped", "stopped", "stopped"]
    assert [trial.metrics["step"] for trial in outcome.trials] == [8, 1, 1, 1]
    # All of them waited for each decision, so none reported past it.
    assert [trial.overrun_reports for trial in outcome.trials] == [0, 0, 0, 0]
    counted = Counter(line[0] for line in lines())
    assert counted["stopped"] == 4
    assert counted["finally"] == 4
    assert counted["swallowed"] == 0
    reasons = {line[2] for line in lines() if line[0] == "stopped"}
    assert reasons == {"limit", "scheduler"}


@pytest.mark.parametrize("isolation", first_of(["worker", "process", "inline", "actor"]))
def test_a_trial_that_a_rung_stops_makes_no_step_past_it(run: Run, lines: Lines, isolation: str) -> None:
    asha = {"asha": {"max_t": 8, "grace_period": 1, "reduction_factor": 2}}
    fields: dict[str, Any] = {"max_concurrent_trials": 1, "isolation": isolation}
    outcome = run("steps", {"steps": 8, "pause": 0.3}, num_samples=4, scheduler=asha, **fields)
    assert [trial.overrun_reports for trial in outcome.trials] == [0, 0, 0, 0]
    made = Counter(int(line[1]) for line in lines() if line[0] == "step")
    assert made == {trial.number: trial.reports for trial in outcome.trials}
    assert sorted(made.values()) != [8, 8, 8, 8], "some are stopped before the last rung"


@pytest.mark.parametrize("isolation", first_of(["worker", "process"]))
def test_a_trial_that_sleeps_past_the_grace_is_woken(
    isolation: str, run: Run, lines: Lines, events: Events
) -> None:
    stop = {"trial_time_s": 0.3, "grace_s": 0.3}
    outcome = run("sleeper", num_samples=3, stop=stop, isolation=isolation, max_concurrent_trials=1)
    # A trial that reached its limit has completed.
    assert outcome.counts == {"completed": 3}
    assert ["woke", "1"] in lines()
    (stopped,) = events(TrialStopped)
    assert (stopped.trial, stopped.was_killed) == (1, False)
    trial = outcome[1]
    assert trial.ended_at is not None
    assert trial.started_at is not None
    assert trial.ended_at - trial.started_at < 10


@pytest.mark.parametrize(("isolation", "most_s"), first_of([("worker", 10.0), ("process", 3.0)]))
def test_a_trial_that_will_not_end_loses_its_process_and_the_slot_goes_on(
    isolation: str,
    most_s: float,
    run: Run,
    lines: Lines,
    events: Events,
    record_property: Callable[..., None],
) -> None:
    stop = {"trial_time_s": 0.5, "grace_s": 0.2}
    space = {"stubborn": 10}
    outcome = run("stubborn", space, num_samples=40, stop=stop, isolation=isolation, max_concurrent_trials=1)
    assert outcome.counts == {"completed": 40}
    # Those in the queue behind it ran, once.
    assert Counter(int(line[1]) for line in lines()) == dict.fromkeys(range(40), 1)
    (stopped,) = events(TrialStopped)
    assert (stopped.trial, stopped.was_killed) == (10, True)
    next_at = min(event.at for event in events(TrialStarted) if event.at > stopped.at)
    record_property("slot_back_after_s", next_at - stopped.at)
    assert next_at - stopped.at < most_s
    # The slot is the same: the core noticed nothing.
    assert len(events(SlotOpened)) == 1


def test_a_deadline_cuts_what_sleeps(run: Run, lines: Lines) -> None:
    stop = {"deadline": datetime.now(UTC) + timedelta(seconds=7), "grace_s": 0.2}
    outcome = run("sleeper", {"sleepers": list(range(9))}, num_samples=9, stop=stop)
    assert outcome.status == "deadline"
    assert {trial.state for trial in outcome.trials} <= {"stopped", "cancelled"}
    # None, where the machine is so busy that the workers came up after the deadline.
    begun = [line[1] for line in lines() if line[0] == "start"]
    assert len(begun) <= 2
    assert sorted(line[1] for line in lines() if line[0] == "woke") == sorted(begun)


@pytest.mark.slow
def test_a_budget_cuts_what_reports(run: Run, lines: Lines) -> None:
    outcome = run("forever", num_samples=5, stop={"time_budget_s": 12})
    assert outcome.status == "budget"
    assert not any(line[0] == "end" for line in lines())
    assert {trial.state for trial in outcome.trials} <= {"stopped", "cancelled"}


def test_a_target_ends_the_sweep(run: Run) -> None:
    space = {"reports": 20_000}
    outcome = run("many_reports", space, num_samples=5, stop={"target": 0.01}, max_concurrent_trials=1)
    assert outcome.status == "target"
    assert outcome[0].metrics["step"] == 99
    assert outcome.best is not None
    assert outcome.best.score == 0.01
