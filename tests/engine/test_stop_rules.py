"""Functions and stoppers as `stop` of a tuner: asked in the trial's process, after each report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.stopper import CombinedStopper, MaximumIterationStopper, Stopper

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from tests.engine.conftest import INLINE
from tests.engine.tuners import maker_of_tuners


def count(config: dict[str, Any]) -> None:
    for step in range(10):
        tune.report({"loss": float(step), "inner": {"step": step}})


class Counting(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"loss": float(self.iteration)}


class AtLoss(Stopper):
    """Keeps what it knows by trial."""

    def __init__(self, loss: float) -> None:
        self.loss = loss
        self.seen: dict[str, int] = {}

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.seen[trial_id] = self.seen.get(trial_id, 0) + 1
        return bool(result["loss"] >= self.loss)

    def stop_all(self) -> bool:
        """None of the others."""
        return False


class Everything(AtLoss):
    def stop_all(self) -> bool:
        return len(self.seen) > 3


def reports(stop: Any, tmp_path: Path, trainable: Any = count) -> list[int]:
    tuner = maker_of_tuners(tmp_path)(trainable, {"x": tune.grid_search([1, 2])}, stop=stop)
    outcome = rs.run_sweep(rs.from_tuner(tuner, **INLINE), key="k", progress=False)
    assert outcome.status == "completed"
    assert {trial.state for trial in outcome.trials} == {"completed"}
    return [trial.reports for trial in outcome.trials]


@pytest.mark.ray
@pytest.mark.parametrize(
    ("stop", "wanted"),
    [
        (lambda trial_id, result: result["inner"]["step"] >= 2, 3),
        (lambda trial_id, result: result["training_iteration"] >= 4, 4),
        (AtLoss(5.0), 6),
        (CombinedStopper(AtLoss(5.0), MaximumIterationStopper(3)), 3),
        (CombinedStopper(AtLoss(1.0), MaximumIterationStopper(3)), 2),
    ],
)
def test_a_rule_ends_each_trial_for_itself(
    ray_cluster: RayConnection, tmp_path: Path, stop: Any, wanted: int
) -> None:
    assert reports(stop, tmp_path) == [wanted, wanted]


@pytest.mark.ray
def test_a_rule_sees_the_results_of_a_class(ray_cluster: RayConnection, tmp_path: Path) -> None:
    stop = lambda trial_id, result: result["training_iteration"] >= 3 and bool(trial_id)  # noqa: E731
    assert reports(stop, tmp_path, Counting) == [3, 3]


def test_a_stopper_that_may_end_the_sweep_is_refused(tmp_path: Path) -> None:
    make = maker_of_tuners(tmp_path)
    with pytest.raises(rs.SpecError, match=r"run_config\.stop: a .*Everything has a stop_all"):
        rs.from_tuner(make(stop=Everything(3.0)))
    assert rs.from_tuner(make(stop=Everything(3.0)), stop={"target": 0.1}).stop.target == 0.1


def test_a_limit_by_a_mapping_stops_nothing_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = rs.from_tuner(maker_of_tuners(tmp_path)(stop={"eval": {"loss": 3}, "loss": 2}))
    assert spec.stop.trial == {"loss": 2}
    assert "'eval' is a mapping" in caplog.text
