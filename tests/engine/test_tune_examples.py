"""The examples that Ray Tune brings along run as sweeps: only the line that starts them is another."""

from __future__ import annotations

import contextlib
import importlib.util
import io
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
from raysweep.cluster.connection import RayConnection
from tests.sampling import sampled

FOLDER = Path(ray.tune.examples.__path__[0])
START = "tuner.fit()"
PBT = {"scheduler": {"asha": {"max_t": 10, "grace_period": 5}}}
HYPERBAND = {"scheduler": {"asha": {"max_t": 5}}, "num_samples": 3}


@dataclass(frozen=True)
class Example:
    """`fields`, `ignore`: what the new line says besides; `trials`: how many there are to be."""

    name: str
    trials: int
    fields: dict[str, Any] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    needs: str = ""


CALLBACKS = ("run_config.callbacks",)
NAMES = ("tune_config.trial_name_creator", "tune_config.trial_dirname_creator")
EXAMPLES = [
    Example("async_hyperband_example", trials=20),
    Example("custom_checkpointing_with_callback", trials=3, ignore=CALLBACKS),
    Example("custom_func_checkpointing", trials=5),
    Example("hyperband_example", trials=3, fields=HYPERBAND),
    Example("hyperband_function_example", trials=3, fields=HYPERBAND),
    Example("lightgbm_example", trials=4, needs="lightgbm"),
    Example("logging_example", trials=5, ignore=CALLBACKS + NAMES),
    Example("optuna_example", trials=10, needs="optuna"),
    Example("pbt_example", trials=8, fields=PBT),
    Example("pbt_function", trials=8, fields=PBT),
    Example("tune_basic_example", trials=10),
]

# A function with checkpoints, a class that is stopped early, and a framework's callback.
EVERYDAY = ("custom_func_checkpointing", "hyperband_example", "lightgbm_example")
CASES = sampled(EXAMPLES, lambda example: example.name in EVERYDAY)


class Results:
    """What the examples ask for after the sweep."""

    def __init__(self, outcome: rs.SweepOutcome) -> None:
        self.outcome = outcome

    def get_best_result(self) -> SimpleNamespace:
        best = self.outcome.best
        return SimpleNamespace(config=best.config, checkpoint=best.checkpoint_uri)


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
    assert "est hyperparameters" in printed.getvalue()


@pytest.mark.ray
@pytest.mark.servers
@pytest.mark.parametrize("example", CASES, ids=lambda example: example.name)
@pytest.mark.filterwarnings("default")  # those of the examples and of what they import
def test_an_example_of_ray_tune_runs_as_it_is(
    ray_cluster: RayConnection, example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if example.needs and importlib.util.find_spec(example.needs) is None:
        pytest.skip(f"{example.needs} is not installed")
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
