"""Pb2Scheduler: what it knows, what it prefers. Its oracle: tests/engine/test_pb2_differential.py."""

from __future__ import annotations

from math import log10
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers import NOTHING, Exploit, make_scheduler
from raysweep.schedulers.pb2 import Pb2Scheduler
from raysweep.schedulers.pbt import Population
from raysweep.simulate import simulate
from raysweep.space.parsed import normalise
from raysweep.space.perturbation import bounded_leaves
from raysweep.specs import SweepSpec

SPACE = normalise(
    {"lr": {"loguniform": [1e-3, 1.0]}, "net": {"width": {"randint": [8, 65]}}, "act": {"choice": ["a", "b"]}}
)


def pb2(trials: int = 4, *, seed: int = 1, **changes: Any) -> Pb2Scheduler:
    population = Population(**{"perturbation_interval": 2, **changes})
    scheduler = Pb2Scheduler(mode="max", population=population, leaves=bounded_leaves(SPACE), seed=seed)
    for trial in range(trials):
        scheduler.add(trial, {"lr": 10 ** (-trial / 2), "net": {"width": 8 + 16 * trial}, "act": "a"})
    return scheduler


def test_numbers_within_bounds_are_explored_and_nothing_else() -> None:
    assert [path for path, _ in bounded_leaves(SPACE)] == [("lr",), ("net", "width")]
    assert [path for path, _ in bounded_leaves(SPACE, ["net"])] == [("net", "width")]
    with pytest.raises(KeyError, match="act"):
        bounded_leaves(SPACE, ["act"])


def test_before_a_donor_has_made_progress_its_config_is_taken_as_it_is() -> None:
    """As with Ray: nothing is known of what a config gains."""
    scheduler = pb2()
    for trial in range(4):
        assert scheduler.report(trial, 2, float(trial)) == NOTHING
    ((_, verdict),) = scheduler.report(0, 4, 0.0)
    assert verdict == Exploit(donor=3, config={"lr": 10**-1.5, "net": {"width": 56}, "act": "a"})


def gains(scheduler: Pb2Scheduler, rounds: int = 4) -> list[dict[str, Any]]:
    """Trial n gains n in each interval; what the worst is given then."""
    found = []
    for turn in range(1, rounds + 1):
        for trial in (3, 2, 1, 0):
            for _, verdict in scheduler.report(trial, 2 * turn, float(trial * turn)):
                assert isinstance(verdict, Exploit)
                found.append(dict(verdict.config))
    return found


def test_what_is_explored_stays_in_its_bounds_and_follows_from_the_seed() -> None:
    configs = gains(pb2())
    assert gains(pb2()) == configs
    assert gains(pb2(seed=2)) != configs
    for config in configs:
        assert 1e-3 <= config["lr"] <= 1.0
        assert type(config["net"]["width"]) is int
        assert 8 <= config["net"]["width"] <= 64
        assert config["act"] == "a"
    assert len({config["lr"] for config in configs}) > 1


def spec(**changes: Any) -> SweepSpec:
    fields: dict[str, Any] = {"name": "p", "trainable": "m:f", "param_space": SPACE, "metric": "m"}
    return SweepSpec.model_validate(
        fields | {"mode": "min", "num_samples": 4, "seed": 1, "scheduler": "pb2"} | changes
    )


def test_a_spec_makes_it() -> None:
    made = make_scheduler(spec(scheduler={"pb2": {"perturbation_interval": 3, "max_t": 30}}))
    assert isinstance(made, Pb2Scheduler)
    assert made.max_t == 30.0
    assert made.to_json()["parameters"]["perturbation_interval"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"scheduler": {"pb2": {"hyperparam_bounds": ["act"]}}},
            "scheduler.pb2.hyperparam_bounds: 'act' is not a number within bounds that every config has;",
        ),
        ({"param_space": {"x": {"choice": [1, 2]}}}, "param_space: pb2 has nothing to explore in it"),
        ({"max_concurrent_trials": 2}, "max_concurrent_trials: pb2 compares trials that run at once"),
        ({"num_samples": None, "stop": {"time_budget_s": 9}}, "num_samples: "),
    ],
)
def test_a_spec_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        spec(**changes)
    assert str(error.value).startswith(message)


def test_what_where_forbids_is_not_explored() -> None:
    made = spec(
        where=["lr <= 0.05"], scheduler={"pb2": {"perturbation_interval": 1, "max_t": 12, "synch": True}}
    )
    outcome = simulate(made, lambda config, step: {"m": -config["lr"] * step}, slots=2, save_every=1).outcome
    assert all(trial.config["lr"] <= 0.05 for trial in outcome.trials)
    assert any(attempt.donor is not None for trial in outcome.trials for attempt in trial.attempts)


def test_it_finds_the_config_that_gains_most() -> None:
    """Each step gains by how near `lr` is to 0.03, from which the first configs are far away."""
    options = {"perturbation_interval": 2, "synch": True, "max_t": 40}

    def gain(config: Any, step: int) -> dict[str, float] | None:
        return {"m": step * (3 - abs(log10(config["lr"] / 0.03)))} if step <= 40 else None

    def last(scheduler: Any, seed: int) -> float:
        space = {"lr": {"loguniform": [1e-4, 1.0]}}
        made = spec(param_space=space, scheduler=scheduler, seed=seed, mode="max")
        best = simulate(made, gain, slots=4, save_every=1).outcome.best
        return float(best.score or 0.0) if best is not None else 0.0

    assert sum(last({"pb2": options}, seed) > last("fifo", seed) for seed in range(3)) >= 2
