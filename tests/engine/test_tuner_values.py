"""The values, names and rules of a `ray.tune.Tuner` are those of its spec. Most of it starts no Ray."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray import tune
from ray.tune.schedulers import MedianStoppingRule, PopulationBasedTraining
from ray.tune.schedulers.pb2 import PB2

import raysweep as rs
from raysweep.cluster.preparation import find_parameters
from tests.engine.conftest import INLINE
from tests.engine.tuners import Make, maker_of_tuners, train
from tests.unit.worker.tune_trainables import Counter


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A tuner: keywords of `TuneConfig` and `RunConfig` mixed."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return maker_of_tuners(tmp_path / "ray")


def test_a_constant_that_json_cannot_hold_is_a_text_until_the_trainable_has_it(make: Make) -> None:
    seen: list[dict[str, Any]] = []
    values = {"args": np.arange(3), "odd": float("nan"), "big": 2**70, "by": {1: len}, "path": Path("/a")}
    spec = rs.from_tuner(make(seen.append, space=values), seed=1)
    assert spec.param_space["path"].startswith("<pathlib:PosixPath ")
    assert (
        spec.digest()
        == rs.from_tuner(make(seen.append, space=values | {"args": np.arange(3)}), seed=1).digest()
    )
    other = rs.from_tuner(make(seen.append, space=values | {"args": np.arange(4)}), seed=1)
    assert spec.param_space["args"] != other.param_space["args"]
    assert callable(spec.trainable)
    spec.trainable(json.loads(json.dumps(spec.param_space)))
    ((found),) = seen
    assert found["args"] is values["args"]
    assert found["odd"] is values["odd"]
    assert (found["big"], found["by"], found["path"]) == (2**70, {1: len}, Path("/a"))


def test_a_class_has_the_objects_of_its_config(make: Make) -> None:
    spec = rs.from_tuner(make(Counter, space={"path": tune.grid_search([Path("/a"), Path("/b")])}))
    (texts,) = (spec.param_space["path"]["grid_search"],)
    assert isinstance(spec.trainable, type)
    assert spec.trainable.__init__ is not Counter.__init__
    assert [text.split()[0] for text in texts] == ["<pathlib:PosixPath"] * 2


@pytest.mark.parametrize(
    ("given", "constant"),
    [
        ({"uniform": [-0.1, 0.1]}, True),
        ({"const": 0.3}, True),
        ({"choice": ["flip"]}, True),
        ({"deep": {"simplex": ["a", "b"]}}, True),
        ((0, 1), True),
        ("loguniform(1e-4, 1e-1)", True),
        ({"grid_search": [1, 2]}, False),
        ({"k": 1}, False),
    ],
)
def test_only_objects_of_tune_are_domains(make: Make, given: Any, constant: bool) -> None:
    read = rs.from_tuner(make(space={"init": given, "x": 1})).param_space["init"]
    assert (read == {"const": given}) == constant


def test_a_parameter_may_be_called_as_a_domain(make: Make) -> None:
    space = {"choice": tune.grid_search([1, 2]), "net": {"uniform": 3, "w": tune.uniform(0, 1)}}
    seen: list[dict[str, Any]] = []
    spec = rs.from_tuner(make(seen.append, space=space))
    assert callable(spec.trainable)
    (choice, net) = spec.param_space
    (uniform, *_) = spec.param_space[net]
    spec.trainable({choice: 2, net: {uniform: 3, "w": 0.5}})
    assert seen == [{"choice": 2, "net": {"uniform": 3, "w": 0.5}}]


def test_a_tuner_without_a_space_has_one_config(make: Make) -> None:
    assert rs.from_tuner(make(space={}, num_samples=3)).param_space == {}


def test_a_storage_path_is_kept_but_for_tunes_own(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "project" / "ray_results"
    assert rs.from_tuner(make(storage_path=str(path))).storage_path == str(path)
    default = rs.from_tuner(make(storage_path=None)).storage_path
    assert default == rs.from_tuner(make(), storage_path="~/raysweep").storage_path


def test_a_name_of_the_users_own_keeps_its_date(make: Make) -> None:
    name = "night_2026-11-27_03-00-00"
    assert rs.from_tuner(make(name=name)).name == name


def test_parts_that_change_no_result_are_remarked(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    tuner = make(trial_name_creator=str, sync_config=tune.SyncConfig(sync_artifacts=True))
    rs.from_tuner(tuner)
    assert "named: raysweep ignores tune_config.trial_name_creator, run_config.sync_config" in caplog.text
    caplog.clear()
    rs.from_tuner(make())
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scheduler": "async_hyperband"}, ("scheduler", {"asha": {}})),
        ({"scheduler": "asha"}, ("scheduler", {"asha": {}})),
        ({"search_alg": "random"}, ("num_samples", 1)),
    ],
)
def test_searches_and_schedulers_may_be_named_as_in_tune(
    make: Make, given: dict[str, Any], said: tuple[str, Any]
) -> None:
    assert rs.from_tuner(make(**given)) == rs.from_tuner(make(), **dict([said]))


def test_a_number_that_a_function_returns_is_ranked_by_a_mode_alone(make: Make) -> None:
    returns = make(lambda config: config["x"], metric=None, mode="max")
    assert rs.from_tuner(returns).objectives == {"_metric": "max"}
    assert not rs.from_tuner(make(metric=None, mode="max")).is_ranked


def test_a_class_that_saves_does_so_at_its_end(make: Make) -> None:
    assert rs.from_tuner(make(Counter)).tune.checkpoint_at_end
    config = tune.CheckpointConfig(checkpoint_at_end=False)
    assert not rs.from_tuner(make(Counter, checkpoint_config=config)).tune.checkpoint_at_end
    assert not rs.from_tuner(make()).tune.checkpoint_at_end


def test_a_registered_trainable_is_what_was_registered(make: Make) -> None:
    tune.register_trainable("of_this_test", train)
    assert rs.from_tuner(make("of_this_test")).trainable is train


def gets(ref: Any) -> Callable[[dict[str, Any]], None]:
    return lambda config: tune.report({"loss": ray.get(ref)})


def test_a_trainable_that_uses_ray_runs_in_an_actor(make: Make) -> None:
    assert rs.from_tuner(make(gets(None))).isolation == "actor"
    assert rs.from_tuner(make(functools.partial(gets(None)))).isolation == "actor"
    assert rs.from_tuner(make(lambda config: {"loss": 1})).isolation == "process"


def test_a_function_around_with_parameters_is_sent_with_them(make: Make) -> None:
    """As transformers makes it."""
    inner = tune.with_parameters(lambda config, data: {"loss": data}, data=1)

    @functools.wraps(inner)
    def outer(*args: Any, **named: Any) -> Any:
        return inner(*args, **named)

    tuner = make(outer)
    assert find_parameters(rs.from_tuner(tuner).trainable) == find_parameters(inner)
    assert rs.from_tuner(tuner).digest() == rs.from_tuner(make(outer)).digest()


@pytest.mark.parametrize(
    "scheduler",
    [
        MedianStoppingRule(),
        PopulationBasedTraining(hyperparam_mutations={"x": tune.uniform(0, 1)}),
        PB2(hyperparam_bounds={"x": [0, 1]}),
    ],
)
def test_the_clock_of_tune_is_a_time_like_any_other(make: Make, scheduler: Any) -> None:
    spec = rs.from_tuner(make(scheduler=scheduler, num_samples=4))
    assert spec.scheduler.options.time_attr == "time_total_s"  # type: ignore[attr-defined]


def counts(config: dict[str, Any]) -> None:
    for number in range(500):
        tune.report({"loss": number, "timesteps_this_iter": 10})


def test_a_limit_on_what_tune_adds_up_stops_a_function(make: Make) -> None:
    spec = rs.from_tuner(make(counts, space={"x": 1}, stop={"timesteps_total": 50}), **INLINE)
    outcome = rs.run_sweep(spec, key="filled", progress=False)
    assert (outcome[0].reports, outcome[0].metrics["timesteps_total"]) == (5, 50)
