"""A trainable gets the tuples of its space, whatever the link made of them."""

from __future__ import annotations

from typing import Any

from raysweep.messages import Job
from raysweep.space.held_tuples import tuples_of
from raysweep.space.parsed import normalise
from raysweep.worker.process.rehearsal import _Nowhere
from raysweep.worker.runner import run_attempt
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace


def test_the_trainable_is_called_with_the_config_that_was_written() -> None:
    space = normalise({"shape": {"choice": [(1, 1), (1, 2)]}, "kept": ("a", "b", "c"), "x": [1, 2]})
    place = SweepPlace(
        sweep_id="", storage_path="memory://", resources={}, tuples=tuples_of(space), nested=("eval/acc",)
    )
    seen: list[Any] = []

    def train(config: dict[str, Any]) -> None:
        seen.append(config)

    config = {"shape": [1, 2], "kept": ["a", "b", "c"], "x": [1, 2]}
    run_attempt(train, Job(trial=0, attempt=1, config=config, seed=0), place, WorkerShell(_Nowhere()))
    assert seen == [{"shape": (1, 2), "kept": ("a", "b", "c"), "x": [1, 2]}]
