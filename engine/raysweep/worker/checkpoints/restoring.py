"""Fetches the newest checkpoint of an attempt for `get_checkpoint`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from raysweep.errors import CheckpointDamagedError, one_line
from raysweep.messages import CheckpointDamaged, Job
from raysweep.worker.link import Link
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.waiting import Waiting

if TYPE_CHECKING:
    from raysweep.worker.checkpoints.saver import Saver

_DAMAGED_FIX: Final = (
    "nothing else is restored in its stead; restore the file from a backup,"
    " or catch CheckpointDamagedError in the trainable to start the trial over"
)


class Restorer:
    """One restore of an attempt, into a folder that is removed afterwards."""

    def __init__(self, job: Job, place: SweepPlace, link: Link, saver: Saver, waiting: Waiting) -> None:
        self._job = job
        self._place = place
        self._link = link
        self._saver = saver
        self._waiting = waiting

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """The checkpoint in a folder of its own.

        Raises:
            TrialStopped: The attempt must end now; also where the checkpoint that it began from is damaged,
                and the trial has an older one, from which its next attempt resumes.
            CheckpointDamagedError: It is damaged, and there is no older one.
        """
        target = Path(tempfile.mkdtemp(prefix="raysweep-checkpoint-"))
        try:
            self._waiting.say_busy(is_over=False)
            try:
                self._saver.flush()
                self._waiting.ending.raise_if_interrupted()
                self._restore_newest(target / "checkpoint")
            finally:
                self._waiting.say_busy(is_over=True)
            yield target / "checkpoint"
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def _restore_newest(self, target: Path) -> None:
        """Fetch the checkpoint that is the newest now.

        One that a save on another thread made needless meanwhile may be deleted under our hands.
        """
        while (uri := self._saver.newest) is not None:
            try:
                _restore(self._place, uri, target)
                return
            except CheckpointDamagedError as error:
                if uri != self._saver.newest:
                    continue
                if uri == self._job.checkpoint and self._job.has_older:
                    problem = one_line(f"{error.path}: {error.problem}", 500)
                    self._link.send(CheckpointDamaged(*self._job.who, uri=uri, problem=problem))
                    self._waiting.ending.go_back()
                raise


def _restore(place: SweepPlace, reference: str, target: Path) -> None:
    from raysweep.storage.checkpoints.node_cache import open_cache
    from raysweep.storage.checkpoints.store import CheckpointStore
    from raysweep.storage.objects.opening import open_store

    cache = open_cache()
    store = CheckpointStore(open_store(place.storage_path), place.sweep_id, cache=cache, follows=True)
    try:
        store.restore(reference, target)
    except CheckpointDamagedError as error:
        raise CheckpointDamagedError(error.path, error.problem, _DAMAGED_FIX) from error
