"""Each spec under `examples/schedulers` runs as it stands, saves work, and still finds a good config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from examples.functions import curve
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.simulate import simulate
from raysweep.simulate.nodes import Node, Nodes
from raysweep.specs import SweepSpec
from raysweep.testing import run_trial
from raysweep.testing.trials import AttemptRun

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples/schedulers").glob("*.yaml"))
EPOCHS = 9


def step(config: Mapping[str, Any], epoch: int) -> Mapping[str, Any] | None:
    return curve(config, epoch) if epoch <= EPOCHS else None


def test_each_named_scheduler_has_an_example() -> None:
    kinds = {SweepSpec.from_file(path).scheduler.kind for path in EXAMPLES}
    assert kinds == set(SchedulerSpec.kinds) - {"fifo"}


def test_what_is_simulated_is_what_the_trainable_reports() -> None:
    from examples.functions import train

    config = {"lr": 0.1, "momentum": 0.5}
    (attempt,) = run_trial(train, dict(config))
    assert isinstance(attempt, AttemptRun)
    assert [report["loss"] for report in attempt.reports] == [
        curve(config, epoch)["loss"] for epoch in range(1, EPOCHS + 1)
    ]
    assert len(attempt.checkpoints) == EPOCHS


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_finds_as_much_with_less(path: Path) -> None:
    spec = SweepSpec.from_file(path)
    if spec.search.is_open:
        spec = spec.replace(search="random")  # the same configs with and without
    assert f"raysweep sweep examples/schedulers/{path.name}" in path.read_text()
    nodes = Nodes(all=[Node(name="one", cpus=spec.num_samples)])
    outcome = simulate(spec, step, nodes=nodes, save_every=1).outcome
    whole = simulate(spec.replace(scheduler="fifo", search="random"), step, slots=4).outcome
    assert outcome.status == "completed"
    assert len(outcome) == spec.num_samples
    # What it comes to in the end, wherever the trial was stopped.
    found, best = (curve(each.best.config, EPOCHS)["loss"] for each in (outcome, whole))
    assert found <= best + 0.05
    counted = sum(trial.metrics["training_iteration"] for trial in outcome.trials)
    assert counted < EPOCHS * spec.num_samples or spec.scheduler.kind in ("pbt", "pb2")
