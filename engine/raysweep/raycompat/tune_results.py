"""Results in the kinds of objects that Ray Tune returns: trials, an ExperimentAnalysis, a ResultGrid.

The trials are Ray's own class, filled with what a sweep holds; each has a folder with the files that Tune
writes (`result.json`, `params.json`, `error.txt`). A checkpoint is fetched when its path is asked for.
"""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ray.air._internal.json import SafeFallbackEncoder
from ray.exceptions import RayTaskError
from ray.train._internal.session import _TrainingResult
from ray.train._internal.storage import StorageContext
from ray.tune import Checkpoint, ExperimentAnalysis, TuneError
from ray.tune.experiment import Trial

_MOST_CHARACTERS: Final = 130
_NOT_IN_NAMES: Final = re.compile(r"[/()<>:\"\\|?*\[\] ]")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint of a trial: its number, the metrics it came with, and the call that fetches it."""

    number: int
    metrics: Mapping[str, Any]
    fetch: Callable[[Path], None]
    """Fills a folder that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One trial, as plain values."""

    trial_id: str
    tag: str
    config: dict[str, Any]
    status: str
    """A status of Tune's: TERMINATED, ERROR, PENDING."""
    results: Sequence[dict[str, Any]] = ()
    """The result of each report, as Tune would have it, without the config."""
    checkpoints: Sequence[StoredCheckpoint] = ()
    error: tuple[str, str, str] | None = None
    """The type of the exception, its text, its traceback."""
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The place of an experiment's results, and the metric that ranks them."""

    trainable: str
    name: str
    storage_path: str
    filesystem: Any = None
    metric: str | None = None
    mode: str | None = None
    checkpoints: Any = None
    """Tune's CheckpointConfig."""
    trials: Sequence[TrialRecord] = field(default=())


def analysis_of(experiment: Experiment) -> ExperimentAnalysis:
    """The experiment as Tune returns it; writes the folders of its trials."""
    storage = StorageContext(
        storage_path=experiment.storage_path,
        experiment_dir_name=experiment.name,
        storage_filesystem=experiment.filesystem,
    )
    return ExperimentAnalysis(
        Path(storage.experiment_fs_path, "experiment_state-raysweep.json").as_posix(),
        storage_filesystem=storage.storage_filesystem,
        trials=[_trial_of(record, experiment, storage) for record in experiment.trials],
        default_metric=experiment.metric,
        default_mode=experiment.mode,
    )


class _StoredTrial(Trial):
    """A trial that has ended; its error is made, not unpickled."""

    found_error: Exception | None = None

    def get_pickled_error(self) -> Exception | None:
        return self.found_error


class _LazyCheckpoint(Checkpoint):
    """A checkpoint that is fetched when its path is first read. Pickled, it is Tune's own."""

    def __init__(self, folder: Path, fetch: Callable[[Path], None]) -> None:
        self._folder, self._fetch = folder, fetch
        super().__init__(str(folder))

    @property
    def path(self) -> str:
        if not self._folder.exists():
            self._fetch(self._folder)
        return str(self._folder)

    @path.setter
    def path(self, value: str) -> None:
        """Tune's own class sets it; the folder decides."""

    def __repr__(self) -> str:
        return f"Checkpoint(filesystem=local, path={self._folder})"

    def __reduce__(self) -> tuple[type[Checkpoint], tuple[str]]:
        return Checkpoint, (self.path,)


def _trial_of(record: TrialRecord, experiment: Experiment, storage: StorageContext) -> Any:
    trial: Any = _StoredTrial(
        experiment.trainable,
        config=record.config,
        trial_id=record.trial_id,
        storage=storage,
        experiment_tag=record.tag,
        checkpoint_config=_without_deletion(experiment.checkpoints),
        stub=True,
    )
    name = _NOT_IN_NAMES.sub("_", f"{trial}_{record.tag}"[:_MOST_CHARACTERS])
    trial.relative_logdir = trial.storage.trial_dir_name = name
    trial.status = record.status
    results = [{**result, "config": record.config} for result in record.results]
    for result in results:
        trial.update_last_result(result)
    trial.run_metadata.last_result.setdefault("config", record.config)
    trial.run_metadata.num_failures = record.failures
    _write(trial, "result.json", "".join(f"{_as_json(result)}\n" for result in results))
    _write(trial, "params.json", _as_json(record.config))
    _add_error(trial, record.error)
    _add_checkpoints(trial, record.checkpoints)
    return trial


def _without_deletion(config: Any) -> Any:
    """Ranks checkpoints as the experiment's does; the sweep has deleted those that are not kept."""
    from ray.tune import CheckpointConfig

    if config is None:
        return None
    return CheckpointConfig(
        checkpoint_score_attribute=config.checkpoint_score_attribute,
        checkpoint_score_order=config.checkpoint_score_order,
    )


def _write(trial: Any, name: str, text: str) -> None:
    system, folder = trial.storage.storage_filesystem, trial.storage.trial_fs_path
    system.create_dir(folder)
    with system.open_output_stream(Path(folder, name).as_posix()) as stream:
        stream.write(text.encode())


def _as_json(value: Any) -> str:
    return json.dumps(value, cls=SafeFallbackEncoder)


def _add_error(trial: Any, error: tuple[str, str, str] | None) -> None:
    if error is None:
        return
    kind, text, traceback = error
    trial.found_error = _error_of(kind, text, traceback)
    trial.run_metadata.error_filename = "error.txt"
    _write(trial, "error.txt", traceback or text)


def _error_of(kind: str, text: str, traceback: str) -> Exception:
    """As `ray.get` raises it: an exception of the class that was raised, where Python has that class."""
    if not kind:
        return TuneError(text)
    found = getattr(builtins, kind, None)
    is_known = isinstance(found, type) and issubclass(found, Exception)
    made: Any = found if is_known else type(kind, (Exception,), {})
    try:
        cause = made(text)
    except TypeError:  # UnicodeDecodeError and its like
        cause = TuneError(f"{kind}: {text}")
    of_task: Any = RayTaskError
    error: Exception = of_task("train", traceback or f"{kind}: {text}", cause).as_instanceof_cause()
    return error


def _add_checkpoints(trial: Any, checkpoints: Sequence[StoredCheckpoint]) -> None:
    for each in checkpoints:
        folder = Path(_local_folder(trial), f"checkpoint_{each.number:06d}")
        held = _TrainingResult(_LazyCheckpoint(folder, each.fetch), dict(each.metrics))
        trial.run_metadata.checkpoint_manager.register_checkpoint(held)


def _local_folder(trial: Any) -> str:
    """The trial's folder; where that is not on this machine, the one Tune would stage it in."""
    is_local = trial.storage.storage_filesystem.type_name == "local"
    return str(trial.storage.trial_fs_path if is_local else trial.storage.trial_driver_staging_path)
