"""Each scheduler through the contract suite; and the suite notices what it is there for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from raysweep.schedulers import (
    NOTHING,
    Decisions,
    Exploit,
    Move,
    Pause,
    PolicySetup,
    Resume,
    Scheduler,
    Stop,
    make_scheduler,
)
from raysweep.schedulers.asha import AshaScheduler
from raysweep.schedulers.base import Config
from raysweep.schedulers.hyperband import HyperBandScheduler
from raysweep.schedulers.machinery.promotion import PromotionScheduler
from raysweep.schedulers.median_stopping import MedianScheduler
from raysweep.schedulers.moasha import MoashaScheduler
from raysweep.schedulers.pasha import PashaScheduler
from raysweep.schedulers.pb2 import Pb2Scheduler
from raysweep.schedulers.pbt import PbtScheduler, Population
from raysweep.schedulers.registry import KINDS
from raysweep.schedulers.resource_changing import ResourceChangingScheduler
from raysweep.space.perturbation import bounded_leaves, mutable_leaves
from raysweep.specs import SweepSpec
from raysweep.testing.scheduler_contract import SchedulerContract
from tests import policies


class TestFifo(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return Scheduler()


class TestAsha(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return AshaScheduler(mode="min", max_t=9, grace_period=1, reduction_factor=2)


class TestAshaInBrackets(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return AshaScheduler(mode="max", max_t=12, grace_period=1, reduction_factor=2, brackets=3, seed=5)


class TestMedian(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return MedianScheduler(mode="min", grace_period=2)


class TestMedianThatPauses(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return MedianScheduler(mode="max", hard_stop=False, min_samples_required=1)


class TestHyperBand(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return HyperBandScheduler(mode="min", max_t=9)


class TestHyperBandOfHalves(SchedulerContract):
    trials = 29
    slots = 29

    def make_scheduler(self) -> Scheduler:
        return HyperBandScheduler(mode="max", max_t=10, reduction_factor=2)


class TestAshaByPromotion(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return PromotionScheduler(mode="min", max_t=9, reduction_factor=2)


class TestAshaByPromotionInBrackets(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return PromotionScheduler(mode="max", max_t=12, reduction_factor=2, brackets=2, seed=5)


class TestPasha(SchedulerContract):
    trials = 30

    def make_scheduler(self) -> Scheduler:
        return PashaScheduler(mode="min", max_t=12, reduction_factor=2)

    def value(self, chance: random.Random, trial: int, time: int) -> float:
        """Curves that cross, so that rungs are added."""
        return chance.random()


class TestMoasha(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return MoashaScheduler(modes=("min",), max_t=12, reduction_factor=2, brackets=2, seed=5)


LEAVES = mutable_leaves({"lr": {"loguniform": [1e-3, 10]}})


class TestPbt(SchedulerContract):
    slots = 16

    def make_scheduler(self) -> Scheduler:
        population = Population(perturbation_interval=2, leaves=LEAVES)
        return PbtScheduler(mode="min", population=population, max_t=12, seed=3)


class TestPbtInStep(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        population = Population(perturbation_interval=3, leaves=LEAVES, synch=True, quantile_fraction=0.4)
        return PbtScheduler(mode="max", population=population, max_t=12, seed=3)


class TestPb2(SchedulerContract):
    slots = 16
    resumes_every = 40  # its decisions take their time

    def make_scheduler(self) -> Scheduler:
        population = Population(perturbation_interval=2)
        leaves = bounded_leaves({"lr": {"loguniform": [1e-3, 10]}})
        return Pb2Scheduler(mode="min", population=population, leaves=leaves, max_t=12, seed=3)


class TestPb2InStep(SchedulerContract):
    resumes_every = 40

    def make_scheduler(self) -> Scheduler:
        population = Population(perturbation_interval=3, synch=True, quantile_fraction=0.4)
        leaves = bounded_leaves({"lr": {"loguniform": [1e-3, 10]}})
        return Pb2Scheduler(mode="max", population=population, leaves=leaves, max_t=12, seed=3)


class TestResourceChanging(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        base = AshaScheduler(mode="min", max_t=12, grace_period=2, reduction_factor=2)
        return ResourceChangingScheduler(base=base, param=("net", "threads"), total=8, interval=2)

    def config(self, trial: int) -> dict[str, Any]:
        return {"lr": 0.1, "net": {"threads": 1}}


SUITES: dict[str, tuple[type[SchedulerContract], ...]] = {
    "fifo": (TestFifo,),
    "asha": (TestAsha, TestAshaInBrackets, TestAshaByPromotion, TestAshaByPromotionInBrackets),
    "pasha": (TestPasha,),
    "moasha": (TestMoasha,),
    "median_stopping": (TestMedian, TestMedianThatPauses),
    "hyperband": (TestHyperBand, TestHyperBandOfHalves),
    "pbt": (TestPbt, TestPbtInStep),
    "pb2": (TestPb2, TestPb2InStep),
    "resource_changing": (TestResourceChanging,),
}
"""The suites of each scheduler that a spec can name."""
EXAMPLES = sorted((Path(__file__).parents[3] / "examples/schedulers").glob("*.yaml"))


def test_each_registered_scheduler_has_a_suite() -> None:
    assert set(SUITES) == set(KINDS), "add a suite for each registered scheduler"


@pytest.mark.parametrize("kind", KINDS)
def test_the_suites_play_what_the_registry_makes(kind: str) -> None:
    """The examples show each kind, and each form of asha, which are classes of their own."""
    played = {type(suite().make_scheduler()) for suite in SUITES[kind]}
    specs = [spec for path in EXAMPLES if (spec := SweepSpec.from_file(path)).scheduler.kind == kind]
    made = {type(make_scheduler(spec)) for spec in specs}
    assert made or kind == "fifo"
    assert made <= played


class Mixed(Scheduler):
    """Pauses at report 2, exploits at 4, stops from 6 on what is bad; with one fault at a time."""

    time_attr = "training_iteration"
    max_t: float | None = None

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.moves: frozenset[Move] = frozenset({"stop", "pause", "exploit"})
        if fault == "move":
            self.moves = frozenset({"stop", "exploit"})
        self._best: tuple[float, int] | None = None
        self._paused: set[int] = set()

    def add(self, trial: int, config: Config) -> None:
        if self.fault == "add twice" and trial in self._paused:
            raise KeyError(trial)
        if self.fault == "add twice":
            self._paused.add(trial)

    def report(self, trial: int, time: float, value: float) -> Decisions:
        if self._best is None or value < self._best[0]:
            self._best = (value, trial)
        donor = self._best[1]
        if time == 2 and trial not in self._paused:
            self._paused.add(trial)
            return [(trial, Pause())]
        if time == 4 and donor != trial:
            lr: Any = {1} if self.fault == "config" else 0.1
            return [(trial, Exploit(donor=donor, config={"lr": lr}))]
        threshold = random.random() if self.fault == "chance" else 0.9
        return [(trial, Stop())] if time >= 6 and value > threshold else NOTHING

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        assert self.fault != "early end" or time is not None
        return NOTHING

    def remove(self, trial: int) -> Decisions:
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        return [(trial, Resume()) for trial in paused]

    def to_json(self) -> dict[str, Any]:
        paused: Any = self._paused if self.fault == "set" else sorted(self._paused)
        return {"paused": paused, "best": None if self._best is None else list(self._best)}

    def from_json(self, state: dict[str, Any]) -> None:
        self._paused = set(state["paused"])
        best = None if self.fault == "forgets" else state["best"]
        self._best = None if best is None else (best[0], best[1])


class TestMixed(SchedulerContract):
    def make_scheduler(self) -> Scheduler:
        return Mixed()

    def test_all_verdicts_are_played(self) -> None:
        decided = {type(verdict) for _, decisions, _ in self._play(1) for _, verdict in decisions}
        assert decided == {Stop, Pause, Resume, Exploit}


class OfTheTests(SchedulerContract):
    """The schedulers under which the tests' worlds pause and exploit."""

    made: type[Any]

    def make_scheduler(self) -> Scheduler:
        setup = PolicySetup(mode="min", seed=7, param_space={"x": {"uniform": [0, 1]}})
        made: Scheduler = self.made(self.made.Options(), setup)
        return made

    def config(self, trial: int) -> dict[str, Any]:
        return {"x": trial / 16}


class TestHalving(OfTheTests):
    made = policies.Halving


class TestCopycat(OfTheTests):
    made = policies.Copycat


class TestWhim(OfTheTests):
    made = policies.Whim


@pytest.mark.parametrize(
    ("fault", "test", "arguments"),
    [
        ("move", "test_it_decides_what_it_said_it_would", [1]),
        ("config", "test_it_decides_what_it_said_it_would", [1]),
        ("chance", "test_the_same_reports_give_the_same_verdicts", [1]),
        ("forgets", "test_written_down_and_read_back_it_decides_as_before", [1]),
        ("set", "test_its_state_is_json_and_shares_nothing", []),
        ("add twice", "test_a_trial_that_comes_back_reports_again", []),
        ("early end", "test_a_trial_may_end_before_its_first_report", []),
    ],
)
def test_the_suite_notices(fault: str, test: str, arguments: list[int]) -> None:
    """Each of its tests passes a sound scheduler, and fails one with the fault that it looks for."""

    class Suite(SchedulerContract):
        made = ""

        def make_scheduler(self) -> Scheduler:
            return Mixed(self.made)

    suite = Suite()
    getattr(suite, test)(*arguments)
    suite.made = fault
    with pytest.raises((AssertionError, KeyError, TypeError, ValueError)):
        getattr(suite, test)(*arguments)
