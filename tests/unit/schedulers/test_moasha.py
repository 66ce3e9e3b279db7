"""MoashaScheduler: who stops at a rung of several metrics, against a sort that is written out plainly."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from raysweep.errors import SpecError
from raysweep.numeric.pareto import count_ahead, spread_out
from raysweep.schedulers import NOTHING, Stop, make_scheduler
from raysweep.schedulers.moasha import MoashaScheduler
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from tests.sampling import sampled

Points = Sequence[tuple[float, ...]]


class Plain:
    """What Syne Tune's `MOASHA` is meant to do, with every front and every distance written out."""

    def __init__(self, modes: Sequence[str], grace: int, max_t: int, eta: float) -> None:
        self.signs = np.array([-1.0 if mode == "max" else 1.0 for mode in modes])
        self.max_t, self.eta = max_t, eta
        count = int(np.log(max_t / grace) / np.log(eta) + 1)
        self.rungs: list[tuple[float, dict[int, Any]]] = [
            (grace * eta**k, {}) for k in reversed(range(count))
        ]

    def report(self, trial: int, time: float, values: Sequence[float]) -> bool:
        """Whether the trial stops."""
        if time >= self.max_t:
            return True
        for milestone, recorded in self.rungs:
            if time < milestone or trial in recorded:
                continue
            recorded[trial] = np.array(values) * self.signs
            order = sorted_plainly(np.array(list(recorded.values())))
            return len(recorded) > 1 and order.index(len(recorded) - 1) / len(recorded) > 1 / self.eta
        return False


def sorted_plainly(points: Any) -> list[int]:
    """Places, front by front, in each the least by the first number first and then the furthest."""
    rest, order = list(range(len(points))), []
    while rest:
        front = [a for a in rest if not any(dominates(points[b], points[a]) for b in rest)]
        chosen = [min(front, key=lambda each: points[each][0])]
        while len(chosen) < len(front):
            left = [each for each in front if each not in chosen]
            far = [np.linalg.norm(points[chosen] - points[each], axis=1).min() for each in left]
            chosen.append(left[int(np.argmax(far))])
        order += chosen
        rest = [each for each in rest if each not in front]
    return order


def dominates(a: Any, b: Any) -> bool:
    return bool((a <= b).all() and (a < b).any())


def place_by_place(points: Points) -> list[int]:
    """The same order by the engine's own count, the one that each point would have as the last one."""
    counts = [count_ahead([*points[:each], *points[each + 1 :], points[each]]) for each in range(len(points))]
    return sorted(range(len(points)), key=lambda each: counts[each])


@pytest.mark.parametrize("seed", range(60))
def test_points_are_sorted_as_plainly(seed: int) -> None:
    rng = random.Random(seed)
    width = rng.choice([1, 2, 2, 3, 4])
    points = [tuple(rng.gauss(0, 1) for _ in range(width)) for _ in range(rng.randrange(1, 30))]
    order = sorted_plainly(np.array(points))
    assert place_by_place(points) == order
    for most in range(len(points)):
        assert (count_ahead(points, most) > most) == (order.index(len(points) - 1) > most)


def test_a_front_is_spread_out_from_the_best_by_the_first_number() -> None:
    assert spread_out([(3.0, 0.0), (0.0, 3.0), (1.0, 2.0), (1.5, 1.5)]) == [1, 0, 3, 2]
    assert spread_out([(1.0, 1.0)] * 3) == [0, 1, 2], "equal ones in their order"


@pytest.mark.parametrize("first", sampled(range(0, 100, 10), lambda first: first < 30))
def test_stops_whom_the_plain_rule_stops(first: int) -> None:
    """Times jump and go back, trials end, and the state is written down and read back on the way."""
    assert sum(play(seed) for seed in range(first, first + 10)) > 100


def play(seed: int) -> int:
    """One stream; returns how many trials were stopped at a rung."""
    rng = random.Random(seed)
    modes: list[Any] = [rng.choice(["min", "max"]) for _ in range(rng.choice([2, 2, 3, 4]))]
    grace, max_t, eta = rng.choice([(1, 9, 3.0), (1, 16, 2.0), (2, 30, 2.5), (1, 100, 4.0)])

    def make() -> MoashaScheduler:
        return MoashaScheduler(modes=modes, grace_period=grace, max_t=max_t, reduction_factor=eta)

    ours, plain = make(), Plain(modes, grace, max_t, eta)
    times = dict.fromkeys(range(40), 0)
    good = {trial: rng.gauss(0, 1) for trial in times}
    stopped = 0
    while times:
        trial = rng.choice(list(times))
        times[trial] += rng.choice([1, 1, 1, 2, 5]) if rng.random() < 0.95 else -min(2, times[trial])
        time, values = times[trial], [good[trial] + rng.gauss(0, 1) for _ in modes]
        if rng.random() < 0.01:
            assert ours.end_several(trial, time, values) == NOTHING
            if time < max_t:
                plain.report(trial, time, values)
            del times[trial]
            continue
        decisions = ours.report_several(trial, time, values)
        assert bool(decisions) == plain.report(trial, time, values), (trial, time)
        if decisions:
            assert decisions == ((trial, Stop()),)
            stopped += time < max_t
            del times[trial]
        if rng.random() < 0.05:
            state = orjson.loads(orjson.dumps(ours.to_json()))
            ours = make()
            ours.from_json(state)
            assert ours.to_json() == state
    return stopped


def test_who_is_on_the_front_of_a_rung_is_not_stopped_for_being_worse_in_one_metric() -> None:
    scheduler = MoashaScheduler(modes=("min", "max"), max_t=9, reduction_factor=2)
    assert scheduler.report_several(0, 1, (0.1, 0.1)) == NOTHING
    assert scheduler.report_several(1, 1, (0.9, 0.9)) == NOTHING, "the other end of the front"
    assert scheduler.report_several(2, 1, (0.9, 0.1)) == ((2, Stop()),), "both are better in both"
    assert scheduler.report_several(2, 9, (0.0, 0.0)) == ((2, Stop()),)


def test_the_same_number_of_metrics_is_wanted() -> None:
    with pytest.raises(ValueError, match="argument"):
        MoashaScheduler(modes=("min", "max")).report(0, 1, 0.5)


@pytest.mark.parametrize("options", [{"max_t": 0.5}, {"reduction_factor": 1.0}, {"brackets": 0}])
def test_a_parameter_out_of_range_is_named(options: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=f"scheduler.moasha.{next(iter(options))}"):
        MoashaScheduler(modes=("min", "max"), **options)


def spec(**fields: Any) -> SweepSpec:
    plain: dict[str, Any] = {
        "name": "m",
        "trainable": "m:f",
        "metric": ["error", "speed"],
        "mode": ["min", "max"],
        "param_space": {"x": {"uniform": [0, 1]}},
        "num_samples": 12,
        "seed": 3,
        "scheduler": {"moasha": {"max_t": 9, "reduction_factor": 2, "brackets": 2}},
    }
    return SweepSpec.model_validate(plain | fields)


def test_it_takes_the_specs_options_and_directions() -> None:
    made = make_scheduler(spec())
    assert isinstance(made, MoashaScheduler)
    assert made.max_t == 9.0
    assert made.moves == frozenset({"stop"})
    assert made.to_json()["parameters"] == {
        "modes": ["min", "max"],
        "max_t": 9,
        "grace_period": 1,
        "reduction_factor": 2.0,
        "brackets": 2,
        "seed": 3,
    }


def test_a_sweep_of_it_keeps_both_ends_of_the_front() -> None:
    """Of error and speed, that are at odds, and of what is bad at both."""

    def curve(config: Any, step: int) -> dict[str, float]:
        x = config["x"]
        waste = 5.0 if 0.3 < x < 0.9 else 0.0
        return {"error": x + waste + 1 / step, "speed": x - waste}

    outcome = simulate(
        spec(num_samples=60, scheduler={"moasha": {"max_t": 8, "reduction_factor": 3}}), curve, slots=4
    ).outcome
    assert outcome.status == "completed"
    assert outcome.counts["stopped"] > 30
    # The first ones continue for want of others, as with ASHA.
    full = [trial.config["x"] for trial in outcome.trials if trial.state == "completed" and trial.number > 9]
    assert min(full) < 0.3
    assert max(full) > 0.9
    assert not any(0.3 < x < 0.9 for x in full)


def test_a_report_without_one_of_the_metrics_is_no_report_to_it() -> None:
    """Such a trial is measured at its next report, and nothing ends with it."""

    def curve(config: Any, step: int) -> dict[str, float]:
        both = {"error": config["x"] + 1 / step, "speed": config["x"]}
        return both if step % 2 == 0 else {"error": 9.0}

    outcome = simulate(spec(scheduler={"moasha": {"max_t": 8, "reduction_factor": 2}}), curve).outcome
    assert outcome.status == "completed"
    stopped = [trial.metrics["training_iteration"] for trial in outcome.trials if trial.state == "stopped"]
    assert stopped
    assert set(stopped) <= {2, 4}
