"""Our median stopping rule decides exactly as Ray Tune's, report by report. Starts no cluster."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from raysweep.schedulers import NOTHING, Decisions, Pause, Stop
from raysweep.schedulers.median_stopping import MedianScheduler

pytest.importorskip("ray.tune")
from ray.tune.schedulers import MedianStoppingRule, TrialScheduler


class Handle(str):
    """A trial, as far as the rule looks at it: something hashable with an id."""

    @property
    def trial_id(self) -> str:
        return str(self)


class RayMedian:
    """Ray Tune's rule behind our signatures; no trial waits, so none ever yields its slot."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.inner: Any = MedianStoppingRule(time_attr="t", metric="m", **parameters)
        self.controller = SimpleNamespace(get_live_trials=list)

    def report(self, trial: int, time: float, value: float) -> Decisions:
        decision = self.inner.on_trial_result(self.controller, Handle(trial), {"t": time, "m": value})
        verdicts = {TrialScheduler.STOP: Stop(), TrialScheduler.PAUSE: Pause()}
        return ((trial, verdicts[decision]),) if decision in verdicts else NOTHING

    def end(self, trial: int, time: float, value: float) -> None:
        self.inner.on_trial_complete(self.controller, Handle(trial), {"t": time, "m": value})


def random_parameters(rng: random.Random) -> dict[str, Any]:
    return {
        "mode": rng.choice(["min", "max"]),
        "grace_period": rng.choice([0, 1, 1, 3, 5, 2.5]),
        "min_samples_required": rng.choice([1, 2, 3, 3, 6]),
        "hard_stop": rng.random() < 0.6,
    }


def random_value(rng: random.Random, kind: str) -> float:
    if kind == "ties":
        return float(rng.randrange(4))
    return rng.randrange(-50, 50) if kind == "integers" else float(rng.gauss(0, 1))


def next_time(rng: random.Random, time: float, kind: str) -> float:
    if kind == "jumps":
        return time + rng.choice([1, 1, 2, 5])
    return time + rng.random() * 3 if kind == "seconds" else time + 1


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[pytest.mark.slow] if first % 30 else []) for first in range(0, 300, 10)],
)
def test_decides_as_ray(first: int) -> None:
    """Every decision of random streams is Ray's, also when our state is dumped and loaded in between.

    With `ties` and `integers` all sums are exact; else Ray adds pairwise, which can differ in the last bit,
    but no mean then lies so near to a best.
    """
    # Streams in which nothing is decided compare nothing.
    assert sum(play(seed) for seed in range(first, first + 10)) > 10


def play(seed: int) -> int:
    """One stream; returns how many trials were stopped or paused."""
    rng = random.Random(seed)
    parameters = random_parameters(rng)
    values = rng.choice(["gauss", "ties", "integers"])
    times = rng.choice(["steps", "steps", "jumps", "seconds"])
    ours, ray = MedianScheduler(**parameters), RayMedian(parameters)
    waiting = list(range(rng.randrange(8, 40)))
    running: dict[int, float] = {}
    decided = 0
    while waiting or running:
        if waiting and len(running) < 6:
            running[waiting.pop(0)] = 0.0
        trial = rng.choice(list(running))
        time = next_time(rng, running[trial], times)
        # A third of the trials is worse than the rest, so that there is something to decide.
        handicap = (trial % 3 == 2) * (-3 if parameters["mode"] == "max" else 3)
        value = random_value(rng, values) * (1 if values == "ties" else 0.5) + handicap
        running[trial] = time
        if rng.random() < 0.02 or time > 30:
            ours.end(trial, time, value)
            ray.end(trial, time, value)
            del running[trial]
            continue
        decision = ours.report(trial, time, value)
        assert decision == ray.report(trial, time, value), (trial, time, value)
        decided += bool(decision)
        if decision and parameters["hard_stop"]:
            del running[trial]
        if rng.random() < 0.02:
            state = ours.to_json()
            ours = MedianScheduler(**parameters)
            ours.from_json(orjson.loads(orjson.dumps(state)))
            assert ours.to_json() == state
    return decided
