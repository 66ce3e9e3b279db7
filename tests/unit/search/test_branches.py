"""Branches: a config has the parameters of the one that was taken, whatever the search, however deep."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from optuna.exceptions import ExperimentalWarning

from raysweep.cli.commands.planning.plan import _fixed
from raysweep.errors import SpecError
from raysweep.outcome import TrialOutcome, trial_row
from raysweep.outcome.showing.formatting import show_config
from raysweep.search import WarmStart, make_searcher
from raysweep.search.auto import AutoOptions
from raysweep.search.base import Result
from raysweep.search.machinery.warm_start import at_constants, refit
from raysweep.search.models.auto import AutoModel
from raysweep.search.models.tpe import TpeModel
from raysweep.search.spec import SearchSpec
from raysweep.search.tpe import TpeOptions
from raysweep.simulate import simulate
from raysweep.space.perturbation import explore, mutable_leaves
from tests.unit.search.branches import (
    COUNT,
    COUNTED,
    DEAR_IS_SLOW,
    MODELS,
    SEARCHES,
    TWO,
    ask_all,
    fits,
    make_spec,
    score,
    text,
)
from tests.unit.simulate.exactness import Exact, kills_of
from tests.unit.simulate.sweeps import shown

# -- what a config looks like ----------------------------------------------------------------------------


def test_a_config_has_the_branch_that_was_taken_and_nothing_of_the_others() -> None:
    configs = ask_all(make_spec(num_samples=40))
    assert {next(iter(config["model"])) for config in configs} == {"svm", "forest"}
    for config in configs:
        assert fits(MODELS, config)
        match config["model"]:
            case {"forest": params}:
                assert params.keys() == {"depth", "criterion"}
            case {"svm": {"c": float(), "kernel": {"rbf": {"gamma": float()}}}}:
                pass
            case {"svm": {"c": float(), "kernel": kernel}}:
                assert kernel == {"linear": {}}


def test_its_parameters_have_flat_names_where_people_read_them() -> None:
    config = {"lr": 0.5, "model": {"svm": {"c": 1.5, "kernel": {"rbf": {"gamma": 0.25}}}}}
    assert show_config(config) == "lr=0.5 model.svm.c=1.5 model.svm.kernel.rbf.gamma=0.25"
    trial = TrialOutcome(trial_id="0", number=0, state="completed", config=config)
    row = trial_row(trial)
    assert row["config/model/svm/kernel/rbf/gamma"] == 0.25


def test_functions_are_called_in_the_branch_that_was_taken() -> None:
    space = {
        "x": {"uniform": [0, 1]},
        "b": {"choice": {"f": {"y": {"sample_from": _half}}, "g": {"sample_from": _half}, "n": 1}},
    }
    configs = ask_all(make_spec(param_space=space, num_samples=30))
    assert {next(iter(config["b"])) for config in configs} == {"f", "g", "n"}
    for config in configs:
        half = config["x"] / 2
        assert config["b"] in ({"f": {"y": half}}, {"g": half}, {"n": 1})


def _half(config: Any) -> float:
    return float(config["x"]) / 2


def test_what_is_fixed_in_a_branch_is_not_fixed() -> None:
    space = {"k": 3, "b": {"choice": {"x": {"j": 1, "u": {"uniform": [0, 1]}}, "y": 2}}}
    assert _fixed(make_spec(param_space=space).space) == {"k": 3}


# -- each search -----------------------------------------------------------------------------------------


def test_each_search_is_here_or_has_a_test_of_its_own() -> None:
    assert {*SEARCHES, "grid", "configs", "nsga3", "bohb"} - {"tpe_alone"} == set(SearchSpec.kinds)


@pytest.mark.parametrize("search", DEAR_IS_SLOW)
def test_every_search_takes_every_branch(search: str) -> None:
    configs = ask_all(make_spec(search=SEARCHES[search], num_samples=9 if search == "gp" else 30))
    assert all(fits(MODELS, config) for config in configs)
    assert {next(iter(config["model"])) for config in configs} == {"svm", "forest"}


@pytest.mark.parametrize(
    "search", [name for name in SEARCHES if name not in ("gp", "cma_es", "nsga2", "auto")]
)
def test_a_discrete_tree_is_tried_once_and_whole(search: str) -> None:
    asked = {"random": {"distinct": True}} if search == "random" else SEARCHES[search]
    spec = make_spec(search=asked, param_space=COUNTED, num_samples=99)
    assert spec.space.cardinality == COUNT
    searcher = make_searcher(spec, 1)
    assert searcher.total == COUNT
    configs = ask_all(spec)
    assert len({text(config) for config in configs}) == len(configs) == COUNT
    assert all(fits(COUNTED, config) for config in configs)


def test_a_grid_of_branches_has_a_point_for_each_leaf_of_the_tree() -> None:
    space = {
        "g": {
            "grid_search": {
                "x": {"p": {"grid_search": [1, 2]}, "q": {"grid_search": {"u": TWO, "v": 0}}},
                "y": {"r": {"uniform": [0, 1]}},
                "z": None,
            }
        },
        "h": TWO,
    }
    spec = make_spec(search="grid", param_space=space, num_samples=3)
    configs = ask_all(spec)
    assert len(configs) == 3 * 2 * (2 * 3 + 1 + 1)
    assert all(fits(space, config) for config in configs)
    counts = Counter(text({**c, "g": c["g"] if "y" not in c["g"] else "y"}) for c in configs)
    assert set(counts.values()) == {3}
    assert simulate(spec.replace(stop={"target": 0.1}), _flat).outcome.num_trials == 48


def _flat(config: Mapping[str, Any], step: int) -> Mapping[str, Any] | None:
    return {"loss": 0.0} if step == 1 else None


def test_in_a_grid_of_branches_no_discrete_config_comes_twice_where_they_are_distinct() -> None:
    space = {"g": {"grid_search": {"x": {"n": {"randint": [0, 2]}}, "y": {"n": {"randint": [0, 5]}}}}}
    spec = make_spec(search={"grid": {"distinct": True}}, param_space=space, num_samples=4)
    searcher = make_searcher(spec, 1)
    configs = [searcher.ask(number) for number in range(6)]
    assert (searcher.total, searcher.ask(6)) == (6, None)
    assert Counter(next(iter(config["g"])) for config in configs if config) == {"x": 2, "y": 4}
    assert len({str(config) for config in configs}) == 6
    rebuilt = make_searcher(spec, 1)
    for number, config in enumerate(configs[:4]):
        rebuilt.restore(number, config or {})
    assert [rebuilt.ask(number) for number in (4, 5)] == configs[4:]


def test_tpe_learns_inside_the_branch_that_is_good() -> None:
    """Its parameters are near the optimum there, and it is taken more often than not."""

    def loss(config: Mapping[str, Any]) -> float:
        good = config["model"].get("svm")
        return abs(good["c"] - 3.0) / 10 if good is not None else 1.0

    for options in ({"n_startup_trials": 10}, {"n_startup_trials": 10, "multivariate": False}):
        spec = make_spec(search={"tpe": options}, num_samples=60)
        searcher, configs = make_searcher(spec, 1), []
        for number in range(60):
            config = searcher.ask(number) or {}
            searcher.tell(number, loss(config), "completed")
            configs.append(config)
        late = [config["model"]["svm"]["c"] for config in configs[30:] if "svm" in config["model"]]
        assert len(late) > 20
        assert sum(abs(c - 3.0) < 1.5 for c in late) > len(late) / 2


def test_a_model_that_wants_a_branch_that_is_used_up_takes_another() -> None:
    """The other one never is: of a quantised normal distribution there is always more."""
    space = {"b": {"choice": {"endless": {"n": {"qrandn": [0, 1, 1]}}, "good": {"k": {"choice": [1, 2]}}}}}
    for options in ({"n_startup_trials": 2}, {"n_startup_trials": 2, "multivariate": False}):
        spec = make_spec(search={"tpe": options}, param_space=space, num_samples=20)
        searcher, configs = make_searcher(spec, 1), []
        for number in range(20):
            config = searcher.ask(number) or {}
            searcher.tell(number, 0.0 if "good" in config["b"] else 1.0, "completed")
            configs.append(text(config))
        assert len(set(configs)) == 20


def test_tpe_models_what_is_in_one_branch_together() -> None:
    """Optuna's groups: with them, parameters that not every trial has are sampled from one joint model."""
    space = make_spec().space
    model = TpeModel(space, 1, "min", TpeOptions(n_startup_trials=2))
    for number, config in enumerate(ask_all(make_spec(num_samples=12))):
        model.add(number, space.read(config))
        model.end(number, Result(score(config)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        sampler = model.make_sampler(1)
    joint = sampler.infer_relative_search_space(model.study_to_ask(), model.study_to_ask().trials[0])
    assert {"lr", "model", "model/svm/c", "model/forest/depth"} <= joint.keys()


def test_auto_models_branches_by_tpe() -> None:
    space = {"x": {"uniform": [0, 1]}, "b": {"choice": {"only": {"y": {"uniform": [0, 1]}}}}}
    model = AutoModel(make_spec(param_space=space).space, 500, 1, "min", AutoOptions())
    assert isinstance(model._first, TpeModel)
    assert model._later is model._first


@pytest.mark.parametrize("search", ["gp", "cma_es", "nsga2"])
def test_a_model_of_what_every_config_has_is_refused_where_there_is_nothing(search: str) -> None:
    spec = make_spec(search=search, param_space={"model": MODELS["model"]})
    with pytest.raises(SpecError, match=f'^search: {search} models .*; take "tpe" or "auto"'):
        make_searcher(spec, 1)


@pytest.mark.parametrize("search", ["tpe", "gp"])
def test_what_does_not_walk_grids_refuses_one_of_branches(search: str) -> None:
    space = {"g": {"grid_search": {"x": 1, "y": {"n": {"uniform": [0, 1]}}}}}
    with pytest.raises(SpecError, match=r"^param_space\.g: grid_search cannot be combined"):
        make_searcher(make_spec(search=search, param_space=space), 1)


# -- relations, points, memory ---------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["random", "tpe", "cma_es", "walk"])
def test_a_relation_holds_of_a_config_without_its_parameter(search: str) -> None:
    space = COUNTED if search == "walk" else MODELS
    kind = {"random": {"distinct": True}} if search == "walk" else SEARCHES[search]
    where = (
        ["b.x.p.u.n < b.x.p.u.m", 'b != "y" or a == 2']
        if search == "walk"
        else ["model.svm.c < 5 + lr", 'model != "forest" or lr > 0.01']
    )
    spec = make_spec(search=kind, param_space=space, where=where, num_samples=20)
    configs = ask_all(spec)
    taken = Counter(next(iter(config.get("model") or config["b"])) for config in configs)
    assert len(taken) == (3 if search == "walk" else 2)
    for config in configs:
        if search == "walk":
            inner = config["b"].get("x", {}).get("p", {}).get("u")
            assert inner is None or inner["n"] < inner["m"]
            assert "y" not in config["b"] or config["a"] == 2
        else:
            assert "svm" not in config["model"] or config["model"]["svm"]["c"] < 5 + config["lr"]
            assert "forest" not in config["model"] or config["lr"] > 0.01
    if search == "walk":
        # Of x: u with n < m is 3 of 6, v 1, at two a; of y 3 at one; z at two.
        assert len(configs) == 2 * (3 + 1) + 3 + 2


def test_a_grid_leaves_out_the_branch_that_a_relation_forbids() -> None:
    space = {"g": {"grid_search": {"x": {"n": {"randint": [0, 9]}}, "y": 0}}, "h": TWO}
    configs = ask_all(make_spec(param_space=space, num_samples=1, where='g != "x" or h == 2'))
    assert sorted((next(iter(config["g"])), config["h"]) for config in configs) == [
        ("x", 2),
        ("y", 1),
        ("y", 2),
    ]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("model.svm.d < 1", "'model.svm.d' is not in param_space; did you mean 'model.svm.c'"),
        ("model.knn.k < 1", "'model.knn.k' is not in param_space, where there is no branch 'knn'"),
    ],
)
def test_a_relation_to_what_no_branch_has_is_refused(where: str, said: str) -> None:
    with pytest.raises(SpecError, match=rf"^where\[0\]: {re.escape(said)}"):
        make_spec(where=where)


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_points_take_a_branch_and_leave_the_rest_of_it_to_be_drawn(search: str) -> None:
    points = [
        {"model": {"svm": {"c": 2.5}}},
        {"model": {"forest": {}}},
        {"model": {"svm": {"kernel": {"rbf": {}}}}},
        {"lr": 0.5},
    ]
    configs = ask_all(make_spec(search=SEARCHES[search], points=points, num_samples=8))
    assert all(fits(MODELS, config) for config in configs)
    assert configs[0]["model"]["svm"]["c"] == 2.5
    assert "depth" in configs[1]["model"]["forest"]
    assert "gamma" in configs[2]["model"]["svm"]["kernel"]["rbf"]
    assert configs[3]["lr"] == 0.5


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ({"model": "svm"}, r"points\[0\]\.model: 'svm' is not one branch"),
        ({"model": {"svm": {}, "forest": {}}}, r"points\[0\]\.model: .* is not one branch"),
        ({"model": {"knn": {}}}, r"points\[0\]\.model: 'knn' is outside"),
        ({"model": {"svm": {"c": 99}}}, r"points\[0\]\.model\.svm\.c: 99 is outside"),
        ({"model": {"svm": {"depth": 3}}}, r"points\[0\]\.model\.svm\.depth: is not in param_space"),
        ({"model": {"forest": {"criterion": "x"}}}, r"points\[0\]\.model\.forest\.criterion: is fixed to"),
    ],
)
def test_a_point_that_does_not_fit_names_its_path(point: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=f"^{said}"):
        make_searcher(make_spec(points=[point]), 1)


def test_earlier_configs_fit_where_their_branch_is_still_there() -> None:
    space = make_spec().space
    config = {"lr": 0.5, "model": {"forest": {"depth": 3, "criterion": "entropy"}}}
    assert refit(space, config) == {"lr": 0.5, "model": {"forest": {"depth": 3, "criterion": "gini"}}}
    assert at_constants(MODELS, config) == refit(space, config)
    assert at_constants(MODELS, {"model": {"knn": 1}}) == {"model": {"knn": 1}}
    for wrong, said in [
        ({"lr": 0.5, "model": {"knn": {"k": 1}}}, "model='knn' is outside tonight's space"),
        ({"lr": 0.5, "model": {"forest": {}}}, "has no model.forest.depth"),
        ({"lr": 0.5, "model": {"forest": {"depth": 3, "old": 1}}}, "has model.forest.old, which tonight's"),
        ({"lr": 0.5, "model": 3}, "has no model"),
    ]:
        with pytest.raises(ValueError, match=f"^{said}"):
            refit(space, wrong)


@pytest.mark.parametrize("search", ["tpe", "gp", "cma_es", "auto"])
def test_a_warm_start_tells_every_model_of_earlier_branches(search: str) -> None:
    told = [(config, score(config)) for config in ask_all(make_spec(num_samples=12, seed=9))]
    warm = WarmStart(first=told[0][0], told=tuple(told))
    searcher = make_searcher(make_spec(search=SEARCHES[search]), 1, warm)
    assert searcher.ask(0) == told[0][0]
    assert fits(MODELS, searcher.ask(1))


# -- populations -----------------------------------------------------------------------------------------


def test_a_population_explores_the_branch_that_it_is_in() -> None:
    names = {".".join(path) for path, _ in mutable_leaves(MODELS)}
    assert names == {"lr", "model.svm.c", "model.svm.kernel.rbf.gamma", "model.forest.depth"}
    for config in ask_all(make_spec(num_samples=10)):
        found = explore(config, mutable_leaves(MODELS), 3, resample_probability=0.5, factors=(1.2, 0.8))
        assert fits(MODELS, found)
        assert found != config
        assert found["model"].keys() == config["model"].keys()


# -- whole sweeps ----------------------------------------------------------------------------------------

KILLED: dict[str, dict[str, Any]] = {
    "random": {"search": "random"},
    "tpe": {"search": SEARCHES["tpe"], "scheduler": {"asha": {"max_t": 9, "reduction_factor": 3}}},
    "pbt": {"scheduler": {"pbt": {"perturbation_interval": 2, "synch": True, "max_t": 9}}},
    "points": {"search": SEARCHES["tpe_alone"], "points": [{"model": {"forest": {"depth": 3}}}]},
    "where": {"search": SEARCHES["tpe"], "where": ["model.svm.c < 20 * x"]},
    "discrete": {"search": SEARCHES["tpe"], "param_space": {"x": {"choice": [0.1, 0.7]}, "b": COUNTED["b"]}},
}


@pytest.mark.faults
@pytest.mark.parametrize("name", KILLED)
def test_killed_it_goes_on_as_one_that_never_was(name: str) -> None:
    space = {"x": {"uniform": [0, 1]}, "model": MODELS["model"]}
    fields = {
        "param_space": space,
        "num_samples": 10,
        "max_concurrent_trials": 1,
        "name": "toy",
        **KILLED[name],
    }
    exact = Exact(name, "none", make_spec(**fields), save_every=2)
    expected = exact.run()
    assert expected.outcome.status == "completed"
    kills = kills_of(expected)
    for kill in Random(name).sample(kills, 3):
        assert shown(exact.run(kill)) == shown(expected), kill
