"""An instance of a `ray.tune.Trainable`: made without Tune's storage, saved and restored whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from ray.train._internal.session import _TrainingResult
from ray.tune import Checkpoint, PlacementGroupFactory, Trainable
from ray.tune.result import TRIAL_INFO

STATE_FILE: Final = ".raysweep-trainable.json"
"""Beside what `save_checkpoint` has written: how far the instance was."""
FILLED_IN: Final = frozenset(
    {
        "config",
        "date",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "pid",
        "time_since_restore",
        "timesteps_since_restore",
        "timestamp",
        "trial_id",
    }
)
"""The fields that Tune adds to each result about place and time, not about the result itself."""


class _NoLogger:
    """The results are the sweep's: nothing is written in the folder of an attempt."""

    def on_result(self, result: Any) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


def can_save(cls: type[Any]) -> bool:
    """True if the class has a `save_checkpoint` of its own."""
    return cls.save_checkpoint is not Trainable.save_checkpoint


def make(cls: type[Any], config: dict[str, Any], info: SimpleNamespace, folder: Callable[[], Path]) -> Any:
    """An instance, set up. `folder` gives the log folder of the attempt that it runs in."""

    def take_folder(self: Any) -> None:
        self._logdir = str(folder())

    def take_no_logger(self: Any, config: Any, logger_creator: Any = None) -> None:
        take_folder(self)
        self._result_logger = _NoLogger()

    # A class of its own, as the folder that Tune would make is in the user's home, and stays there. Ray 2.54
    # and older makes it together with a logger of results.
    own = {"_setup_logdir": take_folder, "_create_logger": take_no_logger, "__module__": cls.__module__}
    placed = type(cls.__name__, (cls,), own)
    return placed({**config, TRIAL_INFO: info})


def make_info(trial_name: str, trial_id: str, resources: dict[str, float]) -> SimpleNamespace:
    """The facts about its trial that the instance knows."""
    bundles = PlacementGroupFactory([resources]) if resources else None
    return SimpleNamespace(trial_name=trial_name, trial_id=trial_id, trial_resources=bundles)


def reset(instance: Any, config: dict[str, Any], info: SimpleNamespace) -> bool:
    """Have the instance take another trial's config; False: it cannot."""
    return bool(instance.reset({**config, TRIAL_INFO: info}))


def save(instance: Any, folder: Path) -> None:
    """Have the instance write a checkpoint into the folder, and beside it how far it is."""
    instance.save(str(folder))
    state = instance.get_state()
    counts = {
        "training_iteration": state["iteration"],
        "time_total_s": state["time_total"],
        "timesteps_total": state["timesteps_total"],
        "episodes_total": state["episodes_total"],
    }
    (folder / STATE_FILE).write_text(json.dumps(counts), encoding="utf-8")


def restore(instance: Any, folder: Path) -> None:
    """Have the instance continue from such a folder, or from one that Tune itself made."""
    file = folder / STATE_FILE
    counts = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    found = {name: value for name, value in counts.items() if value is not None}
    checkpoint = Checkpoint.from_directory(str(folder))
    instance.restore(_TrainingResult(checkpoint=checkpoint, metrics=found))
