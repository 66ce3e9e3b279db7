"""A scheduler that compares trials by a metric of its own: `scheduler: {asha: {metric: auc, mode: max}}`."""

from __future__ import annotations

from typing import Any

import pytest
from ray.tune.schedulers import ASHAScheduler

from raysweep.errors import SpecError
from raysweep.simulate import Simulated, simulate
from raysweep.specs import SweepSpec

KINDS: dict[str, dict[str, Any]] = {
    "asha": {"max_t": 9, "reduction_factor": 3},
    "pasha": {"max_t": 9},
    "median_stopping": {"grace_period": 2},
    "hyperband": {"max_t": 9},
    "pbt": {"perturbation_interval": 2, "synch": True, "max_t": 9},
    "pb2": {"perturbation_interval": 2, "synch": True, "max_t": 9},
}


def spec(kind: str = "asha", options: dict[str, Any] | None = None, **fields: Any) -> SweepSpec:
    plain: dict[str, Any] = {
        "name": "a",
        "trainable": "m:f",
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "seed": 4,
        "num_samples": 18,
        "param_space": {"x": {"uniform": [0, 1]}},
        "scheduler": {kind: KINDS[kind] | (options or {})},
    }
    return SweepSpec(**plain | fields)


def curve(config: dict[str, float], epoch: int) -> dict[str, Any] | None:
    """The less x the less the loss; the more x the more the auc, and the less its mirror image."""
    x = config["x"]
    found = {"loss": x + 1 / epoch, "auc": x - 1 / epoch, "twin": 1 - x + 1 / epoch}
    return found if epoch <= 9 else None


def run(asked: SweepSpec) -> Simulated:
    return simulate(asked, curve, slots=18, save_every=1)


def decided(simulated: Simulated) -> list[tuple[Any, ...]]:
    trials = simulated.outcome.trials
    return [
        (t.state, t.metrics.get("training_iteration"), t.config, [(a.end, a.donor) for a in t.attempts])
        for t in trials
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_it_decides_as_in_a_sweep_of_that_metric(kind: str) -> None:
    named = run(spec(kind, {"metric": "auc", "mode": "max"}))
    assert decided(named) == decided(run(spec(kind, metric="auc", mode="max")))
    assert decided(named) != decided(run(spec(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_mode_is_the_metrics(kind: str) -> None:
    assert decided(run(spec(kind, {"metric": "twin", "mode": "min"}))) == decided(
        run(spec(kind, metric="twin", mode="min"))
    )


def test_the_best_is_the_sweeps_to_say() -> None:
    outcome = run(spec(options={"metric": "auc", "mode": "max"})).outcome
    done = [trial for trial in outcome.trials if trial.state == "completed"]
    assert outcome.best.score == min(trial.metrics["loss"] for trial in outcome.trials)
    assert max(trial.config["x"] for trial in outcome.trials) in [trial.config["x"] for trial in done]


def test_of_several_metrics_it_names_one() -> None:
    several: dict[str, Any] = {"metric": ["loss", "auc"], "mode": ["min", "max"], "search": "nsga2"}
    asked = spec(options={"metric": "auc"}, **several)
    assert asked.compared == ("auc", "max")
    alone = run(spec(metric="auc", mode="max", search="random"))
    both = run(asked.replace(search="random"))
    assert decided(both) == decided(alone)
    first = run(spec(options={"metric": "loss"}, **several).replace(search="random"))
    assert decided(first) == decided(run(spec(search="random")))
    assert len(run(asked).outcome.pareto) > 1


def test_a_report_without_it_says_nothing_to_the_scheduler() -> None:
    def at_even(config: dict[str, float], epoch: int) -> dict[str, Any] | None:
        found = curve(config, epoch)
        if found is not None and epoch % 2:
            del found["auc"]
        return found

    asked = spec(options={"metric": "auc", "mode": "max", "grace_period": 2})
    stopped = [t for t in simulate(asked, at_even, slots=18).outcome.trials if t.state == "stopped"]
    assert stopped
    assert all(trial.metrics["training_iteration"] % 2 == 0 for trial in stopped)


def test_one_that_is_never_reported_ends_the_sweep_with_its_field() -> None:
    outcome = run(spec(options={"metric": "acu", "mode": "max"})).outcome
    assert outcome.status == "failed"
    assert "'acu' was never reported by trial" in outcome.why


def test_one_that_is_not_finite_fails_its_trial_as_the_sweeps_would() -> None:
    def spoilt(config: dict[str, float], epoch: int) -> dict[str, Any] | None:
        found = curve(config, epoch)
        return found | {"auc": "NaN"} if found is not None and config["x"] < 0.2 else found

    outcome = simulate(spec(options={"metric": "auc", "mode": "max"}), spoilt, slots=18).outcome
    spoilt_ones = [trial for trial in outcome.trials if trial.config["x"] < 0.2]
    assert spoilt_ones
    assert {trial.state for trial in spoilt_ones} == {"failed"}


def test_specs_with_a_metric_of_their_own_survive() -> None:
    asked = spec(options={"metric": "auc", "mode": "max"})
    assert SweepSpec.from_any(asked.to_dict()) == asked
    assert asked.digest() != spec().digest()


def test_a_scheduler_of_rays_brings_its_own_metric() -> None:
    found = spec(scheduler=ASHAScheduler(metric="auc", mode="max", max_t=9))
    assert found.compared == ("auc", "max")
    assert (found.metric, found.mode) == ("loss", "min")
    same = spec(scheduler=ASHAScheduler(metric="loss", mode="min", max_t=9))
    assert same.scheduler.comparing is not None
    assert same.scheduler.comparing[1].metric is None


@pytest.mark.parametrize(
    ("options", "fields", "said"),
    [
        (
            {"metric": "auc"},
            {},
            r"^scheduler\.asha\.mode: is required: 'auc' is not one of the sweep's metrics; set it to",
        ),
        ({"mode": "max"}, {}, r"^scheduler\.asha\.mode: is the sweep's to say"),
        (
            {"metric": "loss", "mode": "max"},
            {},
            r"^scheduler\.asha\.mode: is max for 'loss', but the sweep has mode min",
        ),
        ({"metric": ""}, {}, r"^scheduler\.asha\.metric"),
        ({"metric": "a", "mode": "most"}, {}, r"^scheduler\.asha\.mode"),
        (
            {},
            {"search": "bohb", "scheduler": {"hyperband": {"metric": "auc", "mode": "max"}}},
            r"^scheduler\.hyperband\.metric: bohb requires the sweep's metric",
        ),
        ({}, {"scheduler": {"moasha": {"metric": "auc"}}}, r"^scheduler\.moasha\.metric"),
    ],
)
def test_what_is_not_clear_is_refused(options: dict[str, Any], fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(options=options, **fields)
