"""What trials cost: what is told of other configs, and how a Gaussian process goes by it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from optuna.samplers import GPSampler

from raysweep.errors import SpecError
from raysweep.outcome import AttemptOutcome
from raysweep.runs.across_runs.warm_start import recall, warm_from_json, warm_to_json
from raysweep.runs.folder import SweepFolder
from raysweep.search import Result, Searcher, make_searcher, tell_end
from raysweep.search.base import tell_earlier
from raysweep.search.machinery.repeat import Repeat, RepeatSearcher
from raysweep.search.machinery.stalled import RelievedModel
from raysweep.search.models.auto import AutoModel
from raysweep.search.models.cost import LEAST, PENALTIES, CostModel, LogCost, _left_out, ridge
from raysweep.search.models.optuna_params import params_of
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.objects.opening import open_store
from tests.unit.search.earlier import add_sweep, config, make_spec

SPACE: dict[str, Any] = {
    "width": {"randint": [16, 1025]},
    "lr": {"loguniform": [1e-5, 1e-1]},
    "depth": {"choice": ["flat", "deep", "deepest"]},
    "dropout": {"uniform": [0.0, 0.5]},
    "batch": {"qrandint": [8, 256, 8]},
}
TIMES: dict[str, float] = {"flat": 1.0, "deep": 3.0, "deepest": 8.0}


def seconds(drawn: Mapping[str, Any]) -> float:
    """As the layers and the width have it, and the more the smaller the batch."""
    return float(0.02 * drawn["width"] ** 1.5 * TIMES[drawn["depth"]] / drawn["batch"] ** 0.5)


def spec_of(**fields: Any) -> SweepSpec:
    plain = {"name": "s", "trainable": "m:f", "param_space": SPACE, "metric": "m", "mode": "min"}
    return SweepSpec.model_validate(plain | {"num_samples": 40} | fields)


def drawn(count: int, seed: int = 1) -> list[dict[str, Any]]:
    searcher = make_searcher(spec_of(search="random", num_samples=count), seed)
    return [found for number in range(count) if (found := searcher.ask(number)) is not None]


class Costs:
    """A cost model of this space, told of configs and asked about others."""

    def __init__(self) -> None:
        self.params = params_of(spec_of().space.searched)
        self.model = CostModel(self.params)

    def raw(self, of: Mapping[str, Any]) -> dict[str, Any]:
        return {param.name: param.to_param(of[param.name]) for param in self.params}

    def add(self, number: int, of: Mapping[str, Any], cost: float | None) -> None:
        self.model.add(number, self.raw(of), cost)

    def at(self, of: Mapping[str, Any]) -> float:
        found = self.model.now()
        assert found is not None
        columns = {name: np.array([float(value)]) for name, value in self.raw(of).items()}
        return float(np.ravel(found.at(columns, np.log))[0])


def test_ten_trials_tell_what_others_cost_far_away_from_them() -> None:
    costs = Costs()
    small = [each for each in drawn(80) if each["width"] < 600][:30]
    for number, each in enumerate(small):
        costs.add(number, each, seconds(each))
    cheap = {"width": 16, "lr": 1e-3, "depth": "flat", "dropout": 0.1, "batch": 256}
    dear = {"width": 1024, "lr": 1e-3, "depth": "deepest", "dropout": 0.1, "batch": 8}
    told, true = costs.at(dear) - costs.at(cheap), math.log(seconds(dear) / seconds(cheap))
    assert told == pytest.approx(true, rel=0.1)


def test_a_cost_may_be_least_in_the_middle() -> None:
    """Of a number that may be zero or less, whose logarithm there is none of."""
    params = params_of(spec_of(param_space=VALLEYS).space.searched)
    model, chance = CostModel(params), Random(4)
    for number in range(20):
        at = {"x": chance.uniform(-1, 1), "y": chance.uniform(-1, 1)}
        model.add(number, at, math.exp(3.0 * at["x"] ** 2))
    found = model.now()
    assert found is not None
    places = {"x": np.array([-0.9, 0.0, 0.9]), "y": np.array([0.3, 0.3, 0.3])}
    left, middle, right = found.at(places, np.log)
    assert left - middle == pytest.approx(3.0 * 0.81, rel=0.1)
    assert right - middle == pytest.approx(3.0 * 0.81, rel=0.1)


def test_what_says_nothing_of_costs_counts_for_nothing() -> None:
    """Costs by chance alone: every config costs about the same."""
    costs, chance = Costs(), Random(2)
    for number, each in enumerate(drawn(40)):
        costs.add(number, each, math.exp(chance.gauss(0, 1)))
    told = [costs.at(each) for each in drawn(50, seed=9)]
    assert max(told) - min(told) < 1.0


def test_few_costs_say_nothing_and_what_is_none_is_passed_over() -> None:
    costs = Costs()
    configs = drawn(LEAST + 5)
    for number, nothing in enumerate([None, 0.0, -1.0, math.inf, math.nan]):
        costs.add(number, configs[number], nothing)
    for number in range(5, LEAST + 4):
        costs.add(number, configs[number], seconds(configs[number]))
        assert costs.model.now() is None
    costs.add(LEAST + 4, configs[LEAST + 4], 1.0)
    assert costs.model.now() is not None


def test_the_order_in_which_trials_end_makes_no_difference() -> None:
    configs = drawn(25)
    found = []
    for order in (range(25), reversed(range(25))):
        costs = Costs()
        for number in order:
            costs.add(number, configs[number], seconds(configs[number]))
        found.append([costs.at(each) for each in configs])
    assert found[0] == found[1]


def test_the_penalty_is_the_one_that_tells_best_what_is_left_out() -> None:
    """As when each row is left out and the rest fitted anew, mean included."""
    chance = np.random.default_rng(3)
    matrix = chance.normal(size=(12, 4))
    values = matrix @ np.array([2.0, 0.0, -1.0, 0.0]) + chance.normal(size=12) * 0.1
    matrix, values = matrix - matrix.mean(axis=0), values - values.mean()

    def rest(penalty: float) -> float:
        total = 0.0
        for row in range(12):
            others = np.arange(12) != row
            means, mean = matrix[others].mean(axis=0), values[others].mean()
            at, of = matrix[others] - means, values[others] - mean
            weights = np.linalg.solve(at.T @ at + penalty * np.eye(4), at.T @ of)
            total += (values[row] - mean - (matrix[row] - means) @ weights) ** 2
        return total

    left, singular, _ = np.linalg.svd(matrix, full_matrices=False)
    for penalty in PENALTIES:
        shrunk = singular**2 / (singular**2 + penalty)
        told = _left_out(values - left @ (shrunk * (left.T @ values)), left**2 @ shrunk)
        assert told == pytest.approx(rest(penalty))
    best = min(PENALTIES, key=rest)
    weights = np.linalg.solve(matrix.T @ matrix + best * np.eye(4), matrix.T @ values)
    assert ridge(matrix, values) == pytest.approx(list(weights))
    assert ridge(np.zeros((12, 4)), values) == [0.0] * 4


def test_a_sampler_means_the_same_numbers() -> None:
    """Optuna's Gaussian process has each parameter in a place from 0 to 1 of its own making."""
    torch = pytest.importorskip("torch")
    from optuna._gp.search_space import SearchSpace
    from optuna.trial import create_trial

    from raysweep.search.models.gp import _param

    costs = Costs()
    distributions = {param.name: param.distribution for param in costs.params}
    inner = SearchSpace(distributions)
    for each in drawn(20):
        raw = costs.raw(each)
        trial = create_trial(params=raw, distributions=distributions, value=1.0)
        places = torch.from_numpy(inner.get_normalized_params([trial])[0])
        found = [_param(at, places[column]) for column, at in enumerate(distributions.values())]
        assert [float(at) for at in found] == pytest.approx([float(at) for at in raw.values()])


VALLEYS: dict[str, Any] = {"x": {"uniform": [-1.0, 1.0]}, "y": {"uniform": [-1.0, 1.0]}}
"""Two places are equally good, at x = -0.6 and 0.6; what is to the right costs a hundred times as much."""


def loss(at: Mapping[str, Any]) -> float:
    return float((abs(at["x"]) - 0.6) ** 2 + at["y"] ** 2)


def price(at: Mapping[str, Any]) -> float:
    return float(10.0 ** (at["x"] + 1.0))


def hunt(search: Any, count: int, *, costs: bool = True) -> tuple[Searcher, list[dict[str, Any]]]:
    searcher = make_searcher(spec_of(search=search, param_space=VALLEYS), 3)
    asked: list[dict[str, Any]] = []
    for number in range(count):
        found = searcher.ask(number)
        assert found is not None
        result = Result(loss(found), cost=price(found) if costs else None)
        tell_end(searcher, number, result, state="completed")
        asked.append(found)
    return searcher, asked


COSTS = {"gp": {"cost_attr": "price", "n_startup_trials": 10}}


@pytest.mark.slow
def test_most_asks_go_by_what_they_cost() -> None:
    """As many in a row as cost about what one does that goes by the score."""
    pytest.importorskip("torch")
    from raysweep.search.models.gp import MOST_BY_COST

    searcher: Any
    searcher, asked = hunt(COSTS, 36)
    costs = sorted(price(at) for at in asked[:10])
    turns = round(fmean(costs) / fmean(costs[:2]))
    assert 1 < turns < MOST_BY_COST, "or this would not show it"
    assert searcher._model._turns_by_cost() == turns
    by_cost = [at["x"] for number, at in enumerate(asked) if number >= 10 and number % (turns + 1)]
    assert sum(x < 0 for x in by_cost) > 0.8 * len(by_cost), "as good, and cheaper"
    without = make_searcher(spec_of(search={"gp": {"n_startup_trials": 10}}, param_space=VALLEYS), 3)
    for number, at in enumerate(asked):
        without.restore(number, at)
        without.tell(number, loss(at), "completed")
    alike = {}
    for number in range(36, 36 + 2 * (turns + 1)):
        alike[number] = searcher.ask(number) == without.ask(number)
        tell_end(searcher, number, None, state="failed")
        tell_end(without, number, None, state="failed")
    assert all(same for number, same in alike.items() if number % (turns + 1) == 0), "by the score alone"
    assert not all(alike.values())


def test_how_much_costs_differ_is_told_by_the_first_ones() -> None:
    costs = Costs()
    configs = drawn(20)
    assert costs.model.spread == 1.0
    for number in reversed(range(20)):  # in whatever order they end
        costs.add(number, configs[number], 1.0 if number in (0, 5) or number > 9 else 20.0)
    assert costs.model.spread == pytest.approx((2 * 1 + 8 * 20) / 10)


def test_what_earlier_sweeps_paid_counts() -> None:
    pytest.importorskip("torch")
    searcher: Any = make_searcher(spec_of(search=COSTS, param_space=VALLEYS), 3)
    for at in ({"x": x / 10, "y": y} for x in range(-9, 10, 3) for y in (-0.5, 0.5)):
        tell_earlier(searcher, at, Result(loss(at), cost=price(at)))
    found = searcher._model._costs.now()
    assert found is not None
    places = {"x": np.array([-1.0, 1.0]), "y": np.array([0.0, 0.0])}
    cheap, dear = found.at(places, np.log)
    assert dear - cheap == pytest.approx(2 * math.log(10), rel=0.05)


def test_without_costs_nothing_is_another() -> None:
    pytest.importorskip("torch")
    _, told = hunt(COSTS, 14, costs=False)
    _, plain = hunt({"gp": {"n_startup_trials": 10}}, 14, costs=False)
    assert told == plain


def test_auto_goes_by_costs_with_a_gaussian_process_alone() -> None:
    pytest.importorskip("torch")
    search = {"auto": {"cost_attr": "price", "switch_after": 10}}
    for space in (SPACE, VALLEYS):
        searcher: Any = make_searcher(spec_of(search=search, param_space=space), 1)
        model = searcher._model
        assert isinstance(model, AutoModel)
        assert isinstance(model._first, RelievedModel)
        assert model._later is model._first


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"metric": ["price", "m"], "mode": ["min", "max"]}, "'price' is the metric itself"),
        ({"metric": ["m", "n"], "mode": ["min", "max"]}, "with several metrics"),
        ({"param_space": {"m": {"choice": {"a": {"x": {"uniform": [0, 1]}}, "b": 1}}}}, "with branches"),
    ],
)
def test_where_costs_cannot_count_it_is_said_before_the_start(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        spec_of(search={"auto": {"cost_attr": "price"}}, **fields)
    assert caught.value.field == "search.auto.cost_attr"


@pytest.mark.parametrize("kind", ["tpe", "cma_es", "random", "nsga2", "bohb"])
def test_searches_that_do_not_go_by_costs_say_so(kind: str) -> None:
    with pytest.raises(SpecError, match="cost_attr"):
        spec_of(search={kind: {"cost_attr": "price"}}, scheduler="hyperband")


def test_another_optuna_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The patch stands for a version whose sampler is made otherwise inside."""
    pytest.importorskip("torch")

    def other(self: GPSampler, acqf_params: Any, best_params: Any) -> Any: ...

    monkeypatch.setattr(GPSampler, "_optimize_acqf", other)
    make_searcher(spec_of(search="gp"), 1)
    with pytest.raises(SpecError, match=r"cost_attr needs Optuna 5\.0"):
        make_searcher(spec_of(search=COSTS), 1)


def test_repeats_cost_their_mean() -> None:
    told: list[Any] = []

    class Inner(Searcher):
        total, note, is_adaptive = 9, None, True

        def ask(self, number: int) -> dict[str, Any]:
            return {"x": number}

        def tell(self, number: int, value: float | None, state: str) -> None:
            told.append((number, value, state))

        def tell_result(self, number: int, result: Result, state: str) -> None:
            told.append((number, result, state))

        def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
            told.append((config, result))

    inner: Any = Inner()
    searcher = RepeatSearcher(inner, Repeat(times=2, seed_param="seed"), 1)
    for number, cost in enumerate([10.0, 30.0, 10.0, None]):
        searcher.ask(number)
        searcher.tell_result(number, Result(float(number), cost=cost), "completed")
    searcher.tell_earlier_result({"x": 5, "seed": 3}, Result(0.5, cost=2.0))
    assert told == [
        (0, Result(0.5, cost=20.0, spread=math.sqrt(0.5)), "completed"),
        (1, Result(2.5, spread=math.sqrt(0.5)), "completed"),
        ({"x": 5}, Result(0.5, cost=2.0)),
    ]


def ran(started_at: float, ended_at: float, end: str) -> AttemptOutcome:
    return AttemptOutcome(attempt=1, started_at=started_at, ended_at=ended_at, end=end)


def test_earlier_nights_tell_what_their_trials_cost(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add_sweep(tmp_path, "n1", [config(), config(lr=0.02), config(lr=0.03)], 100.0)
    folder = SweepFolder(store, sweep_id("flights", "n1"))
    outcome = folder.read_outcome()
    assert outcome is not None
    runs = [
        (ran(10.0, 14.0, "failed"), ran(20.0, 26.0, "completed")),
        (ran(10.0, 14.0, "lost"),),
        (ran(10.0, 11.0, "completed"),),
    ]
    metrics = [{}, {}, {"trial_time_s": 7.5}]
    trials = tuple(
        each.model_copy(update={"attempts": attempts, "metrics": reported})
        for each, attempts, reported in zip(outcome.trials, runs, metrics, strict=True)
    )
    folder.mend_outcome(lambda outcome: outcome.model_copy(update={"trials": trials}))
    tonight = make_spec(tmp_path, warm_start="last", search={"gp": {"cost_attr": "trial_time_s"}})
    warm = recall(store, tonight, sweep_id("flights", "tonight"))
    assert warm is not None
    assert warm.costs == (10.0, None, 7.5)
    assert [each.cost for each in warm.results] == [10.0, None, 7.5]
    assert warm_from_json(warm_to_json(warm)) == warm
    unasked = recall(store, make_spec(tmp_path, warm_start="last"), sweep_id("flights", "tonight"))
    assert unasked is not None
    assert unasked.costs == ()
    assert "costs" not in warm_to_json(unasked)


def test_a_config_that_lacks_nothing_is_a_sum() -> None:
    found = LogCost({"x": lambda raw, _: (raw, raw * raw)}, {"x": (2.0, 3.0)})
    assert found.at({"x": 2.0}, math.log) == 16.0
