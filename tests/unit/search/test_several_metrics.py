"""Searches of several metrics: Optuna's are Optuna's, they find a front, and what looks at one is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial

from raysweep.errors import SpecError
from raysweep.numeric.pareto import find_front
from raysweep.search import Result, Searcher, TrialEnd, WarmStart, make_searcher, tell_end
from raysweep.search.auto import AutoOptions
from raysweep.search.base import SearchSetup, derived_seed
from raysweep.search.models.auto import AutoModel
from raysweep.search.models.nsga import NsgaModel
from raysweep.search.models.optuna_params import params_of
from raysweep.search.models.tpe import TpeModel
from raysweep.specs import SweepSpec

SPACE: dict[str, Any] = {name: {"uniform": [0, 1]} for name in ("x", "y", "z", "u", "v")}
HALF = dict.fromkeys(SPACE, 0.5)


def spec_of(search: Any, samples: int = 60, space: dict[str, Any] = SPACE, **fields: Any) -> SweepSpec:
    plain = {"name": "s", "trainable": "m:f", "metric": ["a", "b"], "mode": ["min", "max"], "seed": 3}
    plain |= {"search": search, "num_samples": samples, "param_space": space}
    return SweepSpec.model_validate(plain | fields)


def values(config: Mapping[str, Any]) -> tuple[float, float]:
    """Little or much of x, as in Schaffer's function; all else, away from a half, spoils both."""
    away = 3 * sum((config[name] - 0.5) ** 2 for name in config if name != "x")
    return config["x"] ** 2 + away, -((config["x"] - 1) ** 2) - away


def tell(searcher: Searcher, number: int, config: Mapping[str, Any], state: TrialEnd = "completed") -> None:
    first, second = values(config)
    tell_end(searcher, number, Result(first, others=(second,)), state=state)


def run(searcher: Searcher, samples: int, *, first: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(first, first + samples):
        config = searcher.ask(number)
        assert config is not None
        found.append(config)
        tell(searcher, number, config)
    return found


def volume(configs: list[dict[str, Any]]) -> float:
    """What the front dominates of the square up to (1.5, -1.5), the more the better: at most about 1.9."""
    points = [(first, -second) for first, second in map(values, configs)]
    total, ceiling = 0.0, 1.5
    for first, second in (points[place] for place in find_front(points)):
        if first < 1.5 and second < ceiling:
            total += (1.5 - first) * (ceiling - second)
            ceiling = second
    return total


class Nsga2(optuna.samplers.NSGAIISampler):
    """Optuna sorts a generation's parents by number from its second child on; here from the first."""

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        return sorted(super().select_parent(study, generation), key=lambda trial: trial.number)


class Nsga3(optuna.samplers.NSGAIIISampler):
    """The same."""

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        return sorted(super().select_parent(study, generation), key=lambda trial: trial.number)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    ("search", "sampler", "options"),
    [
        ("tpe", optuna.samplers.TPESampler, {"n_startup_trials": 5}),
        ("nsga2", Nsga2, {"population_size": 6}),
    ],
)
def test_it_asks_as_optuna_does(search: str, sampler: Any, options: dict[str, Any]) -> None:
    """With the same history and seed, Optuna's own `Study.ask` gives the same values."""
    fixed = {"multivariate": True, "constant_liar": True} if search == "tpe" else {}
    ours = make_searcher(spec_of({search: options}, 40), 3)
    study = optuna.create_study(directions=["minimize", "maximize"])
    params = params_of(spec_of(search).space.searched)
    for number in range(40):
        study.sampler = sampler(seed=derived_seed(3, number) % 2**32, **options, **fixed)
        trial = study.ask({param.name: param.distribution for param in params})
        config = ours.ask(number)
        assert config == pytest.approx(trial.params), number
        study.tell(trial.number, list(values(config)))
        tell(ours, number, config)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_nsga3_selects_who_survives_as_optuna_does() -> None:
    """It draws them with the generator that it then draws a child with; ours are drawn once a generation.

    So each generation is given to Optuna's own selection with the seed that ours has.
    """
    size = 6
    spec = spec_of({"nsga3": {"population_size": size}}, 60)
    model = NsgaModel(spec.space, 3, ("min", "max"), spec.search.options)  # type: ignore[arg-type]
    study = optuna.create_study(directions=["minimize", "maximize"])
    known: dict[int, FrozenTrial] = {}
    for number in range(5 * size):
        sampled = model.sample(number, 0)
        model.add(number, sampled)
        first, second = values({path[0]: value for path, value in sampled.items()})
        model.end(number, Result(first, others=(second,)))
        known[number] = model._results[number]
    model.sample(5 * size, 0)
    parents: list[FrozenTrial] = []
    assert [done for done, _ in model._generations] == [0, *(size * (at + 1) for at in range(5))]
    for at, (done, survivors) in enumerate(model._generations[1:]):
        born = [known[number] for number in range(at * size, (at + 1) * size)]
        theirs = optuna.samplers.NSGAIIISampler(seed=derived_seed(3, done) % 2**32, population_size=size)
        chosen = theirs._elite_population_selection_strategy(study, [*born, *parents])
        assert sorted(trial.number for trial in chosen) == [trial.number for trial in survivors]
        parents = survivors


@pytest.mark.parametrize(
    ("search", "samples"),
    [("tpe", 100), ({"nsga2": {"population_size": 10}}, 200), ({"nsga3": {"population_size": 10}}, 200)],
)
def test_it_finds_more_of_the_front_than_chance_does(search: Any, samples: int) -> None:
    """And than it would with a wrong mode of the second metric."""
    found = volume(run(make_searcher(spec_of(search, samples), 3), samples))
    chance = volume(run(make_searcher(spec_of("random", samples), 3), samples))
    wrongly = volume(run(make_searcher(spec_of(search, samples, mode=["min", "min"]), 3), samples))
    assert found > max(chance, wrongly) + 0.1, (found, chance, wrongly)


def test_what_breaks_a_constraint_is_no_parent() -> None:
    searcher = make_searcher(spec_of({"nsga2": {"population_size": 10}}, 120, constraints=["x >= 0.5"]), 3)
    late: list[float] = []
    for number in range(120):
        config = searcher.ask(number)
        assert config is not None
        first, second = values(config)
        tell_end(searcher, number, Result(first, (0.5 - config["x"],), (second,)), state="completed")
        late += [config["x"]] * (number >= 90)
    assert sum(x >= 0.5 for x in late) > 0.8 * len(late)


@pytest.mark.parametrize(
    ("metrics", "space", "later"),
    [
        (2, SPACE, "Nsga2Options"),
        (3, SPACE, "Nsga2Options"),
        (4, SPACE, "Nsga3Options"),
        (2, {**SPACE, "kind": {"choice": ["a", "b"]}}, "Nsga2Options"),
        (2, {**SPACE, "net": {"choice": {"a": {"w": {"uniform": [0, 1]}}, "b": {}}}}, "TpeOptions"),
    ],
)
def test_auto_is_tpe_and_with_many_results_nsga(metrics: int, space: dict[str, Any], later: str) -> None:
    names = [f"m{number}" for number in range(metrics)]
    spec = spec_of("auto", 400, space, metric=names, mode=["min"] * metrics)
    model = AutoModel(spec.space, 400, 3, ("min",) * metrics, AutoOptions())
    assert isinstance(model._first, TpeModel)
    assert type(model._later._options).__name__ == later  # type: ignore[attr-defined]
    few = AutoModel(spec.space, 100, 3, ("min",) * metrics, AutoOptions())
    assert few._later is few._first
    assert model.substitution is None


@pytest.mark.parametrize("search", [{"tpe": {"n_startup_trials": 1}}, {"nsga2": {"population_size": 2}}])
def test_a_result_with_what_is_no_number_teaches_nothing(search: Any) -> None:
    with_it, without = (make_searcher(spec_of(search, 9), 3) for _ in range(2))
    for searcher in (with_it, without):
        config = searcher.ask(0)
        assert config is not None
    tell_end(with_it, 0, Result(0.5, others=(math.nan,)), state="completed")
    without.tell(0, None, "failed")
    assert run(with_it, 8, first=1) == run(without, 8, first=1)


def test_nsga3_honours_relations_and_takes_every_branch() -> None:
    """The other searches, which take one metric too, have these tests in files of their own."""
    space = {**SPACE, "net": {"choice": {"wide": {"w": {"uniform": [0, 1]}}, "flat": {}}}}
    spec = spec_of({"nsga3": {"population_size": 4}}, 40, space, where=["x < y"])
    searcher, found = make_searcher(spec, 3), []
    for number in range(40):
        config = searcher.ask(number)
        assert config is not None
        found.append(config)
        tell_end(searcher, number, Result(config["x"], others=(config["y"],)), state="completed")
    assert all(config["x"] < config["y"] for config in found)
    assert {"w" in next(iter(config["net"].values())) for config in found} == {True, False}


def test_nsga3_of_an_open_ended_sweep_asks_as_one_of_many_samples_does() -> None:
    search = {"nsga3": {"population_size": 4}}
    open_ended = spec_of(search, None, stop={"deadline": "06:00 UTC"})  # type: ignore[arg-type]
    assert run(make_searcher(open_ended, 3), 20) == run(make_searcher(spec_of(search, 2000), 3), 20)


def test_earlier_results_are_told_with_all_their_metrics() -> None:
    configs = [HALF | {"x": at / 20} for at in range(20)]
    warm = WarmStart(
        told=tuple((config, values(config)[0]) for config in configs),
        others=tuple((values(config)[1],) for config in configs),
    )
    search = {"nsga2": {"population_size": 10, "mutation_prob": 0.0}}
    found = run(make_searcher(spec_of(search, 10), 3, warm), 10)
    assert all(config == HALF | {"x": config["x"]} for config in found), "children of earlier ones"
    assert len({config["x"] for config in found}) > 3, "of all of which none beats another"


class OneMetric(Searcher):
    """A searcher that adapts, and is told of one value."""

    is_adaptive, total, note = True, None, None

    def __init__(self, options: dict[str, Any], setup: SearchSetup) -> None:
        self.modes = setup.modes

    def ask(self, number: int) -> dict[str, Any] | None:
        return dict(HALF)

    def restore(self, number: int, config: dict[str, Any]) -> None: ...

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None: ...

    def tell_earlier(self, config: dict[str, Any], value: float) -> None: ...


class AllMetrics(OneMetric):
    """One that is told of all."""

    seen: tuple[Result, ...] = ()

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        type(self).seen = (*self.seen, result)

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None: ...


def test_a_searcher_of_ones_own_has_to_be_told_of_all() -> None:
    from raysweep.search import load_searcher

    here = "tests.unit.search.test_several_metrics"
    with pytest.raises(SpecError, match="searches by one metric: it has no tell_result"):
        load_searcher(spec_of(f"{here}:OneMetric"))
    load_searcher(spec_of(f"{here}:OneMetric", metric="a", mode="min"))
    spec = spec_of(f"{here}:AllMetrics")
    load_searcher(spec)
    run(make_searcher(spec, 3), 2)
    assert [result.values for result in AllMetrics.seen] == [values(HALF)] * 2
