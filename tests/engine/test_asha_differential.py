"""Our ASHA decides exactly as Ray Tune's, report by report, on random streams. Starts no cluster."""

from __future__ import annotations

import math
import random
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

from raysweep.schedulers import NOTHING, Decisions, Stop
from raysweep.schedulers.asha import AshaScheduler
from raysweep.schedulers.machinery.rungs import percentile
from tests.sampling import sampled

pytest.importorskip("ray.tune")
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler


class RayAsha:
    """Ray Tune's scheduler behind our signatures, with our choice of bracket."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.inner: Any = AsyncHyperBandScheduler(time_attr="t", metric="m", **parameters)

    def add(self, trial: int, bracket: int) -> None:
        self.inner._trial_info[str(trial)] = self.inner._brackets[bracket]

    def report(self, trial: int, time: float, value: float) -> Decisions:
        handle = SimpleNamespace(trial_id=str(trial))
        decision = self.inner.on_trial_result(None, handle, {"t": time, "m": value})
        return ((trial, Stop()),) if decision == TrialScheduler.STOP else NOTHING

    def end(self, trial: int, time: float, value: float) -> None:
        self.inner.on_trial_complete(None, SimpleNamespace(trial_id=str(trial)), {"t": time, "m": value})

    def remove(self, trial: int) -> None:
        self.inner.on_trial_remove(None, SimpleNamespace(trial_id=str(trial)))


def random_parameters(rng: random.Random) -> dict[str, Any]:
    grace_period = rng.choice([1, 1, 1, 2, 3, 5, 0.5])
    return {
        "mode": rng.choice(["min", "max"]),
        "grace_period": grace_period,
        "max_t": grace_period + rng.choice([0, 2, 8, 26, 29, 80, 99, 11.5]),
        "reduction_factor": rng.choice([2, 3, 4, 3.0, 1.5, 2.9, math.e, 1.11]),
        "brackets": rng.choice([1, 1, 2, 3]),
        "stop_last_trials": rng.random() < 0.75,
    }


def random_value(rng: random.Random, kind: str) -> float:
    if kind == "ties":
        return float(rng.randrange(4))
    if kind == "integers":
        return rng.randrange(-50, 50)
    if kind == "wild":
        return rng.choice([math.inf, -math.inf, 1e308, -1e308, 0.0, -0.0, rng.random()])
    if kind == "nan":
        return rng.choice([math.nan, rng.random(), rng.random()])
    return rng.gauss(0, 1) * 10.0 ** rng.randrange(-6, 6)


def next_time(rng: random.Random, time: float, kind: str) -> float:
    if rng.random() < 0.05:
        return time  # the same time twice
    if rng.random() < 0.04:
        return max(1.0, time - rng.randrange(1, 6))  # restarted from a checkpoint
    if kind == "jumps":
        return time + rng.choice([1, 1, 2, 5, 20])
    if kind == "seconds":
        return time + rng.random() * 3
    return time + 1


def reload(ours: AshaScheduler, parameters: dict[str, Any], seed: int) -> AshaScheduler:
    fresh = AshaScheduler(seed=seed, **parameters)
    fresh.from_json(orjson.loads(orjson.dumps(ours.to_json())))
    assert fresh.to_json() == ours.to_json()
    return fresh


@pytest.mark.parametrize("seed", sampled(range(400), lambda seed: seed % 4 == 0))
def test_decides_as_ray(seed: int) -> None:
    """Every decision of a random stream is Ray's, also when our state is dumped and loaded in between."""
    rng = random.Random(seed)
    parameters = random_parameters(rng)
    values = rng.choice(["gauss", "gauss", "ties", "integers", "wild", "nan"])
    times = rng.choice(["steps", "steps", "jumps", "seconds"])
    ours, ray = AshaScheduler(seed=seed, **parameters), RayAsha(parameters)
    waiting = list(range(rng.randrange(5, 60)))
    running: dict[int, float] = {}
    stops = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy: all-NaN rungs and infinite gaps
        while waiting or running:
            if waiting and (len(running) < 8 or rng.random() < 0.1):
                trial = waiting.pop(0)
                running[trial] = 0.0
                ours.add(trial, {})
                ray.add(trial, ours.bracket(trial))
            trial = rng.choice(list(running))
            time, value = next_time(rng, running[trial], times), random_value(rng, values)
            draw = rng.random()
            if draw < 0.01:
                ours.end(trial, time, value)
                ray.end(trial, time, value)
                del running[trial]
            elif draw < 0.015:
                ours.remove(trial)
                ray.remove(trial)
                del running[trial]
                if rng.random() < 0.5:
                    waiting.append(trial)
            else:
                running[trial] = time
                decision = ours.report(trial, time, value)
                assert decision == ray.report(trial, time, value), (trial, time, value)
                if decision:
                    stops += 1
                    del running[trial]
            if time > 3 * parameters["max_t"] and trial in running:
                del running[trial]
            if rng.random() < 0.01:
                ours = reload(ours, parameters, seed)
    # A stream in which nothing is ever stopped would compare nothing.
    assert stops > 0 or not parameters["stop_last_trials"] or values == "nan"


@pytest.mark.parametrize("seed", range(20))
def test_percentile_is_numpys(seed: int) -> None:
    """The cutoff equals numpy's to the last bit."""
    rng = random.Random(seed)
    for _ in range(200):
        values = [random_value(rng, rng.choice(["gauss", "ties"])) for _ in range(rng.randrange(1, 80))]
        factor = rng.choice([2, 3, 4, 1.5, 2.7, 1.1, 7])
        percentage = (1 - 1 / factor) * 100
        expected = float(np.nanpercentile(values, percentage))
        assert percentile(sorted(values), percentage / 100) == expected


def test_rungs_are_rays() -> None:
    """The milestones equal Ray's for every bracket."""
    for max_t in [1, 2, 3, 9, 10, 26, 27, 28, 81, 100, 243, 729, 1000]:
        for factor in [1.5, 2, 3, 4, 5, 10]:
            for grace_period in [1, 2, 5]:
                if grace_period > max_t:
                    continue
                parameters: dict[str, Any] = {
                    "max_t": max_t,
                    "reduction_factor": factor,
                    "grace_period": grace_period,
                    "brackets": 3,
                }
                ours = AshaScheduler(mode="max", **parameters).to_json()["rungs"]
                ray = AsyncHyperBandScheduler(metric="m", mode="max", **parameters)._brackets
                assert [[rung["milestone"] for rung in rungs] for rungs in ours] == [
                    [milestone for milestone, _ in reversed(bracket._rungs)] for bracket in ray
                ]
