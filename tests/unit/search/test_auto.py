"""`auto`: which method when, and what it says where one is not there; and the Gaussian process."""

from __future__ import annotations

import importlib.util
import math
import re
import warnings
from typing import Any

import optuna
import pytest

from raysweep.search import Searcher, make_searcher
from raysweep.search.auto import AutoOptions
from raysweep.search.base import Result, derived_seed
from raysweep.search.gp import GpOptions
from raysweep.search.machinery.asking import ask_configs
from raysweep.search.machinery.stalled import RelievedModel
from raysweep.search.models import gp as gp_room
from raysweep.search.models.auto import AutoModel
from raysweep.search.models.cma import CmaModel
from raysweep.search.models.gp import GpModel, warped
from raysweep.search.models.optuna_params import params_of
from raysweep.search.models.tpe import TpeModel
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from tests.sampling import first_of

NUMBERS: dict[str, Any] = {"x": {"uniform": [0, 1]}, "n": {"lograndint": [1, 100]}}
CHOICES: dict[str, Any] = NUMBERS | {"c": {"choice": ["a", "b"]}}


def spec_of(space: dict[str, Any], search: Any = "auto", samples: int = 30, mode: str = "min") -> SweepSpec:
    fields: dict[str, Any] = {"name": "s", "trainable": "m:f", "metric": "m", "mode": mode, "seed": 3}
    return SweepSpec(**fields, param_space=space, num_samples=samples, search=search)


def auto(space: dict[str, Any], samples: int = 300, switch_after: int = 250) -> Any:
    options = AutoOptions(switch_after=switch_after)
    return AutoModel(spec_of(space).space, samples, 3, "min", options)


def hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(  # as where they are not installed
        importlib.util, "find_spec", lambda name, *rest: None if name in packages else find(name, *rest)
    )


def test_numbers_have_a_gaussian_process_and_then_cma_es() -> None:
    model = auto(NUMBERS)
    assert isinstance(model._first, RelievedModel)
    assert isinstance(model._first._first, GpModel)
    assert isinstance(model._first._other, TpeModel)
    assert isinstance(model._later, CmaModel)
    assert model.substitution is None
    for number in range(250):
        assert model._now() is model._first
        model.add(number, {("x",): 0.5, ("n",): 3})
        model.end(number, Result(1.0))
    assert model._now() is model._later


def test_choices_have_tpe_from_beginning_to_end() -> None:
    model = auto(CHOICES)
    assert isinstance(model._first, TpeModel)
    assert model._later is model._first


def test_a_choice_of_one_value_is_none() -> None:
    assert isinstance(auto(NUMBERS | {"c": {"choice": ["a"]}})._first, RelievedModel)


def test_failed_trials_do_not_count_towards_the_switch() -> None:
    model = auto(NUMBERS, switch_after=10)
    for number in range(20):
        model.add(number, {("x",): 0.5, ("n",): 3})
        model.end(number, None if number % 2 else Result(1.0))
    assert model._now() is model._later
    assert auto(NUMBERS, samples=250)._later is not CmaModel


def test_cma_es_goes_on_where_the_gaussian_process_was() -> None:
    """Its first generation is spread about the best of what was found."""
    model = auto(NUMBERS, switch_after=40)
    for number in range(40):
        x = 0.2 + 0.01 * (number % 7) if number % 2 else number / 40
        model.add(number, {("x",): x, ("n",): 10})
        model.end(number, Result((x - 0.23) ** 2))
    xs = [model.sample(number, 0)["x",] for number in range(40, 60)]
    assert abs(sum(xs) / 20 - 0.23) < 0.1


@pytest.mark.parametrize(
    ("missing", "samples", "expected"),
    [
        (
            ["torch"],
            30,
            r"torch is not installed, .* needs \(pip install raysweep\[gp\]\)",
        ),
        (["torch", "scipy"], 30, r"torch and scipy are not installed"),
        (["cmaes"], 300, r"cmaes is not installed, for many trials \(pip install raysweep\[search\]\)"),
        (["torch", "cmaes"], 300, r"torch is .*; cmaes is"),
    ],
)
def test_what_is_missing_is_said_and_tpe_is_used(
    monkeypatch: pytest.MonkeyPatch, missing: list[str], samples: int, expected: str
) -> None:
    hide(monkeypatch, *missing)
    searcher = make_searcher(spec_of(NUMBERS, samples=samples), 3)
    answers = [ask_configs(searcher, number, 1) for number in range(2)]
    assert answers[0].note.startswith("search: auto uses TPE: ")
    assert re.search(expected, answers[0].note)
    assert not answers[1].note, "once is enough"
    model: Any = auto(NUMBERS, samples)
    assert isinstance(model._first, TpeModel if "torch" in missing else RelievedModel)
    assert isinstance(model._later, RelievedModel if samples <= 250 and "torch" not in missing else TpeModel)


def test_cmaes_is_not_missed_by_a_sweep_of_few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "cmaes")
    assert make_searcher(spec_of(NUMBERS, samples=250), 3).ask(0) is not None
    assert not ask_configs(make_searcher(spec_of(NUMBERS, samples=250), 3), 0, 1).note


def test_the_outcome_says_what_was_done_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a champion's config and points."""
    hide(monkeypatch, "torch")
    spec = spec_of(NUMBERS, samples=4).replace(points=[{"x": 0.5}])
    outcome = simulate(spec, lambda config, step: {"m": config["x"]} if step < 2 else None).outcome
    assert outcome.status == "completed"
    assert any("auto uses TPE: torch is not installed" in note for note in outcome.notes)


# -- the Gaussian process ----------------------------------------------------------------------------------


def gp(mode: str = "min", **options: Any) -> Searcher:
    return make_searcher(spec_of(NUMBERS, {"gp": {"n_startup_trials": 5} | options}, mode=mode), 3)


@pytest.mark.parametrize("mode", first_of(["min", "max"]))
def test_it_searches_in_the_right_direction(mode: str) -> None:
    searcher, distances = gp(mode), []
    for number in range(15):
        config = searcher.ask(number)
        assert config is not None
        distances.append(abs(config["x"] - 0.8) + abs(math.log10(config["n"]) - 1))
        searcher.tell(number, distances[-1] if mode == "min" else -distances[-1], "completed")
    assert min(distances[5:]) < min(0.2, *distances[:5])


def test_diverged_trials_are_the_worst_ones_and_break_nothing() -> None:
    searcher = gp()
    configs: list[Any] = []
    for number in range(20):
        configs.append(searcher.ask(number))
        x = configs[-1]["x"]
        searcher.tell(number, math.inf if x > 0.5 else -x, "completed")
    assert sum(config["x"] < 0.55 for config in configs[8:]) >= 8


def test_of_many_results_the_best_and_the_newest_are_modelled() -> None:
    model = GpModel(spec_of(NUMBERS).space, 3, "max", GpOptions(max_results=12))
    for number in range(30):
        model.add(number, {("x",): number / 30, ("n",): 3})
        if number < 29:
            model.end(number, Result(float(-number) if number % 2 else -100.0 - number))
    trials = model.study_to_ask().get_trials(deepcopy=False)
    done = sorted(round(t.params["x"] * 30) for t in trials if t.state == optuna.trial.TrialState.COMPLETE)
    assert done == [1, 3, 5, 7, *range(21, 29)]
    assert [round(t.params["x"] * 30) for t in trials if not t.state.is_finished()] == [29]


def test_warping_keeps_the_order_and_brings_far_values_near() -> None:
    values = [1.0, 300.0, 2.0, 3.0, 5.0, 0.5, 90.0, 2.5]
    bent = warped(values)
    assert sorted(range(8), key=bent.__getitem__) == sorted(range(8), key=values.__getitem__)
    spread = max(values) - min(values), max(bent) - min(bent)
    assert (bent[3] - bent[0]) / spread[1] > 5 * (values[3] - values[0]) / spread[0]


@pytest.mark.parametrize("values", [[2.0] * 5, [0.0, 1e308, -1e308], [1.0]])
def test_values_that_cannot_be_warped_stay(values: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert warped(values) == values


@pytest.mark.slow
def test_without_warping_asks_are_optunas(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same history and seed, Optuna's own sampler gives the same values, but for whole lines."""
    monkeypatch.setattr(gp_room, "MOST_AT_ONCE", 0)
    ours = gp(warp=False, n_startup_trials=6)
    params = params_of(spec_of(NUMBERS).space.searched)
    study = optuna.create_study(direction="minimize")
    for number in range(14):
        study.sampler = optuna.samplers.GPSampler(seed=derived_seed(3, number, 0) % 2**32, n_startup_trials=6)
        trial = study.ask({param.name: param.distribution for param in params})
        config = ours.ask(number)
        assert config == {param.name: param.to_value(trial.params[param.name]) for param in params}
        if number % 5 != 4:  # the others stay running
            study.tell(trial.number, config["x"])
            ours.tell(number, config["x"], "completed")
