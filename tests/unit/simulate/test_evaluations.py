"""Evaluation apart from training decides as if it took no time, whatever dies; and never stands still."""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from typing import Any

import pytest

from raysweep.core.vocabulary.events import TrialReported
from raysweep.simulate import Kill, simulate
from tests.unit.simulate.evaluated import loss_of, run_apart, run_at_once, run_chaos
from tests.unit.simulate.exactness import kills_of
from tests.unit.simulate.sweeps import ASHA, make_spec, shown

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
NAMES = [
    "random-asha-deterministic",
    "random-asha-flaky",
    "random-copycat-deterministic",
    "random-pbt-flaky",
    "tpe-halving-flaky",
    "tpe-hyperband-none",
]
PACES: list[dict[str, Any]] = [
    {"ahead": 0, "evaluate_s": 3.0, "rate": 0.3},
    {"ahead": 1, "evaluate_s": 4.0, "rate": 0.0},
    {"ahead": 3, "evaluate_s": 9.0, "rate": 0.3},
]
SAMPLED = 2


@cache
def at_once(name: str) -> dict[str, Any]:
    return shown(run_at_once(name))


@pytest.mark.parametrize("pace", PACES, ids=["waits", "one-ahead", "three-ahead"])
@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_those_of_evaluations_that_take_no_time(name: str, pace: dict[str, Any]) -> None:
    """Evaluators die too, and the controller is killed around any write."""
    apart = run_apart(name, **pace)
    assert shown(apart) == at_once(name)
    for kill in Random(name).sample(kills_of(apart), SAMPLED):
        killed = run_apart(name, kill, **pace)
        assert killed.fired == (kill,)
        assert shown(killed) == at_once(name), kill


def train(config: Any, iteration: int) -> dict[str, Any] | None:
    return {"epoch": iteration} if iteration <= 9 else None


def test_every_metric_is_in_the_journal_once_with_its_report() -> None:
    spec = make_spec(num_samples=20, scheduler=ASHA, evaluate={"trainable": "j:judge"})
    options: dict[str, Any] = {"save_every": 1, "evaluation": loss_of, "evaluate_s": 5.0, "is_checked": True}
    length = simulate(spec, train, slots=3, **options).appends
    simulated = simulate(spec, train, slots=3, kills=[Kill(append=length // 2, when="after")], **options)
    taken = Counter[tuple[int, int, int]]()
    for event in simulated.journal:
        if isinstance(event, TrialReported) and event.rows and "loss" in event.keys:
            assert len(event.rows) == 1
            taken[event.trial, event.attempt, event.first] += 1
    assert set(taken.values()) == {1}
    for trial in simulated.outcome.trials:
        assert trial.metrics["loss"] == loss_of(trial.config, trial.metrics["training_iteration"])["loss"]


def test_the_sweep_waits_for_its_last_evaluation() -> None:
    spec = make_spec(num_samples=1, evaluate={"trainable": "j:judge", "ahead": 9})
    simulated = simulate(spec, train, save_every=9, evaluation=loss_of, evaluate_s=500.0)
    assert simulated.duration_s > 500.0
    assert simulated.outcome.counts == {"completed": 1}


def test_a_trial_is_only_so_far_ahead_of_its_evaluations() -> None:
    def began(ahead: int) -> list[float]:
        spec = make_spec(num_samples=1, evaluate={"trainable": "j:judge", "ahead": ahead})
        simulated = simulate(spec, train, save_every=1, evaluation=loss_of, evaluate_s=100.0)
        return [moment.at for moment in simulated.timeline if moment.what == "reported"]

    for ahead in (0, 2):
        reported = began(ahead)
        assert reported[ahead] - reported[0] < 100.0
        assert reported[ahead + 1] - reported[0] > 99.0


def test_a_deadline_drops_what_is_open_and_a_later_one_has_it_evaluated() -> None:
    spec = make_spec(num_samples=2, evaluate={"trainable": "j:judge"}, max_concurrent_trials=1)
    limited = spec.replace(stop={"deadline": "1970-01-01T00:00:30Z"})
    options: dict[str, Any] = {"save_every": 1, "evaluation": loss_of, "evaluate_s": 4.0, "is_checked": True}
    short = simulate(limited, train, **options)
    assert short.duration_s < 31.0
    assert short.outcome.status == "deadline"
    undisturbed = simulate(spec, train, **options)
    assert shown(simulate(limited, train, reopened=[spec], **options)) == shown(undisturbed)


def test_an_evaluation_that_never_succeeds_leaves_the_trial_without_a_result_and_the_sweep_goes_on() -> None:
    def fails_for_some(config: Any, iteration: int) -> dict[str, Any]:
        if config["x"] < 0.5:
            raise ValueError("cannot load it")
        return loss_of(config, iteration)

    spec = make_spec(num_samples=8, evaluate={"trainable": "j:judge"}, failure={"breaker_trials": 0})
    outcome = simulate(spec, train, save_every=3, evaluation=fails_for_some).outcome
    assert outcome.status == "completed"
    states = {trial.state for trial in outcome.trials if trial.config["x"] < 0.5}
    assert states == {"failed"}
    assert any(
        "failed 3 times, the last time with ValueError: cannot load it" in note for note in outcome.notes
    )


@pytest.mark.parametrize("part", range(2))
def test_a_sample_of_chaos(part: int) -> None:
    fired = Counter[str]()
    for seed in range(part * 40, part * 40 + 40):
        try:
            fired += run_chaos(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert fired["completed"] >= 10
