"""The simulator as a user meets it: schedulers compared in virtual time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import pytest

from raysweep.errors import RaysweepError, SpecError
from raysweep.simulate import Costs, Kill, WorkerDied, simulate
from raysweep.simulate.clock import Clock
from raysweep.simulate.nodes import cpus_of
from tests.unit.simulate.sweeps import ASHA, make_spec


def curve(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
    return {"loss": config["x"] + 1 / iteration} if iteration <= 9 else None


def test_things_happen_in_the_order_of_time_and_then_of_asking() -> None:
    clock, seen = Clock(starts_at=10.0), []
    for name, seconds in (("c", 2.0), ("a", 1.0), ("b", 1.0), ("now", 0.0)):
        clock.after(seconds, lambda name=name: seen.append((name, clock.now)))
    clock.at(3.0, lambda: seen.append(("overdue", clock.now)))
    while clock.run_next():
        pass
    assert seen == [("now", 10.0), ("overdue", 10.0), ("a", 11.0), ("b", 11.0), ("c", 12.0)]


def test_a_sweep_takes_the_virtual_time_that_its_trials_take() -> None:
    spec = make_spec(num_samples=16)
    began = perf_counter()
    simulated = simulate(spec, curve, step_s=3600.0, slots=4)
    assert perf_counter() - began < 5
    # 16 trials of 9 reports and the step in which they return, 4 at a time, an hour each.
    assert simulated.duration_s == pytest.approx(16 / 4 * 10 * 3600, rel=0.01)
    outcome = simulated.outcome
    assert outcome.counts == {"completed": 16}
    assert outcome.best is not None
    assert outcome.best.score == pytest.approx(min(t.config["x"] for t in outcome.trials) + 1 / 9)
    assert simulated.outcome.ended_at == pytest.approx(simulated.duration_s, abs=1)


def test_a_report_is_what_a_worker_would_send() -> None:
    """NaN goes as a string, which several metrics may ignore; a metric that is text fails its trial."""

    def report(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        number = int(config["n"])
        values: dict[int, Any] = {0: 1.0, 1: math.nan, 2: object(), 3: math.inf}
        return {"loss": number + 1.0, "size": values[number]} if iteration < 2 else None

    fields = {"metric": ["loss", "size"], "mode": ["min", "min"], "search": "grid", "num_samples": 1}
    space = {"n": {"grid_search": [0, 1, 2, 3]}}
    for non_finite, states in (
        ("ignore", ["completed", "completed", "failed", "completed"]),
        ("fail", ["completed", "failed", "failed", "failed"]),
    ):
        failure = {"max_failures": 0, "non_finite": non_finite}
        spec = make_spec(param_space=space, failure=failure, **fields)
        outcome = simulate(spec, report, slots=1).outcome
        assert [trial.state for trial in outcome.trials] == states
        assert [trial.number for trial in outcome.pareto] == [0]
    assert outcome.trials[2].error is not None
    assert "'size' as '<object object at " in outcome.trials[2].error.message
    assert "which is not a number" in outcome.trials[2].error.message


def test_early_stopping_saves_time() -> None:
    full = simulate(make_spec(num_samples=27), curve, slots=3)
    asha = simulate(make_spec(num_samples=27, scheduler=ASHA), curve, slots=3)
    assert asha.outcome.counts["stopped"] > 9
    assert asha.duration_s < full.duration_s / 2
    assert full.outcome.best is not None
    assert asha.outcome.best is not None
    assert asha.outcome.best.score <= full.outcome.best.score + 0.1


@pytest.mark.parametrize(
    ("options", "is_spared"),
    [
        ({}, True),
        ({"save_every": 1}, True),
        ({"wait_every": 1}, True),
        ({"step_s": 0.01}, False),  # of so short a step a wait is not worth it
        ({"costs": Costs(put_s=0.1, message_s=1.1)}, False),  # no verdict comes in the time of a step
    ],
)
def test_who_is_stopped_at_a_rung_makes_no_step_more(options: dict[str, Any], is_spared: bool) -> None:
    made: Counter[float] = Counter()

    def counted(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        made[config["x"]] += 1
        return curve(config, iteration)

    spec = make_spec(num_samples=9, scheduler=ASHA)
    outcome = simulate(spec, counted, **{"slots": 3, "is_checked": True} | options).outcome
    stopped = [trial for trial in outcome.trials if trial.state == "stopped"]
    assert len(stopped) > 3
    spared = [trial for trial in stopped if made[trial.config["x"]] == trial.metrics["training_iteration"]]
    assert spared == (stopped if is_spared else [])


def test_a_report_at_a_rung_waits_no_longer_than_its_step_and_two_seconds() -> None:
    """The journal answers late: nine reports, of which those at 1 and 3 wait."""
    spec = make_spec(num_samples=1, scheduler=ASHA)
    for step_s, wait_s in ((1.0, 1.0), (50.0, 2.0)):
        costs = Costs(put_s=1000.0)
        timeline = simulate(spec, curve, slots=1, step_s=step_s, costs=costs).timeline
        began, *reported = [moment.at for moment in timeline if moment.what in ("began", "reported")]
        steps = [step_s + wait_s if number in (2, 4) else step_s for number in range(1, 10)]
        assert reported == pytest.approx([began + sum(steps[: number + 1]) for number in range(9)], abs=0.1)


def test_the_same_arguments_give_the_same_result() -> None:
    options: dict[str, Any] = {"slots": 3, "save_every": 2, "costs": Costs(jitter=1.0)}
    spec = make_spec(scheduler=ASHA)
    first, second = (simulate(spec, curve, seed=5, **options) for _ in range(2))
    assert first.timeline == second.timeline
    assert first.journal == second.journal
    assert first.outcome.trials == second.outcome.trials
    assert simulate(spec, curve, seed=6, **options).timeline != first.timeline


def test_a_pace_of_its_own() -> None:
    spec = make_spec(num_samples=4, max_concurrent_trials=1)
    simulated = simulate(spec, curve, step_s=lambda config, iteration: 100.0 * iteration)
    assert simulated.duration_s == pytest.approx(4 * 100 * sum(range(1, 11)), rel=0.01)


def test_a_limit_on_the_time_of_a_trial_ends_it() -> None:
    spec = make_spec(num_samples=2, stop={"trial_time_s": 50, "grace_s": 3})
    simulated = simulate(spec, curve, step_s=20.0)
    assert [trial.reports for trial in simulated.outcome.trials] == [2, 2]
    stopped = [moment for moment in simulated.timeline if moment.what == "stopped"]
    assert len(stopped) == 2, "killed when the grace was over"
    assert simulated.outcome.counts == {"completed": 2}


def test_dead_workers_are_replaced_and_their_trials_go_on_from_checkpoints() -> None:
    left = [3, 5]

    def dies(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        if left and iteration == left[0]:
            left.pop(0)
            raise WorkerDied
        return curve(config, iteration)

    spec = make_spec(num_samples=1, failure={"backoff_initial_s": 0.1})
    simulated = simulate(spec, dies, save_every=2)
    began = [moment for moment in simulated.timeline if moment.what == "began"]
    assert [moment.iteration for moment in began] == [0, 2, 4]
    assert [attempt.end for attempt in simulated.outcome.trials[0].attempts] == [
        "failed",
        "failed",
        "completed",
    ]


def test_a_user_error_fails_as_it_would() -> None:
    def raises(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
        raise TypeError("no such thing")

    simulated = simulate(make_spec(), raises)
    assert simulated.outcome.status == "failed"
    assert "the first 3 trials all failed in user code" in simulated.outcome.why


def test_a_killed_controller_has_a_successor() -> None:
    simulated = simulate(make_spec(), curve, kills=[Kill(append=5, when="after")])
    assert simulated.outcome.generation == 2
    assert [moment.what for moment in simulated.timeline if moment.slot is None] == [
        "claimed",
        "killed",
        "claimed",
    ]
    with pytest.raises(RaysweepError, match="either append= or write="):
        Kill(when="after")


def test_a_wrong_spec_is_refused() -> None:
    with pytest.raises(SpecError, match="schedular"):
        simulate({**make_spec().to_dict(), "schedular": "fifo"}, curve)


def test_all_workers_of_a_gang_take_their_cpus_on_a_model_node() -> None:
    sizes = {"": 1, "cpu=2": 2, "num_workers=3": 3, "cpu=2 num_workers=3": 6, "cpu=2 memory=4096": 2}
    assert {size: cpus_of(size) for size in sizes} == sizes


def test_a_gang_is_simulated_as_one_process() -> None:
    spec = make_spec(num_samples=4, scaling={"num_workers": 3})
    simulated = simulate(spec, curve, step_s=60.0, slots=2)
    assert simulated.outcome.counts == {"completed": 4}


@pytest.mark.parametrize(
    "scheduler",
    [
        {"hyperband": {"max_t": 9, "reduction_factor": 3}},
        {"pbt": {"perturbation_interval": 1, "synch": True, "max_t": 4, "hyperparam_mutations": ["x"]}},
        {"asha": {"max_t": 9, "reduction_factor": 3, "type": "promotion"}},
    ],
    ids=lambda scheduler: next(iter(scheduler)),
)
def test_trials_that_pause_without_checkpoints_are_noted_once(scheduler: dict[str, Any]) -> None:
    spec = make_spec(num_samples=9, scheduler=scheduler)
    bare = simulate(spec, curve, slots=2).outcome
    (note,) = [note for note in bare.notes if "restarts from zero" in note]
    assert note.startswith(f"scheduler {next(iter(scheduler))} pauses trials")
    saving = simulate(spec, curve, slots=2, save_every=1).outcome
    assert not [note for note in saving.notes if "restarts from zero" in note]
