"""How a sweep gets to its end in time: deadline, budgets, plateau, and how it is opened again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from raysweep.core import make_outcome
from raysweep.core.handlers.sweep_end import end_in_sight, usage
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.limited import planned, step_to, stops, until
from tests.unit.core.sweep import Sweep, running
from tests.unit.core.toys import DIED


def test_a_trial_is_asked_for_the_last_checkpoint_that_comes_in_time() -> None:
    """Steps of 8 s from 100 on, the deadline at 135: the one at 132 is the last, and asked for at 124."""
    sweep = planned(1, 2, stop=until(135))
    assert stops(step_to(sweep, 108, 0, 0)) == []
    assert stops(step_to(sweep, 116, 0, 1)) == []
    assert stops(step_to(sweep, 124, 0, 2)) == [(0, 11.0)]
    step_to(sweep, 132, 0, 3)
    sweep.at = 132.5
    # Nothing begins any more, and so the sweep ends before its time.
    (end,) = sweep.stopped(0)[-1:]
    assert end == cmd.EndSweep(status="deadline", why="deadline")
    trial = sweep.state.trials[0]
    assert (trial.state, trial.results.iteration, trial.results.overrun) == ("cancelled", 4, 0)
    assert trial.results.last_score == 0.25, "its last report counts"
    assert trial.checkpoint is not None
    assert trial.checkpoint.iteration == 4
    assert sweep.trial_state(1) == "cancelled"


def test_a_trial_without_checkpoints_has_a_last_report() -> None:
    sweep = planned(1, 2, stop=until(140))
    assert stops(step_to(sweep, 110, 0, 0, saves=False)) == []
    assert stops(step_to(sweep, 120, 0, 1, saves=False)) == [(0, 20.0)]
    step_to(sweep, 130, 0, 2, saves=False)
    assert sweep.state.trials[0].results.last_score == 1 / 3
    sweep.at = 130.0
    assert sweep.stopped(0)[-1] == cmd.EndSweep(status="deadline", why="deadline")


def test_rare_checkpoints_are_waited_for_and_frequent_reports_go_on() -> None:
    """A checkpoint every 20 s, a report every 5 s: after 160 no other checkpoint comes before 179."""
    sweep = planned(1, 1, stop=until(179))
    asked = []
    for number, at in enumerate(range(105, 180, 5)):
        commands = step_to(sweep, at, 0, number, saves=at % 20 == 0)
        asked += [(at, trial) for trial, _ in stops(commands)]
        if asked:
            break
    # At 140: the one at 160 is the last that can come.
    assert asked == [(140, 0)]


def test_what_has_said_nothing_is_interrupted_at_the_deadline() -> None:
    sweep = planned(2, 4, stop=until(140))
    assert sweep.timer(140.0)[:2] == [
        cmd.StopTrial(slot=slot, trial=slot, attempt=1, reason="ending", grace_s=0.0) for slot in (0, 1)
    ]
    sweep.stopped(0)
    assert sweep.stopped(1)[-1] == cmd.EndSweep(status="deadline", why="deadline")


def test_no_trial_begins_that_cannot_report_in_time() -> None:
    sweep = planned(2, 6, stop=until(140))
    sweep.at = 115.0
    sweep.report(0, 0.5)
    sweep.report(1, 0.5)
    sweep.at = 124.0
    # 15 s to the first report: 139 and a margin are too late.
    assert sweep.returned(0) == [cmd.TellSearch(trial=0, value=0.5, end="completed")]
    assert sweep.state.phase == "running", "trial 1 still runs"
    assert sweep.trial_state(2) == "pending"
    sweep.at = 125.0
    assert sweep.returned(1)[-1] == cmd.EndSweep(status="deadline", why="deadline")


def test_one_that_can_begins() -> None:
    sweep = planned(1, 6, stop=until(140))
    sweep.at = 103.0
    sweep.report(0, 0.5)
    sweep.at = 130.0
    assert [c for c in sweep.returned(0) if isinstance(c, cmd.StartTrial)]


def test_a_sweep_ended_by_its_deadline_goes_on_where_it_was() -> None:
    sweep = planned(1, 3, stop=until(135))
    for number, at in enumerate((108, 116, 124, 132)):
        step_to(sweep, at, 0, number)
    sweep.stopped(0)
    sweep.send(ev.SweepEnded)
    assert sweep.state.phase == "ended"
    assert sweep.send(ev.ControllerStarted, generation=2) == [], "an ended sweep is ended"
    outcome = make_outcome(sweep.state, sweep_id="s", key="k", uri="mem://s", version="0")
    assert outcome.why == "0 of 3 trials, ended by deadline; best loss 0.25 (trial 00000)"
    assert outcome.ended_by is not None
    assert (outcome.ended_by.rule, outcome.ended_by.limit) == ("stop.deadline", 135.0)
    sweep.at = 500.0
    sweep.send(ev.ControllerStarted, generation=2, is_reopening=True)
    spec = sweep.state.spec.replace(stop=until(900)).to_dict()
    sweep.send(ev.SpecChanged, spec=spec, changes=("stop.deadline: later",))
    sweep.suggest(0)
    sweep.send(ev.CapacityChanged, slots=1)
    assert sweep.state.phase == "running"
    slot = sweep.state.room.next_slot - 1
    (started,) = [c for c in sweep.send(ev.SlotOpened, slot=slot) if isinstance(c, cmd.StartTrial)]
    assert (started.trial, started.attempt, started.iteration) == (0, 2, 4)
    assert started.checkpoint == "mem://0/3"
    for trial, attempt in ((0, 2), (1, 1), (2, 1)):
        sweep.began(trial, attempt)
        sweep.at += 1
        sweep.report(trial, 0.1 + trial, attempt=attempt)
        sweep.returned(trial, attempt)
    sweep.send(ev.SweepEnded)
    assert sweep.state.end.status == "completed"
    assert sweep.state.line.counts["completed"] == 3
    assert sweep.state.ranking.best_ended == 0


def test_the_best_of_a_reopened_sweep_is_one_that_has_ended_and_not_failed() -> None:
    sweep = planned(1, 3, stop=until(135))
    step_to(sweep, 103, 0, 0)
    sweep.returned(0)
    sweep.began(1)
    for number, at in enumerate((116, 124, 132)):
        step_to(sweep, at, 1, number)
    sweep.stopped(1)
    sweep.send(ev.SweepEnded)
    sweep.at = 500.0
    sweep.send(ev.ControllerStarted, generation=2, is_reopening=True)
    assert (sweep.trial_state(0), sweep.trial_state(1)) == ("completed", "pending")
    assert sweep.state.ranking.best_ended == 0


def test_a_later_deadline_before_the_end_brings_back_what_was_cut() -> None:
    """The controller was lost after one trial had been cut, and before the deadline had come."""
    sweep = planned(2, 2, stop=until(135))
    for number, at in enumerate((108, 116, 124, 132)):
        step_to(sweep, at, 0, number)
    sweep.stopped(0)
    assert (sweep.trial_state(0), sweep.state.phase) == ("cancelled", "running")
    sweep.send(ev.ControllerStarted, generation=2)
    spec = sweep.state.spec.replace(stop={}).to_dict()
    sweep.send(ev.SpecChanged, spec=spec, changes=("stop.deadline: none",))
    sweep.suggest(0)
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.send(ev.SlotOpened, slot=sweep.state.room.next_slot - 1)
    for trial in (0, 1):
        sweep.began(trial, 2)
        sweep.report(trial, 0.5, attempt=2)
        sweep.returned(trial, 2)
    assert sweep.state.end.status == "completed"
    assert sweep.state.line.counts["completed"] == 2


def test_a_wall_clock_deadline_comes_with_the_events() -> None:
    sweep = Sweep(num_samples=2, stop={"deadline": "06:00 Europe/Berlin"})
    text = datetime.fromtimestamp(200, UTC).isoformat()
    commands = sweep.send(ev.ControllerStarted, generation=1, deadline=text)
    assert cmd.SetTimer(at=200.0) in commands
    sweep.at = 150.0
    other = datetime.fromtimestamp(900, UTC).isoformat()
    sweep.send(ev.ControllerStarted, generation=2, deadline=other)
    assert sweep.state.clock.deadline_at == 200.0, "the first start decides"
    assert sweep.timer(200.0)[-1] == cmd.EndSweep(status="deadline", why="deadline 00:03+00:00")


def test_gpu_hours_are_those_of_open_slots() -> None:
    """Two slots of two GPUs, 0.01 GPU-hours: 36 GPU-seconds, 9 s of both slots."""
    sweep = planned(2, 9, resources={"gpu": 2}, stop={"budget": {"gpu_hours": 0.01}})
    assert sweep.state.clock.timer_at == 109.0
    sweep.at = 105.0
    sweep.send(ev.SlotLost, slot=1, failure=DIED)
    # 20 GPU-seconds are used; one slot takes 8 s for the rest.
    end = end_in_sight(sweep.state)
    assert end is not None
    assert end.at == 113.0
    sweep.timer(113.0)
    assert sweep.state.end.status == "budget"
    assert sweep.state.end.by == {
        "rule": "stop.budget.gpu_hours",
        "limit": 0.01,
        "value": pytest.approx(0.01),
    }
    assert sweep.state.end.why == "budget: 0.01 of 0.01 GPU-hours"


def test_what_has_no_price_costs_nothing() -> None:
    sweep = running(
        1,
        resources={"cpu": 2, "custom": {"rack": 1}},
        stop={"budget": {"cost": 1.0}, "cost_per_hour": {"cpu": 3.0}},
    )
    sweep.at += 60.0
    used = usage(sweep.state, sweep.at)
    assert used["cost"] == pytest.approx(60 * 2 * 3 / 3600)
    assert used["gpu_hours"] == 0.0


def test_budgets_count_what_five_dead_controllers_used() -> None:
    """Each is at work for 20 s, is last seen 3 s after its last event, and 100 s later succeeded."""
    prices = {"cpu": 1.0, "gpu": 10.0}
    sweep = Sweep(
        num_samples=9, resources={"cpu": 2, "gpu": 1}, stop={"budget": {"cost": 1.0}, "cost_per_hour": prices}
    )
    seen_at = None
    for generation in range(1, 6):
        start = {"generation": generation, "seen_at": seen_at}
        sweep.send(ev.ControllerStarted, **start)
        sweep.send(ev.CapacityChanged, slots=2)
        if generation == 1:
            sweep.suggest(9)
        first = min(sweep.state.slots)
        for slot in (first, first + 1):
            sweep.send(ev.SlotOpened, slot=slot)
        sweep.at += 17.0
        sweep.send(ev.CapacityChanged, slots=2)
        seen_at = sweep.at + 3.0
        sweep.at += 100.0
    sweep.send(ev.ControllerStarted, generation=6, seen_at=seen_at)
    used = usage(sweep.state, sweep.at)
    # Five times 20 s, two slots, each 2 CPUs and a GPU at 12 an hour.
    assert used["cpu_hours"] == pytest.approx(5 * 20 * 2 * 2 / 3600)
    assert used["gpu_hours"] == pytest.approx(5 * 20 * 2 / 3600)
    assert used["cost"] == pytest.approx(5 * 20 * 2 * 12 / 3600)
    assert used["active_s"] == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ({"cost": 0.5}, "budget: cost 0.5 of 0.5"),
        ({"cpu_hours": 0.25}, "budget: 0.25 of 0.25 CPU-hours"),
    ],
)
def test_why_names_the_budget(budget: dict[str, float], why: str) -> None:
    """A slot of one CPU, at 2 an hour: 900 s."""
    sweep = planned(1, 9, stop={"budget": budget, "cost_per_hour": {"cpu": 2.0}})
    assert sweep.state.clock.timer_at is not None
    sweep.timer(sweep.state.clock.timer_at)
    assert sweep.state.end.why == why


def test_a_plateau_is_over_completed_trials() -> None:
    stop = {"plateau": {"window": 3, "min_improvement": 0.1}}
    sweep = planned(1, 20, stop=stop, max_concurrent_trials=1)
    scores = [1.0, 0.5, 0.45, 0.44, 0.43, 0.42]
    for trial, score in enumerate(scores):
        if sweep.state.phase != "running":
            break
        sweep.at += 5.0
        if trial:
            sweep.began(trial)
        sweep.report(trial, score)
        commands = sweep.returned(trial)
    # 0.45, 0.44 and 0.43 are within 0.1 of 0.5.
    assert trial == 5
    assert commands[-1] == cmd.EndSweep(
        status="plateau", why="plateau: 3 completed trials without a gain of 0.1 over 0.5"
    )
    assert sweep.state.end.by == {"rule": "stop.plateau", "limit": 0.1, "value": 3, "best": 0.5}


@pytest.mark.parametrize(
    ("limit", "values", "ends_at"),
    [
        (10, [9.0, 10.0], 1),
        ({"above": 10}, [10.0, 10.5], 1),
        ({"below": 0.2}, [0.2, 0.1], 1),
        ({"above": 10, "below": 0}, [5.0, 0.0, -1.0], 2),
    ],
)
def test_limits_of_a_trial_have_a_direction(limit: Any, values: list[float], ends_at: int) -> None:
    sweep = planned(1, 1, stop={"trial": {"loss": limit}})
    asked = [bool(stops(sweep.report(0, value))) for value in values]
    assert asked.index(True) == ends_at
    sweep.stopped(0)
    assert sweep.trial_state(0) == "completed"


def test_few_trials_are_a_failure_where_the_spec_says_so() -> None:
    from raysweep.errors import SweepFailedError

    sweep = planned(1, 3, stop=until(140) | {"min_trials": 2})
    sweep.at = 110.0
    sweep.report(0, 0.5)
    sweep.at = 130.0
    sweep.returned(0)
    sweep.send(ev.SweepEnded)
    outcome = make_outcome(sweep.state, sweep_id="s", key="k", uri="mem://s", version="0")
    assert outcome.why.startswith("1 of 3 trials, ended by deadline")
    assert outcome.is_partial
    with pytest.raises(SweepFailedError, match="ended by deadline"):
        outcome.raise_for_status()
    enough = outcome.model_copy(update={"min_trials": 1})
    assert enough.raise_for_status() is enough
    with pytest.raises(SweepFailedError):
        enough.raise_for_status(accept_partial=False)
