"""The worker's side of `raysweep.report` and `raysweep.get_checkpoint` in a Ray Train worker.

The functions import Ray when they are called, the module does not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from raysweep.errors import RaysweepError
from raysweep.outcome.training_metrics import RESERVED
from raysweep.specs.scheduled_config import ScheduledConfig
from raysweep.storage.objects.opening import open_store
from raysweep.trial.checkpoint_handle import opened_by_ray, temporary_folder
from raysweep.trial.session import Reported, StoredAt, TrialContext
from raysweep.worker.rows import is_scalar, to_json

ANSWERED_S = 2.0
"""The wait of a worker that has given the checkpoint it was asked for: it is about to be ended.

What it did meanwhile would be done again. Where nothing comes of it, as no other node has room, it continues.
"""

_warm_start: str | None = None


class TrainWorkerSession:
    """Stands behind `raysweep.report` and its siblings while a training function runs."""

    def __init__(self, run_id: str, schedule: tuple[ScheduledConfig, ...] = ()) -> None:
        self._run_id = run_id
        self._schedule = schedule
        self._heard: Any = None
        self._answered: Any = None
        self._waited: Any = None

    @property
    def should_checkpoint(self) -> bool:
        """True if a node of the workers, or the run itself, is about to end, and nothing was reported since.

        All workers have to ask equally often: they get one answer, that of rank 0.
        """
        from raysweep.raycompat.in_trial.trainworker import heard_of_end

        self._heard = heard_of_end()
        return self._heard is not None and self._heard != self._answered

    @property
    def context(self) -> TrialContext:
        """The run takes the place of both sweep and trial; rank and world size are the worker's."""
        rank, world_size = train_rank()
        local_rank, node_rank = _train_place()
        return TrialContext(
            sweep_id=self._run_id,
            trial_id=self._run_id,
            number=0,
            attempt=1,
            seed=0,
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            node_rank=node_rank,
            schedule=self._schedule,
        )

    def report(self, metrics: dict[str, Any], checkpoint: Reported, wait: bool) -> None:
        """See `train_report`, which always waits for the other workers."""
        if isinstance(checkpoint, StoredAt):
            raise RaysweepError(
                "report(checkpoint_uri=…) works only in trials: in a training, report a directory"
            )
        train_report(metrics, checkpoint)
        self._answered = self._heard
        self._await_end(checkpoint)

    def _await_end(self, checkpoint: Reported) -> None:
        """Once for each time that workers are asked: also where it was stored before this one has heard."""
        from raysweep.raycompat.in_trial.trainworker import heard_of_end

        info = heard_of_end()
        if info is None or info == self._waited or (checkpoint is None and train_rank()[0] == 0):
            return
        self._waited = info
        time.sleep(ANSWERED_S)

    def new_checkpoint(self) -> AbstractContextManager[Path]:
        """A temporary folder: Ray Train stores what is reported before `report` returns."""
        return temporary_folder()

    def count_stray(self) -> None:
        """Nothing counts them: the process ends with its run."""

    def get_checkpoint(self) -> AbstractContextManager[Path] | None:
        """See `train_get_checkpoint`."""
        return train_get_checkpoint()


def train_report(metrics: Mapping[str, Any], checkpoint: str | PathLike[str] | None = None) -> None:
    """Report to Ray Train. All workers of a run must report equally often: the call waits for the others.

    Rank 0's metrics count. With a checkpoint it returns when the directory is stored and may be deleted; one
    worker (usually rank 0) gives it, or each gives files of other names.

    Raises:
        RaysweepError: `checkpoint` is not a directory, or a metric is not JSON.
    """
    import ray.train

    if checkpoint is None:
        ray.train.report(_to_json(metrics))
        return
    folder = Path(checkpoint)
    if not folder.is_dir():
        raise RaysweepError(f"report(checkpoint=…) takes a directory; {str(checkpoint)!r} is none")
    ray.train.report(_to_json(metrics), checkpoint=ray.train.Checkpoint.from_directory(str(folder)))


def train_get_checkpoint() -> AbstractContextManager[Path] | None:
    """The run's own newest checkpoint: None at a fresh start, else a context manager that yields a directory.

    It is restored into a temporary folder, each byte checked. A plain folder that user code has named itself
    may be the stored one: read it only.

    Raises: CheckpointDamagedError, StorageError: entering it.
    """
    import ray.train

    checkpoint: Any = ray.train.get_checkpoint()
    if checkpoint is None:
        return None
    opened: AbstractContextManager[Path] = getattr(checkpoint, "opened", lambda: opened_by_ray(checkpoint))()
    return opened


def train_rank() -> tuple[int, int]:
    """The worker's rank and the number of workers."""
    import ray.train

    context = ray.train.get_context()
    return context.get_world_rank(), context.get_world_size()


def _train_place() -> tuple[int, int]:
    """The worker's rank on its node, and the node's."""
    import ray.train

    context = ray.train.get_context()
    return context.get_local_rank(), context.get_node_rank()


def get_warm_start() -> AbstractContextManager[Path] | None:
    """The checkpoint of the spec's `warm_start_checkpoint`, as a context manager that yields a directory.

    None where the spec names none, and in every other process. A run that continues after an interruption
    still has
    it: ask `raysweep.get_checkpoint()` first.

    Raises:
        SpecError: It is no checkpoint. CheckpointDamagedError, StorageError: It cannot be restored.
    """
    if _warm_start is None:
        return None
    from raysweep.training.warm_start import open_warm_start

    return open_warm_start(_warm_start)


@contextmanager
def keep_checkpoints(storage_path: str, run_id: str, above: int) -> Iterator[None]:
    """While the block lasts, what this worker reports goes into the run's checkpoint store.

    However it is reported: by `raysweep.report`, `ray.train.report` or the callback of a framework.

    Args:
        storage_path: Where the run's folder is.
        run_id: The run.
        above: See `checkpoint_parts.Parts`.
    """
    from raysweep.raycompat.in_trial import trainstore
    from raysweep.training.checkpoint_parts import Parts

    rank, _ = train_rank()
    start = trainstore.newest_name()
    parts = Parts(open_store(storage_path), run_id, rank, start, above=above)

    def find(name: str) -> trainstore.RestoredCheckpoint | None:
        if not parts.has(name):
            return None
        return trainstore.RestoredCheckpoint(
            f"{run_id}/{name}", lambda: parts.restore(name), lambda: parts.opened(name)
        )

    trainstore.keep_checkpoints(make_name=parts.make_name, persist=parts.persist, find=find)
    try:
        yield
    finally:
        parts.close()


def set_warm_start(uri: str | None) -> None:
    """Make `get_warm_start` yield this checkpoint in the current process."""
    global _warm_start
    _warm_start = uri


def returned_metrics(result: Any) -> dict[str, Any]:
    """The return value of a training function, as metrics; empty, unless it is a dict.

    A value that JSON cannot hold is kept as text, see `worker.rows.as_json`.
    """
    return _to_json({str(name): value for name, value in result.items()}) if isinstance(result, dict) else {}


def _to_json(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics as JSON holds them, as those of a trial; NaN and infinity pass."""
    for name in metrics:
        if not isinstance(name, str):
            raise RaysweepError(
                f"report() takes metrics named by strings; {name!r:.100} is a {type(name).__name__}"
            )
        if name.startswith(RESERVED):
            raise RaysweepError(f"metrics of a training must not begin with {RESERVED}: {name!r:.100}")
    return {str.__str__(name): _value(value) for name, value in metrics.items()}


def _value(value: Any) -> Any:
    number = value.item() if callable(getattr(value, "item", None)) and is_scalar(value) else value
    if isinstance(number, float) and not math.isfinite(number):
        return float(number)
    return to_json(number)
