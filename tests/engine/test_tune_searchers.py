"""Searchers that Ray Tune brings, each with its own package: a sweep by each, killed and resumed.

Most packages are in no extra; `make test-searchers` builds an environment with them. Where one is not there,
its tests say so.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from raysweep.runs.policies import load_policies
from raysweep.simulate import Kill, Simulated, simulate
from raysweep.specs import SweepSpec
from tests.unit.simulate.exactness import kills_of
from tests.unit.simulate.sweeps import shown

# What they warn of is between them and Ray.
pytestmark = pytest.mark.filterwarnings("ignore")
TRIALS = 24
MIXED: dict[str, Any] = {
    "x": {"uniform": [-1.0, 2.0]},
    "lr": {"loguniform": [1e-4, 1.0]},
    "width": {"randint": [1, 9]},
    "kind": {"choice": ["good", "bad"]},
}
NUMBERS: dict[str, Any] = {"x": MIXED["x"], "lr": {"uniform": [1e-4, 1.0]}}


@dataclass(frozen=True)
class Case:
    """`package`: by its import name; `home`: where the class is."""

    name: str
    package: str
    options: dict[str, Any] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=lambda: MIXED)
    home: str = "ray.tune.search"

    @property
    def search(self) -> Any:
        return {f"{self.home}.{self.name}": self.options}


CASES = [
    Case("bayesopt:BayesOptSearch", "bayes_opt", space=NUMBERS),
    Case("bohb:TuneBOHB", "hpbandster"),
    Case("hyperopt:HyperOptSearch", "hyperopt", {"n_initial_points": 8}),
    Case("nevergrad_search:OnePlusOne", "nevergrad", home="tests.engine"),
    Case("optuna:OptunaSearch", "optuna"),
    Case("zoopt:ZOOptSearch", "zoopt", {"budget": TRIALS}, NUMBERS),
]


def curve(config: Mapping[str, Any], step: int) -> Mapping[str, Any] | None:
    """Least, 0, at x = 0.5 and, in the mixed space, a good kind of width 4 with a rate of 0.01."""
    far = (config["x"] - 0.5) ** 2
    if "kind" in config:
        far += 0.1 * (math.log10(config["lr"]) + 2) ** 2 + 0.01 * (config["width"] - 4) ** 2
        far += config["kind"] != "good"
    return {"loss": far + 0.1 * (2 - step)} if step <= 2 else None


def run(case: Case, *kills: Kill) -> Simulated:
    if importlib.util.find_spec(case.package) is None:
        pytest.skip(
            f"{case.package} is not installed here: `make test-searchers` builds an environment with it"
        )
    spec = SweepSpec(
        name="others",
        trainable="tests.engine.test_tune_searchers:curve",
        metric="loss",
        mode="min",
        num_samples=TRIALS,
        max_concurrent_trials=1,
        seed=1,
        search=case.search,
        param_space=case.space,
    )
    load_policies(spec)
    return simulate(spec, curve, slots=1, kills=kills)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_sweep_by_it_finds_something_and_goes_on_the_same_when_killed(case: Case) -> None:
    whole = run(case)
    outcome = whole.outcome
    assert outcome.counts == {"completed": TRIALS}
    assert outcome.best.score is not None
    assert outcome.best.score < 0.3
    assert all(-1 <= trial.config["x"] <= 2 for trial in outcome.trials)
    assert len({trial.config["x"] for trial in outcome.trials}) > TRIALS / 2
    for kill in Random(case.name).sample(kills_of(whole), 3):
        resumed = run(case, kill)
        assert resumed.fired == (kill,)
        assert shown(resumed) == shown(whole)
