"""What an ask of the Gaussian process computes, and on how many threads."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from optuna._gp import search_space as spaces
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from threadpoolctl import threadpool_info, threadpool_limits

from raysweep.search import Result, Searcher, gp, make_searcher, tell_end
from raysweep.search.gp import MOST_AT_ONCE, Lines, _grids
from raysweep.search.points import FirstPoints
from raysweep.spec import SweepSpec

WIDE: dict[str, Any] = {
    "width": {"randint": [16, 257]},
    "lr": {"loguniform": [1e-5, 1e-1]},
    "batch": {"qrandint": [8, 256, 8]},
}
STARTUP = 10


def loss(config: dict[str, Any]) -> float:
    return float((config["width"] / 100 - 1) ** 2 + (np.log10(config["lr"]) + 3) ** 2 + config["batch"] / 256)


def searched(trials: int, *, running: int = 0) -> Searcher:
    """A search that knows so many results, and of so many trials that run."""
    fields = {"name": "s", "trainable": "m:f", "param_space": WIDE, "metric": "m", "mode": "min"}
    searcher = make_searcher(SweepSpec.model_validate(fields | {"search": "gp", "num_samples": 100}), 1)
    for number in range(trials + running):
        config = searcher.ask(number)
        assert config is not None
        if number < trials:
            tell_end(searcher, number, Result(loss(config)), state="completed")
    return searcher


class Bowl:
    """A function of places; which calls there were, by their number of places (1: of one place)."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, places: Any) -> Any:
        self.calls.append(len(places) if places.ndim == 2 else 1)
        return -((places - 0.4) ** 2).sum(axis=-1)


GRID = np.linspace(0.0, 1.0, 100)


def place(**at: float) -> Any:
    found = np.full(3, 0.5)
    for name, value in at.items():
        found["abc".index(name)] = value
    return found


def test_along_a_parameter_everything_is_computed_once() -> None:
    bowl = Bowl()
    lines = Lines(bowl, {1: GRID})
    for value in (*GRID[::7], *GRID[::3]):
        assert float(lines(place(b=value))) == pytest.approx(float(Bowl()(place(b=value))))
    assert bowl.calls == [1, len(GRID)]


def test_another_start_is_another_line() -> None:
    bowl = Bowl()
    lines = Lines(bowl, {1: GRID})
    for a in (0.1, 0.2):
        for value in GRID[::9]:
            assert float(lines(place(a=a, b=value))) == pytest.approx(float(Bowl()(place(a=a, b=value))))
    assert bowl.calls == [1, len(GRID)] * 2


def test_a_place_that_is_on_no_line_is_computed_alone() -> None:
    bowl = Bowl()
    lines = Lines(bowl, {1: GRID})
    for each in (place(a=0.1), place(a=0.2), place(a=0.3, c=0.1), place(b=0.12345), place(b=0.54321)):
        assert float(lines(each)) == pytest.approx(float(Bowl()(each)))
    assert bowl.calls == [1] * 5


def test_rows_are_computed_as_they_are() -> None:
    bowl = Bowl()
    lines = Lines(bowl, {1: GRID})
    rows = np.stack([place(b=value) for value in GRID[:5]])
    assert lines(rows).tolist() == Bowl()(rows).tolist()
    assert bowl.calls == [5]


class Acquisition:
    """As much of Optuna's as is looked at."""

    def __init__(self, **space: BaseDistribution) -> None:
        self.search_space = spaces.SearchSpace(space)

    def eval_acqf_no_grad(self, places: Any) -> Any:
        return places


def test_lines_are_for_parameters_of_some_values() -> None:
    found = _grids(
        Acquisition(
            lr=FloatDistribution(0.0, 1.0),
            width=IntDistribution(16, 256),
            kind=CategoricalDistribution(["a", "b"]),
            ids=IntDistribution(1, MOST_AT_ONCE + 1),
        )
    )
    assert {column: len(grid) for column, grid in found.items()} == {1: 241, 2: 2}


def test_an_optuna_that_has_it_otherwise_goes_its_own_way() -> None:
    assert _grids(object()) == {}


@pytest.mark.parametrize("running", [0, 2])
def test_what_is_asked_is_what_optuna_asks(monkeypatch: pytest.MonkeyPatch, running: int) -> None:
    """Lines and single places differ by rounding alone; so do the configs."""
    ours = searched(STARTUP + 2, running=running).ask(STARTUP + 2 + running)
    monkeypatch.setattr(gp, "MOST_AT_ONCE", 0)
    theirs = searched(STARTUP + 2, running=running).ask(STARTUP + 2 + running)
    assert ours is not None
    assert theirs is not None
    assert (ours["width"], ours["batch"]) == (theirs["width"], theirs["batch"])
    assert ours["lr"] == pytest.approx(theirs["lr"], rel=1e-3)


def test_most_places_are_on_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an ask costs hangs on it: Brent's method asks for some twenty places each time."""
    asked, computed = 0, 0

    class Counted(Lines):
        def __init__(self, evaluate: Any, grids: Any) -> None:
            def counted(places: Any) -> Any:
                nonlocal computed
                computed += 1
                return evaluate(places)

            super().__init__(counted, grids)

        def __call__(self, places: Any) -> Any:
            nonlocal asked
            asked += 1
            return super().__call__(places)

    searcher = searched(STARTUP + 2)
    monkeypatch.setattr(gp, "Lines", Counted)
    searcher.ask(STARTUP + 2)
    assert asked > 4 * computed > 0


def test_an_ask_computes_on_one_thread_and_leaves_the_others_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On as many as there are cores its small matrices cost three times as much, at the cost of trials."""
    during: list[dict[str, int]] = []
    optimize = gp.CostAwareSampler._optimize_acqf

    def threads() -> dict[str, int]:
        return {each["filepath"]: each["num_threads"] for each in threadpool_info()}

    def looked(self: Any, acqf: Any, best_params: Any) -> Any:
        during.append(threads())
        return optimize(self, acqf, best_params)

    searcher = searched(STARTUP + 2)
    monkeypatch.setattr(gp.CostAwareSampler, "_optimize_acqf", looked)
    with threadpool_limits(2):
        torch.set_num_threads(2)
        before = threads()
        searcher.ask(STARTUP + 2)
        after, torchs = threads(), torch.get_num_threads()
    assert during
    assert set(during[0].values()) == {1}
    assert after == before
    assert set(before.values()) == {2}
    assert torchs == 2


WIDE_DOMAINS: dict[str, Any] = {
    "seed": {"randint": [0, 2147483647]},
    "log": {"lograndint": [1, 2**40]},
    "stepped": {"qrandint": [8, 8 * 10**9, 8]},
    "quantised": {"quniform": [0, 1e5, 1e-4]},
}


@pytest.mark.parametrize("domain", WIDE_DOMAINS.values(), ids=WIDE_DOMAINS)
@pytest.mark.parametrize("search", [{"gp": {"n_startup_trials": 4}}, "auto"], ids=["gp", "auto"])
def test_a_wide_domain_is_as_cheap_as_a_continuous_one(search: Any, domain: dict[str, Any]) -> None:
    """Its values are the domain's still, and a rebuilt search goes on as the first."""
    space = {"x": {"uniform": [0, 1]}, "wide": domain}
    fields = {"name": "s", "trainable": "m:f", "param_space": space, "metric": "m", "mode": "min"}
    spec = SweepSpec.model_validate(fields | {"search": search, "num_samples": 30})
    first, rebuilt = make_searcher(spec, 1), make_searcher(spec, 1)
    tracemalloc.start()
    try:
        for number in range(14):
            config = first.ask(number)
            assert config is not None
            FirstPoints(spec.space, [config], 1)  # raises where a value is none of the domain's
            rebuilt.restore(number, config)
            if number < 12:
                for each in (first, rebuilt):
                    tell_end(each, number, Result(abs(config["x"] - 0.3)), state="completed")
        assert first.ask(14) == rebuilt.ask(14)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 2**20


def test_the_values_of_a_wide_parameter_are_not_counted_off() -> None:
    class Function:
        search_space = spaces.SearchSpace({"n": IntDistribution(0, 2**60), "m": IntDistribution(0, 9)})
        eval_acqf_no_grad = None

    assert {column: len(grid) for column, grid in _grids(Function()).items()} == {1: 10}
