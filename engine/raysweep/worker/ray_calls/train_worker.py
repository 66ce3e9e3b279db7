"""`raysweep.should_checkpoint()` and its siblings in the workers of a trial's Ray Train run.

These are actors of the trial's process, not the trial. Nothing of Ray is imported before a call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep import trial
from raysweep.errors import RaysweepError
from raysweep.raycompat.in_trial.calls import DATA
from raysweep.trial.checkpoint_handle import opened_by_ray, temporary_folder
from raysweep.trial.session import Reported, StoredAt, TrialContext
from raysweep.worker.process.import_hooks import after_import
from raysweep.worker.process.stray_guard import guard_descendants

if TYPE_CHECKING:
    from raysweep.raycompat.in_trial.dataplace import DataPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerWorker:
    """The function that each worker runs: the trainer's own, with a session around it."""

    run: Callable[[], Any]
    context: TrialContext
    """The trial's."""
    data: DataPlace | None = None
    """The place of Ray Data that the worker uses itself; None: as everywhere."""

    def __call__(self) -> Any:
        guard_descendants()
        if (place := self.data) is not None:
            after_import(DATA, lambda _: place.enter())
        trial.activate(InnerSession(self.context))
        try:
            return self.run()
        finally:
            trial.activate(None)


class InnerSession:
    """Stands behind the calls; reports are those of Ray Train, whichever way they are made."""

    def __init__(self, context: TrialContext) -> None:
        self._context = context
        self._heard: Any = None
        self._heard_at = 0

    @property
    def should_checkpoint(self) -> bool:
        """True if a node of the run is about to go, or the trial is asked for a checkpoint, and nothing was
        reported since that was heard.

        All workers have to ask equally often: they get one answer, that of rank 0.
        """
        from raysweep.raycompat.in_trial.trainworker import count_reports, heard_of_end

        heard = heard_of_end()
        if heard is None:
            return False
        reports = count_reports()
        if heard != self._heard:
            self._heard, self._heard_at = heard, reports
        return reports == self._heard_at

    @property
    def context(self) -> TrialContext:
        """The trial's, with this worker's rank."""
        import ray.train

        train = ray.train.get_context()
        return replace(
            self._context,
            rank=train.get_world_rank(),
            world_size=train.get_world_size(),
            local_rank=train.get_local_rank(),
            node_rank=train.get_node_rank(),
        )

    def report(self, metrics: dict[str, Any], checkpoint: Reported, wait: bool) -> None:
        """As `ray.train.report`, which always waits for the other workers."""
        import ray.train

        if isinstance(checkpoint, StoredAt):
            raise RaysweepError(
                "report(checkpoint_uri=…) works only in trials: in a worker, report a directory"
            )
        given = None if checkpoint is None else ray.train.Checkpoint.from_directory(str(checkpoint))
        ray.train.report(metrics, checkpoint=given)

    def new_checkpoint(self) -> AbstractContextManager[Path]:
        """A temporary folder: Ray Train stores what is reported before `report` returns."""
        return temporary_folder()

    def count_stray(self) -> None:
        """Nothing counts them: the process ends with its run."""

    def get_checkpoint(self) -> AbstractContextManager[Path] | None:
        """As `ray.train.get_checkpoint`."""
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        return None if checkpoint is None else opened_by_ray(checkpoint)
