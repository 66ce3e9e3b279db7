"""Schedulers of Ray Tune: what they ask for is said in the spec's own words, or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune import schedulers as ray
from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
from ray.tune.schedulers.pb2 import PB2

from raysweep.errors import SpecError
from raysweep.from_tune.schedulers import read_scheduler
from raysweep.specs import SweepSpec

SPACE = {
    "lr": tune.loguniform(1e-4, 1e-1),
    "opt": {"name": tune.choice(["sgd", "adam"])},
    "net": {"width": tune.randint(8, 65)},
    "fixed": 3,
}
BOUNDS = {"lr": [1e-4, 1e-1], "net": {"width": [8, 65]}}
MUTATIONS = {"lr": tune.loguniform(1e-4, 1e-1), "opt": {"name": ["sgd", "adam"]}}


def make(scheduler: Any, **fields: Any) -> SweepSpec:
    plain = {"name": "s", "trainable": "m:f", "metric": "loss", "mode": "min", "param_space": SPACE}
    return SweepSpec.model_validate(plain | {"scheduler": scheduler, "num_samples": 4} | fields)


def pbt(**options: Any) -> ray.PopulationBasedTraining:
    given: dict[str, Any] = {"time_attr": "training_iteration", "hyperparam_mutations": MUTATIONS}
    return ray.PopulationBasedTraining(**given | options)


def pb2(**options: Any) -> PB2:
    given: dict[str, Any] = {"time_attr": "training_iteration", "hyperparam_bounds": BOUNDS}
    return PB2(**given | options)


TWINS: list[tuple[Any, dict[str, Any]]] = [
    (ray.FIFOScheduler(), {"fifo": {}}),
    (
        ray.ASHAScheduler(max_t=81, grace_period=3, reduction_factor=3, brackets=2, time_attr="epoch"),
        {
            "asha": {
                "max_t": 81, "grace_period": 3, "reduction_factor": 3.0, "brackets": 2, "time_attr": "epoch",
            }
        },
    ),
    (ray.ASHAScheduler(), {"asha": {}}),
    (
        ray.HyperBandScheduler(max_t=27, reduction_factor=4, time_attr="epoch"),
        {"hyperband": {"max_t": 27, "reduction_factor": 4.0, "time_attr": "epoch"}},
    ),
    (ray.HyperBandScheduler(), {"hyperband": {}}),
    (HyperBandForBOHB(max_t=27), {"hyperband": {"max_t": 27}}),
    (
        ray.MedianStoppingRule("training_iteration", grace_period=5, min_samples_required=7, hard_stop=False),
        {"median_stopping": {"grace_period": 5.0, "min_samples_required": 7, "hard_stop": False}},
    ),
    (
        pbt(
            perturbation_interval=7,
            burn_in_period=3,
            quantile_fraction=0.5,
            resample_probability=0.1,
            perturbation_factors=(1.5, 0.5),
            synch=True,
            time_attr="epoch",
        ),
        {
            "pbt": {
                "perturbation_interval": 7.0,
                "burn_in_period": 3.0,
                "hyperparam_mutations": ["lr", "opt.name"],
                "quantile_fraction": 0.5,
                "resample_probability": 0.1,
                "perturbation_factors": [1.5, 0.5],
                "synch": True,
                "time_attr": "epoch",
            }
        },
    ),
    (
        pb2(perturbation_interval=7, quantile_fraction=0.5, synch=True, time_attr="epoch"),
        {
            "pb2": {
                "perturbation_interval": 7.0,
                "hyperparam_bounds": ["lr", "net.width"],
                "quantile_fraction": 0.5,
                "synch": True,
                "time_attr": "epoch",
            }
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("scheduler", "own"), TWINS, ids=[type(given).__name__ for given, _ in TWINS])
def test_a_scheduler_with_a_twin_is_its_twin(scheduler: Any, own: dict[str, Any]) -> None:
    """Also where no option is given: then it is Ray's default, which ours is where nothing else is said."""
    assert make(scheduler).scheduler == make(own).scheduler


def test_its_metric_and_mode_count_where_the_spec_gives_none() -> None:
    scheduler = ray.ASHAScheduler(metric="acc", mode="max")
    spec = make(scheduler, metric=None, mode=None)
    assert (spec.metric, spec.mode) == ("acc", "max")
    assert (make(scheduler).metric, make(scheduler).mode) == ("loss", "min")


REFUSED: list[tuple[Any, str]] = [
    (ray.ASHAScheduler(stop_last_trials=False), r"AsyncHyperBandScheduler\.stop_last_trials: .*raise max_t"),
    (ray.HyperBandScheduler(stop_last_trials=False), r"HyperBandScheduler\.stop_last_trials: .*raise max_t"),
    (
        ray.MedianStoppingRule("training_iteration", min_time_slice=3, hard_stop=False),
        r"MedianStoppingRule\.min_time_slice: .*set hard_stop",
    ),
    (pbt(custom_explore_fn=lambda config: config), r"custom_explore_fn: .* is code; .*where"),
    (pbt(hyperparam_mutations={"lr": lambda: 0.1}), r"hyperparam_mutations\.lr: .* is code; .*a domain"),
    (
        pbt(hyperparam_mutations={"lr": tune.uniform(0, 1)}),
        r"hyperparam_mutations\.lr: explores .*uniform.*, and param_space has .*loguniform.*the same",
    ),
    (
        pbt(hyperparam_mutations={"opt": {"name": ["adam", "sgd"]}}),
        r"hyperparam_mutations\.opt\.name: explores .*the same domain in both",
    ),
    (pbt(hyperparam_mutations={"fixed": [1, 2]}), r"hyperparam_mutations\.fixed: explores .*has 3"),
    (pbt(hyperparam_mutations={"other": [1, 2]}), r"hyperparam_mutations\.other: .*has no domain of it"),
    (pb2(custom_explore_fn=lambda config: config), r"PB2\.custom_explore_fn: .* is code; .*where"),
    (
        pb2(hyperparam_bounds={"lr": [1e-5, 1e-1]}),
        r"PB2\.hyperparam_bounds\.lr: explores .*1e-05.*has .*0\.0001.*these bounds",
    ),
    (pb2(hyperparam_bounds={"net": {"width": [8, 66]}}), r"hyperparam_bounds\.net\.width: .*has \[8, 64\]"),
    (pb2(hyperparam_bounds={"fixed": [1, 3]}), r"hyperparam_bounds\.fixed: param_space has no number"),
]


@pytest.mark.parametrize(("scheduler", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_has_no_twin_is_refused_by_name(scheduler: Any, message: str) -> None:
    with pytest.raises(SpecError, match=rf"^scheduler: .*{message}"):
        make(scheduler)


def test_all_that_has_no_twin_is_found_at_once() -> None:
    given = pbt(custom_explore_fn=print, time_attr="time_total_s", hyperparam_mutations={"other": [1, 2]})
    parts = [objection.part for objection in read_scheduler(given, SPACE).objections]
    assert parts == ["custom_explore_fn", "hyperparam_mutations.other"]


def test_a_class_of_ones_own_is_no_twin() -> None:
    """It may decide otherwise."""

    class Mine(ray.AsyncHyperBandScheduler):
        pass

    with pytest.raises(SpecError, match=r"^scheduler: .*Mine has no counterpart"):
        make(Mine())


def replay(folder: Path, *rows: list[Any]) -> ray.PopulationBasedTrainingReplay:
    policy = folder / "pbt_policy.txt"
    policy.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ray.PopulationBasedTrainingReplay(str(policy))


def test_a_replay_is_refused_with_the_schedule_to_write(tmp_path: Path) -> None:
    """Of two changes at one step, the later one is what was trained with."""
    rows = [
        ["1", "2", 10, 20, {"lr": 0.1}, {"lr": 0.2}],
        ["0", "1", 20, 20, {"lr": 0.2}, {"lr": 0.05}],
    ]
    with pytest.raises(SpecError) as caught:
        make(replay(tmp_path, *rows))
    assert str(caught.value) == (
        "scheduler: PopulationBasedTrainingReplay trains one model by a schedule; it is not a sweep; "
        "run a TrainSpec, and in the trainable ask rs.get_context().config_at(step, config), which in a "
        'trial gives its config; its schedule: [{"from": 0, "config": {"lr": 0.1}}, '
        '{"from": 20, "config": {"lr": 0.05}}]'
    )


def test_a_replay_without_changes_is_a_training(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"not a sweep; it holds no change of config: run a TrainSpec with your"
    ):
        make(replay(tmp_path))
