"""What is made of a state: the outcome, its one sentence, and the state's own JSON."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from raysweep.core import SweepState, explain, make_outcome
from raysweep.core.handlers import transitions
from raysweep.core.views.result import trial_outcome
from raysweep.core.views.scores import best_of, ranked
from raysweep.core.vocabulary import events as ev
from raysweep.errors import RaysweepError
from raysweep.outcome import SweepOutcome
from raysweep.outcome.ended import status_of_outcome
from tests.unit.core.sweep import running
from tests.unit.core.toys import DIED, RAISED, make_spec
from tests.unit.core.workers import Worker
from tests.unit.core.world import World

GRIDS: Any = {
    "x": {"uniform": [0, 1]},
    "n": {"w": {"grid_search": [1, 2]}},
    "l": [{"grid_search": [3, 4]}],
}


def first_job(world: World) -> Worker:
    """The worker of the first slot, once its first trial runs."""
    world.until(lambda: world.workers and world.workers[0].job)
    return world.workers[0]


def ended_world() -> World:
    """Four trials: 0 was retried after an exception and a dead worker, 2 gave up at a NaN."""
    world = World(make_spec(max_concurrent_trials=1, failure={"max_failures": 1, "backoff_initial_s": 30}))
    world.start()
    trials = world.state.trials
    world.finish(first_job(world), "failed", RAISED)
    world.until(lambda: trials[0].attempt == 2 and trials[0].state == "running")
    world.lose_slot(world.workers[0], DIED)
    world.until(lambda: trials[2].state == "running" and trials[2].results.reports)
    world.report(next(iter(world.workers.values())), ["NaN"])
    world.drain()
    return world


def outcome_of(world: World) -> SweepOutcome:
    return make_outcome(world.state, sweep_id="toy-1", key="k", uri="mem://toy-1", version="0.1.0")


def test_the_outcome_tells_every_attempt() -> None:
    outcome = outcome_of(ended_world())
    assert outcome.status == "completed"
    assert outcome.counts == {"completed": 3, "failed": 1}
    ends = [
        [(attempt.end, attempt.error and attempt.error.kind) for attempt in t.attempts]
        for t in outcome.trials
    ]
    assert ends[0] == [("failed", "user_error"), ("failed", "worker_died"), ("completed", None)]
    assert ends[2] == [("failed", "non_finite")]
    assert outcome[2].error is not None
    assert outcome[2].error.type == "NonFiniteMetric"
    assert outcome.error is None
    assert outcome.best is not None
    assert outcome.best.score == min(
        trial.score for trial in outcome.trials if trial.state == "completed" and trial.score
    )
    assert outcome.best.checkpoint_uri == "mem://0/2000000002", "the third checkpoint of the third attempt"
    assert SweepOutcome.from_json(outcome.to_json()) == outcome


def test_the_outcome_of_a_failed_sweep_shows_its_first_error() -> None:
    world = World(make_spec(num_samples=1, failure={"max_failures": 0}))
    world.start()
    world.finish(first_job(world), "failed", RAISED)
    world.drain()
    outcome = outcome_of(world)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.type, outcome.error.message) == (
        "user_error",
        "ValueError",
        "boom",
    )
    assert outcome.why == "1 of 1 trials ended; 1 failed; failed: every trial failed"


def test_explain_is_one_sentence() -> None:
    world = ended_world()
    best = ranked(world.state)[0]
    assert explain(world.state) == (
        "4 of 4 trials ended; 3 completed, 1 failed; completed: every trial has ended; "
        f"best loss {best.results.last_score:.6g} (trial {best.number:05d})"
    )


@pytest.mark.parametrize(
    ("space", "total"),
    [
        ({"x": {"uniform": [0, 1]}}, 30),
        (GRIDS, 120),
    ],
)
def test_of_how_many_trials_a_sweep_failed(space: dict[str, Any], total: int) -> None:
    """Also of those that it had not drawn yet."""
    world = World(make_spec(num_samples=30, param_space=space, failure={"max_failures": 0}))
    world.start()
    world.until(lambda: world.state.trials)
    assert len(world.state.trials) < total
    world.send(ev.CancelRequested(at=world.now))
    world.drain()
    outcome = outcome_of(world)
    assert outcome.num_trials == total
    assert outcome.why.startswith(f"0 of {total} trials ended; ")
    assert status_of_outcome(outcome, now=0.0).num_trials == total


def test_a_sweep_that_has_not_ended_has_no_outcome() -> None:
    world = World(make_spec())
    world.start()
    assert explain(world.state) == "0 of 4 trials ended; still running"
    with pytest.raises(RaysweepError, match="sweep toy-1 has not ended"):
        outcome_of(world)


def test_the_best_so_far_is_of_ended_cancelled_and_running_trials() -> None:
    world = World(make_spec(num_samples=3), length=5)
    world.start(capacity=3)
    assert best_of(world.state, world.state.trials.values()) is None
    world.until(lambda: len(world.state.trials) == 3)
    world.until(lambda: all(trial.results.reports for trial in world.state.trials.values()))
    expected = min(
        world.state.trials.values(), key=lambda trial: (trial.results.last_score or 0.0, trial.number)
    )
    assert best_of(world.state, world.state.trials.values()) is expected
    world.send(ev.CancelRequested(at=world.now))
    world.drain()
    assert set(world.state.line.counts) >= {"cancelled"}
    assert best_of(world.state, world.state.trials.values()) is ranked(world.state)[0]


def test_the_state_as_json() -> None:
    """Plain JSON, a copy, and the same state again."""
    world = ended_world()
    plain = world.state.to_json()
    again = SweepState.from_json(orjson.loads(orjson.dumps(plain)))
    assert again.to_json() == plain
    assert again.trials[0].attempts == world.state.trials[0].attempts
    assert again.trials[0].checkpoints == world.state.trials[0].checkpoints
    world.state.trials[0].config["x"] = 77
    assert plain != world.state.to_json()


@pytest.mark.parametrize("missing", ["trials", "spec", "line", "scheduler"])
def test_a_snapshot_of_another_version_is_refused(missing: str) -> None:
    plain = World(make_spec()).state.to_json()
    del plain[missing]
    with pytest.raises(RaysweepError, match="snapshot does not fit"):
        SweepState.from_json(plain)


def test_what_is_on_its_way_is_shown_as_what_it_was() -> None:
    """A file of an outcome knows six states: a queued trial is still pending, one that stops still runs."""
    sweep = running(2, trials=4)
    sweep.send(ev.CancelRequested)
    shown = [trial_outcome(sweep.state, trial, "").state for trial in sweep.state.trials.values()]
    assert [trial.state for trial in sweep.state.trials.values()][:2] == ["stopping", "stopping"]
    assert shown[:2] == ["running", "running"]


def test_the_mean_of_durations_follows_the_newest() -> None:
    """The first counts whole, each later one a fifth; what was stopped counts, what failed does not."""
    sweep = running(1, trials=4, failure={"max_failures": 0})
    for trial, seconds, expected in [(0, 10.0, 10.0), (1, 20.0, 12.0), (2, 2.0, 10.0)]:
        if trial:
            sweep.began(trial)
        sweep.at += seconds
        sweep.report(trial, 0.5)
        sweep.returned(trial)
        assert sweep.state.meter.mean_duration_s == pytest.approx(expected)
    sweep.began(3)
    sweep.at += 100.0
    sweep.failed(3)
    assert sweep.state.meter.mean_duration_s == pytest.approx(10.0)


def test_a_clock_that_goes_back_makes_no_trial_shorter_than_nothing() -> None:
    sweep = running(1, trials=2)
    sweep.report(0, 0.5)
    sweep.at -= 50.0
    sweep.returned(0)
    assert sweep.state.meter.mean_duration_s == 0.0


def test_a_mean_that_has_sunk_to_next_to_nothing_does_not_end_the_sweep() -> None:
    """After one trial that took a while, thousands that take no time at all: a fifth less with each."""
    sweep = running(1, trials=2)
    sweep.state.meter.mean_duration_s = 5e-324
    sweep.report(0, 0.5)
    sweep.returned(0)
    assert transitions.depth(sweep.state) == transitions.MAX_DEPTH
    for mean, depth in [(0.0, 64), (7e-4, 64), (0.00085, 60), (0.04, 3), (0.05, 2), (0.5, 2), (1.0, 1)]:
        sweep.state.meter.mean_duration_s = mean
        assert transitions.depth(sweep.state) == depth


def test_a_checkpoint_is_known_by_all_that_its_worker_said() -> None:
    sweep = running(1, trials=1, checkpoint={"keep_last": 2})
    sweep.report(0, 0.5)
    fields = {"number": 7, "report": 0, "uri": "mem://c", "size_bytes": 11}
    sweep.send(ev.CheckpointCommitted, trial=0, attempt=1, **fields)
    checkpoint = sweep.state.trials[0].checkpoint
    assert checkpoint is not None
    assert (checkpoint.number, checkpoint.uri, checkpoint.size_bytes) == (7, "mem://c", 11)
    assert (checkpoint.score, checkpoint.iteration) == (0.5, 1)
