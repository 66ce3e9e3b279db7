"""Our HyperBand halves brackets as Ray Tune's does, trial by trial. Starts no cluster.

Where it is meant to differ (`raysweep.schedulers.hyperband`), Ray's is given what ours has: the order of the
brackets, and brackets that have all of their trials before they are halved. Trials report every time:
of those that jump over a rung, Ray may leave all waiting for each other.
"""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from raysweep.schedulers import Pause, Resume, Stop
from raysweep.schedulers.hyperband import HyperBandScheduler
from raysweep.schedulers.machinery.brackets import bracket_size, halvings, milestone

pytest.importorskip("ray.tune")
from ray.tune.experiment import Trial
from ray.tune.schedulers import HyperBandScheduler as Rays


class Handle:
    """A trial as Ray's scheduler sees it."""

    is_saving = False

    def __init__(self, number: int) -> None:
        self.number = number
        self.trial_id = str(number)
        self.status = Trial.PENDING


class RayHyperBand:
    """Ray Tune's scheduler, its trials in our brackets; it is the controller that it talks to as well."""

    def __init__(self, max_t: int, eta: float, mode: str) -> None:
        self.inner: Any = Rays(
            time_attr="t", metric="m", mode=mode, max_t=max_t, reduction_factor=eta, stop_last_trials=True
        )
        self.handles: dict[int, Handle] = {}
        self.stopped: set[int] = set()

    def add_bracket(self, s: int, trials: list[int]) -> None:
        bracket = self.inner._create_bracket(s)
        for number in trials:
            handle = self.handles[number] = Handle(number)
            bracket.add_trial(handle)
            self.inner._trial_info[handle] = bracket, 0

    def stop_trial(self, handle: Handle) -> None:
        """What the controller does with a trial that does not run."""
        handle.status = Trial.TERMINATED
        self.stopped.add(handle.number)
        self.inner.on_trial_remove(self, handle)

    def report(self, trial: int, time: float, value: float) -> str:
        handle = self.handles[trial]
        handle.status = Trial.RUNNING
        action: str = self.inner.on_trial_result(self, handle, {"t": time, "m": value})
        handle.status = {"PAUSE": Trial.PAUSED, "STOP": Trial.TERMINATED}.get(action, handle.status)
        return action

    def end(self, trial: int) -> None:
        handle = self.handles[trial]
        handle.status = Trial.TERMINATED
        # Ray sets this with the first halving and never clears it: trials would wait for one that has ended.
        self.inner._trial_info[handle][0].is_being_processed = False
        self.inner.on_trial_complete(self, handle, {})

    def take_resumed(self) -> set[int]:
        found = set()
        for bracket, _ in self.inner._trial_info.values():
            for handle in bracket.trials_to_unpause:
                if handle.status == Trial.PAUSED:
                    handle.status = Trial.PENDING
                    found.add(handle.number)
        return found


@pytest.mark.parametrize(("max_t", "eta"), [(27, 3), (81, 3), (9, 3), (16, 2), (64, 4), (8, 2.0), (2, 2)])
def test_brackets_and_rungs_are_rays(max_t: int, eta: float) -> None:
    """Where `max_t` is a power of the reduction factor."""
    inner: Any = Rays(time_attr="t", metric="m", mode="max", max_t=max_t, reduction_factor=eta)
    s_max = halvings(max_t, eta)
    assert s_max == inner._s_max_1 - 1
    for s in range(s_max + 1):
        assert bracket_size(s, s_max, eta) == inner._get_n0(s)
        bracket = inner._create_bracket(s)
        for left in range(s, -1, -1):
            assert milestone(max_t, eta, left) == bracket._cumul_r
            if left:
                bracket.successive_halving("m", 1.0)


@pytest.mark.parametrize("seed", range(120))
def test_halves_as_ray(seed: int) -> None:
    rng = random.Random(seed)
    max_t, eta = rng.choice([(27, 3), (9, 3), (16, 2), (16, 4), (8, 2), (81, 3)])
    mode = rng.choice(["min", "max"])
    ours, ray = (
        HyperBandScheduler(mode=mode, max_t=max_t, reduction_factor=eta),
        RayHyperBand(max_t, eta, mode),
    )
    number, s_max = 0, halvings(max_t, eta)
    for s in range(s_max, -1, -1):
        trials = list(range(number, number + bracket_size(s, s_max, eta)))
        ray.add_bracket(s, trials)
        for trial in trials:
            ours.add(trial, {})
        number += len(trials)
    times, running, decided = dict.fromkeys(range(number), 0), list(range(number)), 0
    while running:
        trial = rng.choice(running)
        times[trial] = time = times[trial] + 1
        own = ""
        if time == max_t or rng.random() < 0.01:
            decisions = ours.end(trial, time, 0.0)
            ray.end(trial)
            running.remove(trial)
        else:
            value = rng.gauss(0, 1)
            decisions = ours.report(trial, time, value)
            verdict = {Stop(): "STOP", Pause(): "PAUSE", Resume(): "CONTINUE"}
            own = next((verdict[v] for n, v in decisions if n == trial), "CONTINUE")
            assert own == ray.report(trial, time, value), (trial, time)
        stopped = {n for n, v in decisions if v == Stop() and n != trial}
        resumed = {n for n, v in decisions if v == Resume() and n != trial}
        assert (stopped, resumed) == (ray.stopped, ray.take_resumed())
        ray.stopped = set()
        if own in ("STOP", "PAUSE"):
            running.remove(trial)
        running += sorted(resumed)
        decided += len(stopped) + len(resumed)
        if rng.random() < 0.02:
            state = orjson.loads(orjson.dumps(ours.to_json()))
            ours = HyperBandScheduler(mode=mode, max_t=max_t, reduction_factor=eta)
            ours.from_json(state)
            assert ours.to_json() == state
    assert decided
    assert not [n for n, handle in ray.handles.items() if handle.status != Trial.TERMINATED]
