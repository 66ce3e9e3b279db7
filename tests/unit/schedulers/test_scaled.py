"""A sweep of several scales: no scheduler compares trials of different ones, and the best is a largest."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.outcome import SweepOutcome
from raysweep.schedulers import Scheduler, make_scheduler
from raysweep.simulate import Simulated, simulate
from raysweep.specs import SweepSpec
from raysweep.testing.scheduler_contract import SchedulerContract

SCALES = [{"rows": 100}, {"rows": 200}, {"rows": 400}]
KINDS: dict[str, Any] = {
    "asha": {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3}},
    "promotion": {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3, "type": "promotion"}},
    "median": {"median_stopping": {"grace_period": 2}},
}


def spec(scheduler: Any = "fifo", **fields: Any) -> SweepSpec:
    plain: dict[str, Any] = {
        "name": "s",
        "trainable": "m:f",
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "seed": 4,
        "num_samples": 27,
        "param_space": {"x": {"uniform": [0, 1]}},
        "scales": SCALES,
        "scheduler": scheduler,
    }
    return SweepSpec.model_validate(plain | fields)


def curve(config: dict[str, float], epoch: int) -> dict[str, Any] | None:
    """Every trial of a larger scale is far worse than all of the smaller ones."""
    return {"loss": config["x"] + 1 / epoch + config["rows"]} if epoch <= 9 else None


def run(asked: SweepSpec, slots: int = 4) -> Simulated:
    return simulate(asked, curve, slots=slots, save_every=1)


class TestScaledAsha(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return make_scheduler(spec(KINDS["asha"]))

    def config(self, trial: int) -> dict[str, Any]:
        return {"x": trial / 100, **SCALES[trial % 3]}


class TestScaledPromotion(TestScaledAsha):
    def make_scheduler(self) -> Scheduler:
        return make_scheduler(spec(KINDS["promotion"]))


@pytest.mark.parametrize("kind", KINDS)
def test_trials_of_each_scale_are_compared_among_themselves(kind: str) -> None:
    outcome = run(spec(KINDS[kind])).outcome
    whole = [trial for trial in outcome.trials if trial.metrics["training_iteration"] == 9]
    assert {trial.scale["rows"] for trial in whole} == {100, 200, 400}
    assert len(whole) < 27, "some are stopped"


def test_each_scale_decides_as_a_sweep_of_its_own() -> None:
    together = make_scheduler(spec(KINDS["asha"]))
    alone = [make_scheduler(spec(KINDS["asha"], scales=(), scale=scale)) for scale in SCALES]
    for trial in range(12):
        for each in (together, alone[trial % 3]):
            each.add(trial, {"x": 0.0, **SCALES[trial % 3]})
    for time in range(1, 10):
        for trial in range(12):
            value = (trial * 5 % 12) / time + 100.0 * (trial % 3)
            decided = together.report(trial, time, value)
            assert decided == alone[trial % 3].report(trial, time, value)


def best_and_top(outcome: SweepOutcome) -> tuple[Any, list[Any]]:
    assert outcome.found_best is not None
    return outcome.found_best.scale["rows"], [trial.scale["rows"] for trial in outcome.top(12)]


@pytest.mark.parametrize("fields", [{}, {"repeat": 3, "num_samples": 9}])
def test_the_best_is_the_best_of_the_largest_scale(fields: dict[str, Any]) -> None:
    outcome = run(spec(**fields)).outcome
    rows, top = best_and_top(outcome)
    assert rows == 400
    assert top == sorted(top, reverse=True), "then come those of the next smaller scale"
    assert outcome.top(1)[0] == outcome.found_best
    again = SweepOutcome.from_json(outcome.to_json())
    assert best_and_top(again) == (rows, top)
    assert again.trials[0].scale == {"rows": 100}
    assert again.trials[0].larger_scales == 2


def test_a_sweep_that_ended_before_its_largest_scale_has_the_best_of_the_next() -> None:
    outcome = run(spec(stop={"time_budget_s": 30})).outcome
    scales = {trial.scale["rows"] for trial in outcome.trials}
    assert outcome.status == "budget"
    assert 400 not in scales
    assert outcome.found_best is not None
    assert outcome.found_best.scale["rows"] == max(
        trial.scale["rows"] for trial in outcome.trials if trial.state in ("completed", "cancelled")
    )


def test_trials_of_a_sweep_without_scales_are_stored_as_before() -> None:
    def flat(config: dict[str, float], epoch: int) -> dict[str, Any] | None:
        return {"loss": config["x"]} if epoch <= 1 else None

    outcome = simulate(spec(scales=()), flat, slots=2).outcome
    assert not {"scale", "larger_scales"} & outcome.trials[0].model_dump(mode="json").keys()
