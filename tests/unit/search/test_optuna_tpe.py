"""TPE: restarts that change nothing, the whole vocabulary, repeats, and agreement with Optuna itself."""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from typing import Any

import optuna
import orjson
import pytest

from raysweep.errors import SpecError
from raysweep.search import Searcher, make_searcher
from raysweep.search.base import derived_seed
from raysweep.search.models.optuna_params import params_of
from raysweep.specs import SweepSpec

VOCABULARY: dict[str, Any] = {
    "u": {"uniform": [-1, 1]},
    "lu": {"loguniform": [1e-4, 1e-1]},
    "qu": {"quniform": [0.1, 0.9, 0.1]},
    "qlu": {"qloguniform": [0.01, 10, 0.01]},
    "i": {"randint": [0, 20]},
    "qi": {"qrandint": [8, 128, 8]},
    "li": {"lograndint": [1, 1000]},
    "qli": {"qlograndint": [8, 512, 8]},
    "n": {"randn": [0, 1]},
    "qn": {"qrandn": [0, 2, 0.5]},
    "c": {"choice": ["a", None, 1, 1.0, True, {"k": [1, 2]}, [3]]},
    "one": {"choice": ["only"]},
    "nest": {"a/b": {"uniform": [0, 1]}, "list": [{"randint": [0, 5]}, {"uniform": [2, 2]}], "k": 7},
    "f": {"sample_from": lambda config: config["i"] * 2},
}
SMALL: dict[str, Any] = {"x": {"uniform": [0, 1]}, "c": {"choice": ["a", "b", {"z": 1}]}}
DISCRETE: dict[str, Any] = {"i": {"randint": [0, 6]}, "c": {"choice": ["a", "b", {"z": 1}]}}  # 18 cells


def searcher(
    space: dict[str, Any], num_samples: int = 100, seed: int = 1, mode: str = "max", **options: Any
) -> Searcher:
    fields: dict[str, Any] = {"name": "s", "trainable": "m:f", "metric": "m", "search": {"tpe": options}}
    spec = SweepSpec(param_space=space, num_samples=num_samples, mode=mode, **fields)
    return make_searcher(spec, seed)


def asked(search: Searcher, number: int) -> dict[str, Any]:
    config = search.ask(number)
    assert config is not None
    return config


def end_of(number: int, config: dict[str, Any]) -> tuple[float | None, Any]:
    """A made-up result: mostly a value, now and then a failure or an early stop."""
    if number % 11 == 5:
        return None, "failed"
    value = float(config.get("x", config.get("u", config.get("i", 0))))
    return -((value - 0.3) ** 2), "stopped" if number % 3 == 0 else "completed"


OPTIONS = [
    {"multivariate": multivariate, "constant_liar": liar, "n_startup_trials": 6}
    for multivariate in (False, True)
    for liar in (False, True)
]


SPACES = {"vocabulary": VOCABULARY, "small": SMALL, "discrete": DISCRETE}


# Each of them with each of the others for once; all together every night.
@pytest.mark.parametrize(
    ("width", "space", "options"),
    [
        pytest.param(
            width, SPACES[name], options, id=f"{width}-{name}-options{number}",
            marks=() if (width == 4) == (number in (0, 3)) else pytest.mark.slow,
        )
        for width in (1, 4)
        for name in SPACES
        for number, options in enumerate(OPTIONS)
    ],
)  # fmt: skip
def test_a_restart_changes_no_ask(space: dict[str, Any], options: dict[str, Any], width: int) -> None:
    """Rebuilt from JSON at any point, also with running trials, the search continues as the first did."""
    total = 18 if space is DISCRETE else 36
    first = searcher(space, total, **options)
    rng = random.Random(width)
    configs: list[dict[str, Any]] = []
    told: list[tuple[int, float | None, Any]] = []
    running: list[int] = []
    histories: list[list[tuple[int, float | None, Any]]] = []  # what had been told before each ask
    for number in range(total):
        histories.append(list(told))
        configs.append(asked(first, number))
        running.append(number)
        while len(running) >= width:
            ended = running.pop(rng.randrange(len(running)))
            told.append((ended, *end_of(ended, configs[ended])))
            first.tell(*told[-1])
    for at in (0, 1, 5, 9, 14, 17, 25, 33):
        if at >= total:
            continue
        rebuilt = searcher(space, total, **options)
        for number in range(at):
            rebuilt.restore(number, orjson.loads(orjson.dumps(configs[number])))
        for tell in sorted(histories[at], key=lambda item: item[0]):
            rebuilt.tell(*tell)
        for number in range(at, min(at + 3, total)):
            assert asked(rebuilt, number) == configs[number], (at, number)
            for tell in histories[number + 1][len(histories[number]) :] if number + 1 < total else []:
                rebuilt.tell(*tell)


@pytest.mark.parametrize("multivariate", [False, True])
@pytest.mark.parametrize("liar", [False, True])
def test_asks_are_optunas(multivariate: bool, liar: bool) -> None:
    """With the same history and seed, Optuna's own `Study.ask` gives the same values."""
    space = {key: VOCABULARY[key] for key in ("u", "lu", "qu", "i", "qi", "li", "c", "nest")}
    options: dict[str, Any] = {"multivariate": multivariate, "constant_liar": liar, "n_startup_trials": 8}
    ours = searcher(space, 30, seed=3, **options)
    spec_space = SweepSpec(name="s", trainable="m:f", param_space=space, metric="m", mode="max").space
    params = params_of(spec_space.searched)
    study = optuna.create_study(direction="maximize")
    for number in range(30):
        study.sampler = optuna.samplers.TPESampler(seed=derived_seed(3, number) % 2**32, **options)
        trial = study.ask({param.name: param.distribution for param in params})
        config = asked(ours, number)
        for param in params:
            node: Any = config
            for part in param.path:
                node = node[int(part)] if isinstance(node, list) else node[part]
            assert node == param.to_value(trial.params[param.name])
        if number % 5 != 4:  # the others stay running
            study.tell(trial.number, config["u"])
            ours.tell(number, config["u"], "completed")


def test_constraints_require_optuna_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optuna.trial.FrozenTrial", type("TrialOfOptuna4", (), {}))
    spec = SweepSpec(
        name="s",
        trainable="m:f",
        param_space=SMALL,
        metric="m",
        mode="max",
        search="tpe",
        constraints=["k <= 1"],
    )
    with pytest.raises(
        SpecError, match=r"constraints: requires Optuna 5 in this search \(got .*upgrade optuna"
    ):
        make_searcher(spec, 3)


@pytest.mark.skipif(optuna.__version__ < "5", reason="Optuna 4 has other defaults")
def test_the_default_is_optunas_own() -> None:
    """With no option set, neither here nor there, the asks are the same."""
    ours = searcher(SMALL, 40, seed=3)
    spec_space = SweepSpec(name="s", trainable="m:f", param_space=SMALL, metric="m", mode="max").space
    params = params_of(spec_space.searched)
    study = optuna.create_study(direction="maximize")
    for number in range(40):
        study.sampler = optuna.samplers.TPESampler(seed=derived_seed(3, number) % 2**32)
        trial = study.ask({param.name: param.distribution for param in params})
        config = asked(ours, number)
        assert config == {param.name: param.to_value(trial.params[param.name]) for param in params}
        if number % 5 != 4:  # the others stay running
            study.tell(trial.number, config["x"])
            ours.tell(number, config["x"], "completed")


def test_every_word_of_the_vocabulary_stays_in_its_domain() -> None:
    """Values are such as `Domain.sample` draws, in the startup phase and after it."""
    search = searcher(VOCABULARY, 60)
    for number in range(60):
        config = asked(search, number)
        search.tell(number, config["u"] + config["qli"] / 100, "completed")
        assert -1 <= config["u"] <= 1
        assert 1e-4 <= config["lu"] <= 1e-1
        assert config["qu"] in [k * 0.1 for k in range(1, 10)]
        assert config["qlu"] == round(config["qlu"] / 0.01) * 0.01
        assert 0.01 <= config["qlu"] <= 10
        assert config["i"] in range(20)
        assert config["qi"] in range(8, 129, 8)
        assert config["li"] in range(1, 1000)
        assert config["qli"] in range(8, 513, 8)
        assert config["qn"] == round(config["qn"] / 0.5) * 0.5
        assert config["c"] in ["a", None, 1, 1.0, True, {"k": [1, 2]}, [3]]
        assert config["one"] == "only"
        assert config["nest"]["list"][1] == 2.0
        assert config["nest"]["k"] == 7
        assert config["f"] == config["i"] * 2
        assert type(config["i"]) is type(config["qi"]) is type(config["li"]) is int
        assert orjson.loads(orjson.dumps(config)) == config


@pytest.mark.parametrize("mode", ["min", "max"])
def test_it_searches_in_the_right_direction(mode: str) -> None:
    """After the startup phase the values gather at the optimum of the given mode."""
    search = searcher({"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}, 60, mode=mode)
    distances = []
    for number in range(60):
        config = asked(search, number)
        distance = abs(config["x"] - 0.8) + abs(config["y"] - 0.2)
        distances.append(distance)
        search.tell(number, distance if mode == "min" else -distance, "completed")
    assert sum(distances[40:]) / 20 < 0.5 * sum(distances[:10]) / 10


def test_a_discrete_space_is_walked_once() -> None:
    """No config comes twice; the search ends with the last one and says so."""
    search = searcher(DISCRETE, 50)
    assert search.total == 18
    assert search.note is not None
    assert "18" in search.note
    seen = set()
    for number in range(18):
        config = asked(search, number)
        seen.add(orjson.dumps(config))
        search.tell(number, float(config["i"]), "completed")
    assert len(seen) == 18
    assert search.ask(18) is None


def test_repeats_are_avoided_long_before_the_end() -> None:
    """A sampler that has found the optimum of a large discrete space still asks for new configs."""
    search = searcher({"a": {"randint": [0, 40]}, "b": {"randint": [0, 40]}}, 120)
    seen = set()
    for number in range(120):
        config = asked(search, number)
        seen.add((config["a"], config["b"]))
        search.tell(number, -abs(config["a"] - 20) - abs(config["b"] - 20), "completed")
    assert len(seen) == 120


@pytest.mark.parametrize(("value", "state"), [(None, "completed"), (math.nan, "stopped"), (0.5, "failed")])
def test_trials_without_a_value_are_failures(value: float | None, state: Any) -> None:
    """They count neither as good nor as bad: the asks are those of a study without values."""
    plain, failing = (searcher(SMALL, n_startup_trials=1, constant_liar=False) for _ in range(2))
    for number in range(6):
        assert asked(failing, number) == asked(plain, number)
        failing.tell(number, value, state)


def test_infinite_values_are_taken_as_bad_or_good() -> None:
    """A diverged trial in `min` mode is the worst one, not a failure."""
    search = searcher(SMALL, mode="min", n_startup_trials=2)
    for number in range(8):
        config = asked(search, number)
        search.tell(number, math.inf if number % 2 else config["x"], "completed")
    assert 0 <= asked(search, 8)["x"] <= 1


def test_a_second_tell_changes_nothing() -> None:
    """Nor does one about a trial that was never asked for."""
    once, twice = searcher(SMALL, n_startup_trials=2), searcher(SMALL, n_startup_trials=2)
    for number in range(12):
        config = asked(once, number)
        assert asked(twice, number) == config
        once.tell(number, config["x"], "completed")
        twice.tell(number, config["x"], "completed")
        twice.tell(number, -config["x"], "completed")
        twice.tell(99, 1.0, "completed")


def test_grid_search_is_refused() -> None:
    """The error names the field and both ways out."""
    with pytest.raises(SpecError, match=r"param_space\.n\.g: grid_search.*choice.*grid"):
        searcher({"x": {"uniform": [0, 1]}, "n": {"g": {"grid_search": [1, 2]}}})


@pytest.mark.parametrize(
    "config", [{}, {"x": 0.5, "c": "gone"}, {"x": 7.0, "c": "a"}, {"x": "text", "c": "a"}]
)
def test_a_config_of_another_space_is_refused(config: dict[str, Any]) -> None:
    """Never guessed around: TPE would model values that the space does not have."""
    with pytest.raises(SpecError, match="the saved config of trial 0 does not fit"):
        searcher(SMALL).restore(0, config)


def test_optuna_stays_quiet_and_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    """No message of Optuna, and no setting of its logging is changed."""
    verbosity = optuna.logging.get_verbosity()
    search = searcher(SMALL, multivariate=True, constant_liar=True)
    search.tell(0, asked(search, 0)["x"], "completed")
    assert optuna.logging.get_verbosity() == verbosity
    assert capfd.readouterr() == ("", "")


def test_missing_optuna_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install; other searches work without it."""
    for name in (
        "raysweep.search.models.tpe",
        "raysweep.search.models.optuna_model",
        "raysweep.search.models.optuna_params",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SpecError, match=r"search: .*Optuna.*pip install raysweep\[ray\]"):
        searcher(SMALL)


PROGRAM = """
import sys
from raysweep.search import make_searcher
from raysweep.specs import SweepSpec
assert not {"optuna", "ray", "numpy"} & set(sys.modules), "loaded too early"
space = {"b": {"uniform": [0, 1]}, "a": {"choice": ["p", "q"]}, "c": {"loguniform": [1, 9]}}
fields = dict(name="s", trainable="m:f", metric="m", mode="max", num_samples=30)
spec = SweepSpec(**fields, param_space=space, search={"tpe": {"multivariate": True, "n_startup_trials": 4}})
search = make_searcher(spec, 5)
for number in range(20):
    config = search.ask(number)
    search.tell(number, config["b"], "completed")
print(config)
"""


def test_asks_are_the_same_in_every_process() -> None:
    """Nothing depends on the order of sets; and Optuna is loaded by the first TPE searcher, not before."""
    outputs = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1] != ""
