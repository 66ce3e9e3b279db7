"""Our PB2 knows what Ray Tune's knows, and its process says what Ray's says of the same data."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from raysweep.schedulers.machinery.bandit import Kernel, Process, fit, standardised, upper_bound
from raysweep.schedulers.pb2 import Pb2Scheduler
from raysweep.schedulers.pbt import Population
from raysweep.space.parsed import normalise
from raysweep.space.perturbation import bounded_leaves

pytest.importorskip("ray.tune")
pytest.importorskip("sklearn")
import numpy as np
import pandas as pd
from sklearn.gaussian_process import GaussianProcessRegressor

from tests.insides import pb2_insides

ray_pb2, pb2_utils = pb2_insides()


def some_data(seed: int) -> tuple[list[list[float]], list[float]]:
    rng = random.Random(seed)
    count = rng.randrange(4, 30)
    rows = [[rng.random() for _ in range(4)] for _ in range(count)]
    return rows, [math.sin(5 * row[2]) + row[3] + rng.gauss(0, 0.1) for row in rows]


@pytest.mark.parametrize("seed", range(20))
def test_the_process_and_its_bound_are_rays(seed: int) -> None:
    """With the same parameters: mean, variance and upper bound at random points, and with pending ones."""
    rows, results = some_data(seed)
    rng = random.Random(-seed - 1)
    variance, length, epsilon = rng.uniform(0.5, 2), rng.uniform(0.1, 2), rng.uniform(0.01, 0.5)

    def of_ray(given: Any, found: Any) -> Any:
        kernel = pb2_utils.TV_SquaredExp(variance=variance, lengthscale=length, epsilon=epsilon)
        process = GaussianProcessRegressor(kernel=kernel, optimizer=None, alpha=0.01 * variance)
        return process.fit(np.array(given), np.array(found))

    y = standardised(results)
    assert y == pytest.approx(pb2_utils.standardize(np.array(results)).tolist())
    fixed, pending = [rng.random(), rng.random()], [[rng.random(), rng.random()] for _ in range(3)]
    behind = [[*fixed, *each] for each in pending]
    ray = of_ray(rows, y)
    surer = of_ray([*rows, *behind], [*y, 0.0, 0.0, 0.0])
    ours = Process(Kernel(variance, length, epsilon), rows, y).with_pending(behind)
    for _ in range(20):
        places = [rng.random(), rng.random()]
        mean, spread = ours.at([*fixed, *places])
        assert mean == pytest.approx(ray.predict([[*fixed, *places]])[0], abs=1e-8)
        assert spread == pytest.approx(
            surer.predict([[*fixed, *places]], return_std=True)[1][0] ** 2, abs=1e-7
        )
        bound = pb2_utils.UCB(ray, surer, np.array(places), np.array(fixed))
        assert upper_bound(mean, spread, len(rows)) == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_the_fitted_process_is_likelier_than_the_one_that_ray_begins_with(seed: int) -> None:
    """And its likelihood, up to a constant, is what scikit-learn says of the same kernel."""
    rows, results = some_data(seed)
    y = standardised(results)
    found = fit(rows, y)
    own = found.kernel
    constant = len(rows) / 2 * math.log(2 * math.pi)
    likelihoods = []
    for variance, length, epsilon in ((own.variance, own.length, own.epsilon), (1.0, 1.0, 0.1)):
        kernel = pb2_utils.TV_SquaredExp(variance=variance, lengthscale=length, epsilon=epsilon)
        process = GaussianProcessRegressor(kernel=kernel, optimizer=None, alpha=own.noise * variance)
        likelihoods.append(process.fit(np.array(rows), np.array(y)).log_marginal_likelihood_value_)
    assert found.log_likelihood - constant == pytest.approx(likelihoods[0], abs=1e-6)
    assert likelihoods[0] > likelihoods[1] - 1.0


@pytest.mark.parametrize("seed", range(20))
def test_the_process_is_told_what_rays_is_told(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stream with its exploits: changes, scores before them and times are the rows that Ray makes.

    Ray mixes what a trial reported before and after it was replaced where the config is the same: here a
    `turn` tells them apart.
    """
    rng = random.Random(seed)
    leaves = bounded_leaves(normalise({"x": {"uniform": [0, 1]}}))
    ours = Pb2Scheduler(mode="max", population=Population(perturbation_interval=1), leaves=leaves, seed=seed)
    trials = 5
    for trial in range(trials):
        ours.add(trial, {"x": trial / 5})
    configs: dict[int, float] = {trial: trial / 5 for trial in range(trials)}
    times = dict.fromkeys(range(trials), 0)
    columns = ["Trial", "Time", "x", "turn", "Reward"]
    turns = dict.fromkeys(range(trials), 0)
    table: list[list[Any]] = []
    for _ in range(35):
        trial = rng.choice(range(trials))
        times[trial] += 1
        value = rng.gauss(0, 1)
        table.append([str(trial), times[trial], configs[trial], turns[trial], value])
        for _, verdict in ours.report(trial, times[trial], value):
            donor = verdict.donor  # type: ignore[union-attr]
            configs[trial] = verdict.config["x"]  # type: ignore[union-attr,index,assignment]
            times[trial] = times[donor]
            turns[trial] += 1
            scores = [row for row in table if row[0] == str(donor)]
            if scores:
                table.append([str(trial), times[trial], configs[trial], turns[trial], scores[-1][-1]])
    seen: list[Any] = []

    def select(rows: Any, y: Any, *_: Any, **__: Any) -> Any:
        seen.extend(zip(rows.tolist(), y.tolist(), strict=True))
        return np.array([0.5, 0.0])

    monkeypatch.setattr(ray_pb2, "_select_config", select)
    state, bounds = ours.to_json()["changes"], {"x": (0, 1), "turn": (0, 1)}
    base = state[-1][0]
    ray_pb2._explore(pd.DataFrame(table, columns=columns), bounds, None, base, 99, {"x": 0.5, "turn": 0})
    told = [(time, round(rate, 6), before, places[0]) for _, time, before, rate, places in state]
    rays = [(time, round(y, 6), before, x) for (time, before, x, _), y in seen]
    assert len(told) > 10
    assert np.array(sorted(told)) == pytest.approx(np.array(sorted(rays)), abs=1e-5)
