"""Each searcher passes the contract suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from raysweep import search
from raysweep.search import Searcher, WarmStart, make_searcher
from raysweep.search.registry import KINDS
from raysweep.specs import SweepSpec
from raysweep.testing.searcher_contract import SearcherContract

SPACE: dict[str, Any] = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "layers": [{"randint": [1, 9]}, {"choice": ["a", "b"]}],
    "fixed": {"nested": {"k": [1, 2]}},
}


BOUNDS = ["lr_used <= 0.01", "other <= 1"]
NUMBERS: dict[str, Any] = {"lr": {"loguniform": [1e-4, 1e-1]}, "layers": [{"randint": [1, 9]}]}


def make(
    search: Any,
    space: dict[str, Any] = SPACE,
    samples: int = 20,
    warm: WarmStart | None = None,
    points: Sequence[dict[str, Any]] = (),
    constraints: Sequence[str] = (),
    metric: Any = "m",
    mode: Any = "min",
    repeat: Any = None,
    scheduler: Any = "fifo",
) -> Searcher:
    spec = SweepSpec(
        name="s",
        trainable="m:f",
        param_space=space,
        metric=metric,
        mode=mode,
        num_samples=samples,
        search=search,
        points=points,
        constraints=constraints,
        repeat=repeat,
        scheduler=scheduler,
    )
    return make_searcher(spec, 5, warm)


BRANCHES: dict[str, Any] = {
    "lr": {"loguniform": [1e-4, 1e-1]},
    "model": {
        "choice": {
            "svm": {
                "c": {"uniform": [0, 9]},
                "kernel": {"choice": {"rbf": {"g": {"uniform": [0, 1]}}, "l": 1}},
            },
            "forest": {"depth": {"randint": [1, 9]}},
        }
    },
}


class TestBranchesAtRandom(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make("random", BRANCHES)


class TestBranchesOfAGrid(SearcherContract):
    def make_searcher(self) -> Searcher:
        space = {"g": {"grid_search": {"x": {"n": {"randint": [0, 2]}}, "y": {"n": {"randint": [0, 9]}}}}}
        return make("grid", space, samples=6)


class TestBranchesByTpe(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 4}}, BRANCHES)


@pytest.mark.slow
class TestBranchesByTpeAlone(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 4, "multivariate": False}}, BRANCHES)


@pytest.mark.slow
class TestBranchesByGp(SearcherContract):
    trials = 8

    def make_searcher(self) -> Searcher:
        return make({"gp": {"n_startup_trials": 4}}, BRANCHES)


class TestBranchesByCmaEs(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({"cma_es": {"population_size": 4}}, BRANCHES)


class TestRandom(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make("random")


class TestLeftOpen(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({}, samples=24)


@pytest.mark.slow
class TestLeftOpenForNumbers(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({}, NUMBERS, samples=16)


class TestLeftOpenForAFew(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({}, {"a": {"randint": [0, 3]}, "b": {"choice": [1, 2, 3, 4]}}, samples=50)


class TestLeftOpenUnderConstraints(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({}, samples=20, constraints=BOUNDS)

    def violations(self, config: dict[str, Any]) -> tuple[float, ...]:
        return config["lr"] - 0.01, -1.0


class TestBohb(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make("bohb", scheduler="hyperband")


class TestDiscrete(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make("random", {"a": {"randint": [0, 3]}, "b": {"choice": [1, 2]}}, samples=50)


class TestGrid(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make("grid", SPACE | {"g": {"grid_search": [1, 2, 3]}}, samples=4)


class TestTpe(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 4}})


class TestTpeAlone(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 4, "multivariate": False}})


class TestGp(SearcherContract):
    trials = 9

    def make_searcher(self) -> Searcher:
        return make({"gp": {"n_startup_trials": 4}})


@pytest.mark.slow
class TestGpOfFewResults(SearcherContract):
    """It forgets results: which ones must not depend on when they came."""

    trials = 26

    def make_searcher(self) -> Searcher:
        return make({"gp": {"n_startup_trials": 14, "max_results": 15}}, NUMBERS, samples=30)


class TestCmaEs(SearcherContract):
    trials = 40

    def make_searcher(self) -> Searcher:
        return make({"cma_es": {"population_size": 4}}, samples=50)


@pytest.mark.slow
class TestCmaEsInIntegers(SearcherContract):
    trials = 40

    def make_searcher(self) -> Searcher:
        space = {"a": {"randint": [0, 9]}, "b": {"lograndint": [1, 9]}}
        return make({"cma_es": {"population_size": 4, "sigma0": 0.05}}, space, samples=80)


class TestNsga2(SearcherContract):
    trials = 40

    def make_searcher(self) -> Searcher:
        return make({"nsga2": {"population_size": 4}}, samples=50)


class Constrained(SearcherContract):
    """Large rates break the one constraint, the other holds for all."""

    def violations(self, config: dict[str, Any]) -> tuple[float, ...]:
        return config["lr"] - 0.01, -1.0


class TestNsga2WithConstraints(Constrained):
    trials = 40

    def make_searcher(self) -> Searcher:
        return make({"nsga2": {"population_size": 4}}, samples=50, constraints=BOUNDS)


class TestTpeWithConstraints(Constrained):
    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 4}}, constraints=BOUNDS)


@pytest.mark.slow
class TestGpWithConstraints(Constrained):
    trials = 14

    def make_searcher(self) -> Searcher:
        return make({"gp": {"n_startup_trials": 4, "max_results": 10}}, NUMBERS, constraints=BOUNDS)


class TestCmaEsWithConstraints(Constrained):
    trials = 40

    def make_searcher(self) -> Searcher:
        return make({"cma_es": {"population_size": 4}}, samples=50, constraints=BOUNDS)


class TestWarmWithConstraints(Constrained):
    def make_searcher(self) -> Searcher:
        first = {"lr": 0.01, "layers": [3, "a"], "fixed": {"nested": {"k": [1, 2]}}}
        warm = WarmStart(first=first, told=((first, 0.5),), violations=((0.2, -1.0),))
        return make({"tpe": {"n_startup_trials": 4}}, warm=warm, constraints=BOUNDS)


class Several(SearcherContract):
    """Three metrics, of which the last breaks the one constraint where rates are large."""

    trials = 30

    def others(self, config: dict[str, Any]) -> tuple[float, ...]:
        return config["lr"], self.score(config) ** 2 - config["lr"]

    def violations(self, config: dict[str, Any]) -> tuple[float, ...]:
        return (config["lr"] - 0.05,)


def make_several(search: Any, space: dict[str, Any] = SPACE, samples: int = 40) -> Searcher:
    fields: dict[str, Any] = {"metric": ["m", "lr", "x"], "mode": ["min", "min", "max"]}
    return make(search, space, samples, constraints=["lr <= 0.05"], **fields)


class TestTpeOfSeveral(Several):
    def make_searcher(self) -> Searcher:
        return make_several({"tpe": {"n_startup_trials": 4}})


@pytest.mark.slow
class TestNsga2OfSeveral(Several):
    def make_searcher(self) -> Searcher:
        return make_several({"nsga2": {"population_size": 4}})


class TestNsga3OfSeveral(Several):
    def make_searcher(self) -> Searcher:
        return make_several({"nsga3": {"population_size": 4}})


class TestRandomOfSeveral(Several):
    def make_searcher(self) -> Searcher:
        return make_several("random")


class TestPointsOfSeveral(Several):
    """And the config of a champion before them."""

    def make_searcher(self) -> Searcher:
        warm = WarmStart(first={"lr": 0.01, "layers": [3]})
        fields: dict[str, Any] = {"metric": ["m", "lr", "x"], "mode": ["min", "min", "max"]}
        points = [{"lr": 0.002}]
        return make({"nsga2": {"population_size": 4}}, NUMBERS, warm=warm, points=points, **fields)


class TestAutoOfSeveral(Several):
    """From TPE to NSGA-II, in the middle of what the suite plays."""

    def make_searcher(self) -> Searcher:
        return make_several({"auto": {"switch_after": 12}})


class TestAuto(SearcherContract):
    """From the Gaussian process to CMA-ES, in the middle of what the suite plays."""

    trials = 30

    def make_searcher(self) -> Searcher:
        return make({"auto": {"switch_after": 12}}, NUMBERS, samples=30)


@pytest.mark.slow
class TestAutoRelieved(SearcherContract):
    """A Gaussian process, TPE and steps from the best by turns, with a choice that is a number to them."""

    trials = 30

    def make_searcher(self) -> Searcher:
        return make("auto", NUMBERS | {"batch": {"choice": [8, 16, 64]}}, samples=30)


@pytest.mark.slow
class TestAutoByCosts(SearcherContract):
    """Every other ask of the Gaussian process goes by costs; it is relieved in the end."""

    trials = 26

    def make_searcher(self) -> Searcher:
        space = NUMBERS | {"kind": {"choice": ["a", "b"]}}
        return make({"auto": {"cost_attr": "trial_time_s"}}, space, samples=30)

    def cost(self, config: dict[str, Any]) -> float | None:
        return float(config["layers"][0]) ** 2


class TestAutoWithChoices(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make("auto")


class TestPoints(SearcherContract):
    def make_searcher(self) -> Searcher:
        points = [{"lr": 0.01, "layers": [3, "a"]}, {"lr": 0.02}]
        return make({"tpe": {"n_startup_trials": 4}}, points=points)


class TestPointsOnTopOfAGrid(SearcherContract):
    def make_searcher(self) -> Searcher:
        space = SPACE | {"g": {"grid_search": [1, 2, 3]}}
        first = {"lr": 0.01, "layers": [3, "a"], "fixed": {"nested": {"k": [1, 2]}}, "g": 3}
        return make("grid", space, samples=4, warm=WarmStart(first=first), points=[{"g": 2}, {"lr": 0.02}])


class TestConfigs(SearcherContract):
    def make_searcher(self) -> Searcher:
        configs = [{"lr": 0.1, "net": {"depth": [1]}}, {"lr": 0.2, "net": {"depth": [2]}}]
        return make({"configs": {"configs": configs, "seeds": 3, "seed_param": "seed"}})


class TestWarm(SearcherContract):
    def make_searcher(self) -> Searcher:
        first = {"lr": 0.01, "layers": [3, "a"], "fixed": {"nested": {"k": [1, 2]}}}
        return make({"tpe": {"n_startup_trials": 4}}, warm=WarmStart(first=first, told=((first, 0.5),)))


def suites() -> list[type[SearcherContract]]:
    """The suites of this module that run with every change."""
    found = [each for name, each in globals().items() if name.startswith("Test") and isinstance(each, type)]
    return [
        each
        for each in found
        if issubclass(each, SearcherContract)
        and all(mark.name != "slow" for mark in getattr(each, "pytestmark", []))
    ]


def test_each_registered_searcher_has_a_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    played = set()

    def note(spec: SweepSpec, *rest: Any) -> Searcher:
        played.add(spec.search.kind)
        return search.make_searcher(spec, *rest)

    monkeypatch.setitem(globals(), "make_searcher", note)
    for suite in suites():
        suite().make_searcher()
    assert played == set(KINDS), "add a suite for each registered searcher"


class TestRepeated(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make("random", samples=8, repeat={"times": 3, "seed_param": "seed"})


class TestRepeatedModel(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 2}}, samples=8, repeat=3)


class TestRepeatedPoints(SearcherContract):
    def make_searcher(self) -> Searcher:
        return make({"tpe": {"n_startup_trials": 2}}, samples=6, repeat=4, points=[{"lr": 0.01}])
