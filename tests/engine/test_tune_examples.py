"""The examples that Ray Tune brings along run as sweeps: only the line that starts them is another."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import ray.tune.examples

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.storage.checkpoints.store import open_checkpoint
from tests.sampling import sampled

FOLDER = Path(ray.tune.examples.__path__[0])
START = "tuner.fit()"
# Chance decides who is replaced: of the smoke test's few steps, it may be nobody.
LONGER = {"stop": {"trial": {"training_iteration": 50}}}
# Its learning rate is drawn by a function, and ours by a domain.
PBT = {
    "scheduler": {"pbt": {"perturbation_interval": 5, "hyperparam_mutations": ["lr", "some_other_factor"]}},
    "param_space": {"lr": {"uniform": [0.0001, 0.02]}, "some_other_factor": {"choice": [1, 2]}},
    "points": [{"lr": 0.0001, "some_other_factor": 1}] * 8,
    **LONGER,
}
# Its allocating function calls Tune's controller; 2,000 trees a round would take minutes on two cores.
SHARES = {
    "scheduler": {
        "resource_changing": {
            "param": "nthread",
            "total": 2,
            "interval": 1,
            "base": {"asha": {"max_t": 16, "grace_period": 1, "reduction_factor": 2}},
        }
    },
    "resources": {"cpu": 1, "by_config": {"cpu": "nthread"}},
    "param_space": {
        "objective": "binary:logistic",
        "eval_metric": ["logloss", "error"],
        "max_depth": 9,
        "learning_rate": 1,
        "min_child_weight": {"grid_search": [2, 3]},
        "subsample": {"grid_search": [0.8, 0.9]},
        "random_state": 1,
        "num_parallel_tree": 2,
        "nthread": 1,
    },
}
# What stands for torchvision is there in this process only.
INLINE = {"isolation": "inline", "max_concurrent_trials": 1}


@dataclass(frozen=True)
class Example:
    """`fields`, `ignore`: what the new line says besides; `trials`: how many there are to be.

    `is_population`: some trials continue from others' checkpoints.
    """

    name: str
    trials: int
    fields: dict[str, Any] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    needs: str = ""
    is_population: bool = False


CALLBACKS = ("run_config.callbacks",)
NAMES = ("tune_config.trial_name_creator", "tune_config.trial_dirname_creator")
EXAMPLES = [
    Example("async_hyperband_example", trials=20),
    Example("cifar10_pytorch", trials=1, fields=INLINE, needs="torch"),
    Example("custom_checkpointing_with_callback", trials=3, ignore=CALLBACKS),
    Example("custom_func_checkpointing", trials=5),
    Example("hyperband_example", trials=3, fields={"num_samples": 3}),
    Example("hyperband_function_example", trials=3, fields={"num_samples": 3}),
    Example("lightgbm_example", trials=4, needs="lightgbm"),
    Example("logging_example", trials=5, ignore=CALLBACKS + NAMES),
    Example("optuna_example", trials=10, needs="optuna"),
    Example("optuna_multiobjective_example", trials=10, needs="optuna"),
    Example("pb2_example", trials=8, fields=LONGER, is_population=True),
    Example("pbt_example", trials=8, fields=PBT, is_population=True),
    Example("pbt_function", trials=8, fields=LONGER, is_population=True),
    Example("tune_basic_example", trials=10),
    Example("xgboost_dynamic_resources_example", trials=4, fields=SHARES, needs="xgboost"),
    Example("xgboost_example", trials=10, needs="xgboost"),
]

# A function with checkpoints, a class that is stopped early, and a framework's callback.
EVERYDAY = ("custom_func_checkpointing", "hyperband_example", "lightgbm_example")
CASES = sampled(EXAMPLES, lambda example: example.name in EVERYDAY)


class Results:
    """What the examples ask for after the sweep."""

    def __init__(self, outcome: rs.SweepOutcome) -> None:
        self.outcome = outcome

    def get_best_result(self, *metric_and_mode: str) -> SimpleNamespace:
        best = self.outcome.best
        uri = best.checkpoint_uri
        checkpoint = None if uri is None else SimpleNamespace(as_directory=lambda: open_checkpoint(uri))
        return SimpleNamespace(config=best.config, metrics=best.metrics, checkpoint=checkpoint)


def start(example: Example, storage: Path, done: list[rs.SweepOutcome]) -> Any:
    """What the new line calls."""

    def run(tuner: Any) -> Results:
        given = {"storage_path": str(storage), **example.fields}
        spec = rs.from_tuner(tuner, ignore=example.ignore, **given)
        done.append(rs.run_sweep(spec, key="k"))
        return Results(done[-1])

    return run


@contextlib.contextmanager
def as_script(example: Example, monkeypatch: pytest.MonkeyPatch, run: Any) -> Iterator[None]:
    monkeypatch.setattr(sys, "argv", [f"{example.name}.py", "--smoke-test"])
    # The test's own Ray is there already; what the examples ask of theirs is for a bare one.
    monkeypatch.setattr(ray, "init", lambda *args, **options: None)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        yield
    assert re.search(r"[Bb]est (hyperparameters|model parameters|trial config)", printed.getvalue())


@pytest.mark.ray
@pytest.mark.servers
@pytest.mark.parametrize("example", CASES, ids=lambda example: example.name)
@pytest.mark.filterwarnings("default")  # those of the examples and of what they import
def test_an_example_of_ray_tune_runs_as_it_is(
    ray_cluster: RayConnection, example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if example.needs and importlib.util.find_spec(example.needs) is None:
        pytest.skip(f"{example.needs} is not installed")
    if example.name == "cifar10_pytorch":
        from tests.engine import fake_torchvision

        for name, module in fake_torchvision.modules().items():
            monkeypatch.setitem(sys.modules, name, module)
    source = (FOLDER / f"{example.name}.py").read_text()
    assert source.count(START) == 1
    script = tmp_path / f"{example.name}.py"
    script.write_text(source.replace(START, "START(tuner)"))
    done: list[rs.SweepOutcome] = []
    run = start(example, tmp_path / "sweeps", done)
    monkeypatch.setenv("RAY_AIR_NEW_OUTPUT", "0")
    monkeypatch.setenv("HOME", str(tmp_path))
    with as_script(example, monkeypatch, run):
        runpy.run_path(str(script), init_globals={"START": run}, run_name="__main__")
    (outcome,) = done
    ended = {trial.state for trial in outcome.trials}
    assert outcome.status == "completed"
    assert ended <= {"completed", "stopped"}, outcome.counts
    assert len(outcome) == example.trials
    donors = {attempt.donor for trial in outcome.trials for attempt in trial.attempts} - {None}
    assert bool(donors) == example.is_population
