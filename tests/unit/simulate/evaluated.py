"""The sweeps of `exactness` and `chaos` with evaluation apart from training: a judge says the loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from raysweep.simulate import Kill, Simulated, WorkerDied, simulate
from tests.unit.simulate.chaos import Drawn, check
from tests.unit.simulate.exactness import EXACT, Curve

Config = Mapping[str, Any]


def loss_of(config: Config, iteration: int) -> dict[str, Any]:
    """What the trainable of `exactness` and of `chaos` would have reported."""
    return {"loss": round((config["x"] - 0.3) ** 2 + config["x"] / iteration, 6)}


class Judge:
    """Its process dies now and then, twice in a row at most: one that is tried three times gives the loss."""

    def __init__(self, random: Random, rate: float) -> None:
        self._random = random
        self._rate = rate
        self._deaths: Counter[tuple[float, int]] = Counter()

    def __call__(self, config: Config, iteration: int) -> Mapping[str, Any]:
        which = config["x"], iteration
        if self._deaths[which] < 2 and self._random.random() < self._rate:
            self._deaths[which] += 1
            raise WorkerDied("killed by signal 9")
        self._deaths[which] = 0
        return loss_of(config, iteration)


def run_at_once(name: str) -> Simulated:
    """A sweep of `exactness` that reports its loss itself."""
    exact = EXACT[name]
    return simulate(exact.spec, Curve(exact.name.split("-")[2]), is_checked=True, save_every=1)


def run_apart(name: str, *kills: Kill, ahead: int, evaluate_s: float, rate: float) -> Simulated:
    """The same, where a judge says the loss, slowly."""
    exact = EXACT[name]
    curve = Curve(exact.name.split("-")[2])

    def train(config: Config, iteration: int) -> Mapping[str, Any] | None:
        return _without_loss(curve(config, iteration))

    return simulate(
        exact.spec.replace(evaluate={"trainable": "judges:judge", "ahead": ahead}),
        train,
        evaluation=Judge(Random(name), rate),
        evaluate_s=evaluate_s,
        kills=kills,
        is_checked=True,
        save_every=1,
    )


def _without_loss(row: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """NaN stays: who reports it has no checkpoint worth a judge's time."""
    if row is None or row["loss"] == "NaN":
        return row
    return {key: value for key, value in row.items() if key != "loss"} or {"step": 1}


def run_chaos(seed: int) -> Counter[str]:
    """A sweep of `chaos` with a judge that fails; which faults fired, and how the sweep ended."""
    drawn, random = Drawn.of(seed), Random(seed)
    if drawn.spec.stop.trial_time_s is not None:
        return Counter(refused=1)
    evaluate = {
        "trainable": "judges:judge",
        "ahead": random.choice([0, 1, 3]),
        "slots": random.choice([1, 2]),
        "tries": random.choice([1, 3]),
        "every": random.choice([1, 1, 2]),
    }
    drawn = replace(drawn, spec=drawn.spec.replace(evaluate=evaluate))
    simulated = simulate(
        drawn.spec,
        lambda config, iteration: _without_loss(drawn.trainable(config, iteration)),
        evaluation=Judge(random, random.choice([0.0, 0.1, 0.5])),
        evaluate_s=random.choice([0.01, 1.0, 8.0]),
        is_checked=True,
        seed=seed,
        nodes=drawn.nodes,
        disturb=drawn.disturber,
        **drawn.options | {"save_every": max(1, drawn.options["save_every"])},
    )
    fired = drawn.faults.fired
    # A trial none of whose checkpoints could be evaluated has no result.
    fired["trial raise"] += sum(
        attempt.error is not None and attempt.error.type == "MetricNeverReported"
        for trial in simulated.outcome.trials
        for attempt in trial.attempts
    )
    check(drawn, simulated)
    return fired + Counter({simulated.outcome.status: 1})
