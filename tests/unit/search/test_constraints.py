"""Searches under constraints: they go where these are satisfied, and Optuna's are Optuna's; and NSGA-II."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from raysweep.search import Result, Searcher, TrialEnd, WarmStart, make_searcher, tell_end
from raysweep.search.auto import AutoOptions
from raysweep.search.base import derived_seed
from raysweep.search.machinery.stalled import RelievedModel
from raysweep.search.models.auto import AutoModel
from raysweep.search.models.cma import CmaModel, _judged
from raysweep.search.models.optuna_params import params_of
from raysweep.search.models.tpe import TpeModel
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec

SPACE: dict[str, Any] = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}
BOUND = "size >= 0.5"


def spec_of(search: Any, samples: int = 60, space: dict[str, Any] = SPACE, **fields: Any) -> SweepSpec:
    plain = {"name": "s", "trainable": "m:f", "metric": "loss", "mode": "min", "seed": 3}
    plain |= {"constraints": [BOUND], "search": search, "num_samples": samples, "param_space": space}
    return SweepSpec.model_validate(plain | fields)


def loss(config: Mapping[str, Any]) -> float:
    """Least where the constraint is broken by as much as it can be."""
    return float(config["x"] + (config["y"] - 0.3) ** 2)


def run(searcher: Searcher, samples: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number in range(samples):
        config = searcher.ask(number)
        assert config is not None
        found.append(config)
        tell_end(searcher, number, Result(loss(config), (0.5 - config["x"],)), state="completed")
    return found


@pytest.mark.parametrize(
    ("search", "samples"),
    [
        ("tpe", 50),
        pytest.param({"gp": {"n_startup_trials": 8}}, 18, marks=pytest.mark.slow),
        ({"nsga2": {"population_size": 10}}, 80),
        ({"cma_es": {"population_size": 6}}, 80),
    ],
)
def test_a_search_goes_where_the_constraint_is_satisfied(search: Any, samples: int) -> None:
    """Told of none, it would go to x = 0; told, to just above 0.5."""
    configs = run(make_searcher(spec_of(search, samples), 3), samples)
    late = configs[-samples // 4 :]
    assert sum(config["x"] >= 0.45 for config in late) > len(late) // 2
    best = min(loss(config) for config in configs if config["x"] >= 0.5)
    assert best < 0.6, "the least is 0.5"


def test_tpe_is_told_of_constraints_as_optuna_is() -> None:
    """With the same history and seed, Optuna's own `Study.ask` gives the same values."""
    ours = make_searcher(spec_of({"tpe": {"n_startup_trials": 5}}, 30), 3)
    study = optuna.create_study()
    params = params_of(spec_of("tpe").space.searched)
    for number in range(30):
        seed = derived_seed(3, number) % 2**32
        study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=5)
        trial = study.ask({param.name: param.distribution for param in params})
        config = ours.ask(number)
        assert config == trial.params
        trial.set_constraint("0", 0.5 - config["x"])
        study.tell(trial.number, loss(config))
        tell_end(ours, number, Result(loss(config), (0.5 - config["x"],)), state="completed")


class Sorted(optuna.samplers.NSGAIISampler):
    """Optuna sorts a generation's parents by number from its second child on; here from the first."""

    def select_parent(self, study: optuna.Study, generation: int) -> list[FrozenTrial]:
        return sorted(super().select_parent(study, generation), key=lambda trial: trial.number)


def test_nsga2_breeds_as_optuna_does() -> None:
    """One trial at a time, its generations are Optuna's: a child has the same parents and the same values."""
    options: dict[str, Any] = {"population_size": 6}
    ours = make_searcher(spec_of({"nsga2": options}, 40), 3)
    params = params_of(spec_of("nsga2").space.searched)
    study = optuna.create_study()
    for number in range(40):
        study.sampler = Sorted(seed=derived_seed(3, number) % 2**32, **options)
        trial = study.ask({param.name: param.distribution for param in params})
        config = ours.ask(number)
        assert config == pytest.approx(trial.params), number
        trial.set_constraint("0", 0.5 - config["x"])
        study.tell(trial.number, loss(config))
        tell_end(ours, number, Result(loss(config), (0.5 - config["x"],)), state="completed")


def test_a_late_result_moves_the_generations_after_it() -> None:
    """Whether it came late or in time makes no difference to what is asked afterwards."""
    search = {"nsga2": {"population_size": 4, "mutation_prob": 0.0}}
    asked = [{"x": number / 20, "y": 0.5} for number in range(20)]
    asked[2] = {"x": 0.5, "y": 0.3}  # the best of all: a parent, as soon as it is there
    late, timely = (make_searcher(spec_of(search, 40), 3) for _ in range(2))
    for searcher, order in ((late, [*range(2), *range(3, 20), 2]), (timely, list(range(20)))):
        for number, config in enumerate(asked):
            searcher.restore(number, config)
        for number in order:
            result = Result(loss(asked[number]), (0.5 - asked[number]["x"],))
            tell_end(searcher, number, result, state="completed")
            if number == 19:
                assert searcher is timely or searcher.ask(20) is not None
    assert [late.ask(number) for number in range(21, 27)] == [timely.ask(number) for number in range(21, 27)]


def test_a_failed_trial_is_in_no_generation_and_earlier_results_are_parents() -> None:
    told = tuple(({"x": 0.7 + n / 1000, "y": 0.3}, 0.7) for n in range(12))
    warm = WarmStart(told=told, violations=((-0.2,),) * 12)
    search = {"nsga2": {"population_size": 4, "mutation_prob": 0.0}}
    searcher = make_searcher(spec_of(search, 20), 3, warm)
    for number in range(10):
        config = searcher.ask(number)
        assert config is not None
        assert 0.7 <= config["x"] <= 0.72, "crossed from earlier ones; failed ones have no children"
        searcher.tell(number, None, "failed")


@pytest.mark.parametrize("mode", ["min", "max"])
def test_nsga2_searches_in_the_right_direction(mode: str) -> None:
    search = {"nsga2": {"population_size": 8, "mutation_prob": 0.1}}
    searcher = make_searcher(spec_of(search, 120, mode=mode, constraints=[]), 3)
    configs = []
    for number in range(120):
        configs.append(searcher.ask(number) or {})
        value = loss(configs[-1])
        searcher.tell(number, value if mode == "min" else -value, "completed")
    first, last = (sum(map(loss, part)) / len(part) for part in (configs[:8], configs[-40:]))
    assert last < 0.6 * first


def test_auto_goes_from_the_gaussian_process_to_tpe() -> None:
    pytest.importorskip("torch")
    space = spec_of("auto").space
    for has_constraints, later in ((True, TpeModel), (False, CmaModel)):
        model: Any = AutoModel(
            space, 300, 3, "min", AutoOptions(switch_after=12), has_constraints=has_constraints
        )
        assert isinstance(model._first, RelievedModel)
        assert isinstance(model._later, later)
    model = make_searcher(spec_of({"auto": {"switch_after": 12}}, 300), 3)
    assert isinstance(model._model._later, TpeModel), "the spec's constraints are what counts"


def test_for_cma_es_what_breaks_a_constraint_is_worse_than_all_that_does_not() -> None:
    found = [("a", (5.0, 0.0)), ("b", (-9.0, 0.5)), ("c", (2.0, 0.0)), ("d", (-9.0, 2.0))]
    assert _judged(found) == [("a", 5.0), ("b", 5.5), ("c", 2.0), ("d", 7.0)]
    assert _judged([("b", (-9.0, 0.5))]) == [("b", 0.5)]


class Plain(Searcher):
    """A searcher that knows nothing of constraints."""

    is_adaptive, total, note = True, 9, None

    def __init__(self) -> None:
        self.told: list[tuple[int, float | None, TrialEnd]] = []

    def ask(self, number: int) -> dict[str, Any] | None:
        return {"x": 0.1}

    def restore(self, number: int, config: dict[str, Any]) -> None: ...

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        self.told.append((number, value, state))

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        self.told.append((-1, value, "completed"))


def test_one_that_knows_no_constraints_is_told_that_what_breaks_them_failed() -> None:
    searcher = Plain()
    assert not searcher.judges
    tell_end(searcher, 0, Result(0.5, (-1.0, 2.0)), state="completed")
    tell_end(searcher, 1, Result(0.5, (-1.0, 0.0)), state="stopped")
    tell_end(searcher, 2, Result(0.5), state="completed")
    tell_end(searcher, 3, None, state="failed")
    assert searcher.told == [
        (0, None, "failed"),
        (1, 0.5, "stopped"),
        (2, 0.5, "completed"),
        (3, None, "failed"),
    ]


def test_optunas_running_trials_have_no_constraints_yet() -> None:
    """What is asked while others run is asked without a warning, and without their results."""
    searcher = make_searcher(spec_of({"tpe": {"n_startup_trials": 3}}, 20), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", optuna.exceptions.ExperimentalWarning)
        for number in range(12):
            config = searcher.ask(number)
            assert config is not None
            if number % 3:
                tell_end(searcher, number, Result(loss(config), (0.5 - config["x"],)), state="completed")
    trials = searcher._model._study.get_trials()  # type: ignore[attr-defined]
    assert [bool(trial.constraints) for trial in trials] == [bool(number % 3) for number in range(12)]
    assert create_trial(state=TrialState.RUNNING).constraints == {}


def test_a_result_says_how_far_it_is() -> None:
    assert Result(1.0).penalty == 0
    assert Result(1.0, (-3.0, 0.0)).penalty == 0
    assert Result(1.0, (-3.0, 0.25, 1.0)).penalty == 1.25


@pytest.mark.parametrize("bad", ["n/a", "12", [1, 2], {"a": 1}, None, True], ids=repr)
@pytest.mark.parametrize(
    "fields",
    [
        {"constraints": ["lat <= 20", "lat * 2 < 99", "not lat > 30"]},
        {"constraints": ["lat <= 20"], "stop": {"target": -0.4}},
        {"stop": {"trial": {"lat": 99}}},
        {"metric": ["loss", "lat"], "mode": ["min", "min"], "scheduler": {"moasha": {"max_t": 3}}},
        {"scheduler": {"asha": {"max_t": 3, "metric": "lat", "mode": "min"}}},
    ],
    ids=["constraints", "target", "stop", "moasha", "asha"],
)
def test_a_metric_that_is_no_number_ends_no_sweep(fields: dict[str, Any], bad: Any) -> None:
    plain = {"name": "c", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}, "search": "random"}
    spec = SweepSpec.model_validate(
        {**plain, "metric": "loss", "mode": "min", "num_samples": 6, "seed": 1, **fields}
    )

    def run(config: Any, step: int) -> dict[str, Any] | None:
        lat = 3.0 if config["x"] < 0.5 else bad
        return {"loss": -config["x"], "lat": lat} if step < 4 else None

    outcome = simulate(spec, run).outcome
    assert outcome.status in ("completed", "target")
    # With that there is no telling whether it is fast enough, or how it compares.
    if "constraints" in fields and bad is not True:
        assert outcome.best is not None
        assert outcome.best.config["x"] < 0.5
