"""Our PBT replaces the trials that Ray Tune's does, by donors that Ray might choose, and explores alike."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from raysweep.schedulers import Exploit
from raysweep.schedulers.pbt import PbtScheduler, Population
from raysweep.space.parsed import normalise
from raysweep.space.perturbation import explore, mutable_leaves

pytest.importorskip("ray.tune")
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import PopulationBasedTraining

from tests.insides import pbt_insides

ray_explore, RayTrialState = pbt_insides()


class Handle:
    """A trial as Ray's scheduler sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.status = Trial.RUNNING
        self.experiment_tag = ""

    def is_finished(self) -> bool:
        return self.status == Trial.TERMINATED


class RayPbt(PopulationBasedTraining):
    """Ray's scheduler up to the moment at which it would store and copy checkpoints."""

    def __init__(self, **parameters: Any) -> None:
        # Ray wants something to mutate; what is explored is compared by itself.
        super().__init__(time_attr="t", metric="m", hyperparam_mutations={"x": [1]}, **parameters)
        self.handles: dict[int, Handle] = {}
        self.controller = SimpleNamespace(get_trials=lambda: list(self.handles.values()))
        self.found: tuple[list[int], list[int]] | None = None

    def add(self, trial: int) -> None:
        handle = self.handles[trial] = Handle(trial)
        self._trial_state[handle] = RayTrialState(handle)

    def report(self, trial: int, time: float, value: float) -> tuple[list[int], list[int]] | None:
        """The quantiles, if Ray looked at them."""
        self.found = None
        self.on_trial_result(self.controller, self.handles[trial], {"t": time, "m": value})
        return self.found

    def _checkpoint_or_exploit(
        self, trial: Any, tune_controller: Any, upper_quantile: Any, lower_quantile: Any
    ) -> None:
        self.found = [each.number for each in lower_quantile], [each.number for each in upper_quantile]

    def exploit(self, trial: int, donor: int) -> None:
        """What Ray's `_exploit` does to its own state."""
        taker, giver = self._trial_state[self.handles[trial]], self._trial_state[self.handles[donor]]
        taker.last_perturbation_time = giver.last_perturbation_time
        taker.last_train_time = giver.last_train_time


@pytest.mark.parametrize("first", range(0, 150, 10))
def test_replaces_as_ray(first: int) -> None:
    """Trials come and go, go back after a failure, and our state is written down and read back on the way."""
    assert sum(play(seed) for seed in range(first, first + 10)) > 50


def play(seed: int) -> int:
    """One stream; returns how many trials were replaced."""
    rng = random.Random(seed)
    parameters: dict[str, Any] = {
        "perturbation_interval": rng.choice([1, 2, 5, 2.5]),
        "burn_in_period": rng.choice([0, 0, 4]),
        "quantile_fraction": rng.choice([0.25, 0.25, 0.5, 0.1, 0.4, 0]),
    }
    mode = rng.choice(["min", "max"])

    def make() -> PbtScheduler:
        leaves = mutable_leaves({"x": {"uniform": [0, 1]}})
        return PbtScheduler(mode=mode, population=Population(**parameters, leaves=leaves), seed=seed)

    ours, ray = make(), RayPbt(mode=mode, **parameters)
    times = dict.fromkeys(range(rng.randrange(2, 14)), 0)
    for trial in times:
        ours.add(trial, {"x": trial / 20})
        ray.add(trial)
    exploits = 0
    for _ in range(300):
        trial = rng.choice(list(times))
        times[trial] += 1 if rng.random() < 0.97 else -min(3, times[trial])
        if rng.random() < 0.003 and len(times) > 1:
            ours.end(trial, times[trial], 0.0)
            ray.handles[trial].status = Trial.TERMINATED
            del times[trial]
            continue
        value = rng.gauss(0, 1)
        decisions = ours.report(trial, times[trial], value)
        found = ray.report(trial, times[trial], value)
        assert bool(decisions) == (found is not None and trial in found[0]), (trial, times[trial])
        if found is not None:
            assert ours.quantiles() == found
        for number, verdict in decisions:
            assert number == trial
            assert isinstance(verdict, Exploit)
            assert found is not None
            assert verdict.donor in found[1]
            ray.exploit(trial, verdict.donor)
            times[trial] = times[verdict.donor]
            exploits += 1
        if rng.random() < 0.02:
            state = orjson.loads(orjson.dumps(ours.to_json()))
            ours = make()
            ours.from_json(state)
            assert ours.to_json() == state
    return exploits


def test_every_donor_of_the_upper_quantile_is_chosen_alike() -> None:
    donors = [0, 0]
    for seed in range(2000):
        population = Population(perturbation_interval=1, leaves=mutable_leaves({"x": {"uniform": [0, 1]}}))
        scheduler = PbtScheduler(mode="max", population=population, seed=seed)
        for trial in range(8):
            scheduler.add(trial, {"x": 0.5})
        for trial in range(7, -1, -1):
            decisions = scheduler.report(trial, 1, float(trial))
        ((number, verdict),) = decisions
        assert isinstance(verdict, Exploit)
        assert (number, verdict.donor in (6, 7)) == (0, True)
        donors[verdict.donor - 6] += 1
    assert abs(donors[0] - 1000) < 4 * math.sqrt(500)


SPACE = normalise(
    {
        "a": {"choice": [1, 10, 100, 1000]},
        "b": {"uniform": [-1e9, 1e9]},
        "c": {"d": {"randint": [-(10**6), 10**6]}, "e": {"choice": ["x", "y"]}},
    }
)
# The same for Ray, where a list is what a choice is here.
MUTATIONS = {
    "a": [1, 10, 100, 1000],
    "b": tune.uniform(-1e9, 1e9),
    "c": {"d": tune.randint(-(10**6), 10**6), "e": ["x", "y"]},
}


@pytest.mark.parametrize("seed", range(200))
def test_perturbs_as_ray_draw_by_draw(seed: int) -> None:
    """With the same generator, config for config, over several generations."""
    ours: Any = {"a": 100, "b": 0.25, "c": {"d": 40, "e": "y"}, "f": "kept"}
    ray = ours
    state = random.getstate()
    try:
        for generation in range(8):
            number = seed * 100 + generation
            ours = explore(
                ours, mutable_leaves(SPACE), number, resample_probability=0.0, factors=(1.2, 0.8, 2.0)
            )
            random.seed(number)
            ray, _ = ray_explore(ray, MUTATIONS, 0.0, (1.2, 0.8, 2.0), None)
            assert ours == ray
    finally:
        random.setstate(state)


def test_draws_anew_as_often_as_ray_and_from_the_same_distribution() -> None:
    """Ray draws domains with NumPy's generator, so here only frequencies agree."""
    config = {"a": 100, "b": 0.25, "c": {"d": 40, "e": "y"}}
    runs, options = 4000, {"resample_probability": 0.25, "factors": (1.2, 0.8)}
    ours: list[Any] = [explore(config, mutable_leaves(SPACE), n, **options) for n in range(runs)]
    ray: list[Any] = [ray_explore(config, MUTATIONS, 0.25, (1.2, 0.8), None)[0] for _ in range(runs)]
    counted = {
        "anew": lambda found: found["b"] not in (0.25 * 1.2, 0.25 * 0.8),
        "positive": lambda found: found["b"] > 1.0,
        "up": lambda found: found["b"] == 0.25 * 1.2,
        "whole": lambda found: found["c"]["d"] == 48,
        "far": lambda found: found["c"]["d"] > 10**5,
        "neighbour": lambda found: found["a"] == 1000,
        "other": lambda found: found["a"] == 1,
    }
    for name, test in counted.items():
        first, second = (sum(map(test, each)) / runs for each in (ours, ray))
        sigma = math.sqrt(2 * max(first * (1 - first), 1e-4) / runs)
        assert abs(first - second) < 4.5 * sigma, name
