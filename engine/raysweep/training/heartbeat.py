"""Says every few seconds that a training run's process lives; notices when another has taken over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from raysweep.errors import FencedError, StorageError
from raysweep.outcome import SweepProgress
from raysweep.storage.holder import current_holder
from raysweep.training.folder import RunFolder
from raysweep.training.watch import Watch

INTERVAL_S = 5.0

logger = logging.getLogger(__name__)

Status = Literal["running", "completed", "failed", "cancelled"]


class Heartbeat:
    """The holder's sign of life in train_progress.json."""

    def __init__(self, folder: RunFolder, name: str, attempt: int, watch: Watch) -> None:
        self._folder = folder
        self._name = name
        self._attempt = attempt
        self._watch = watch
        self._started_at = time.time()
        self._over = threading.Event()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat until the block ends; what it ended with is the last beat.

        Raises: StorageError if not even the first beat can be written.
        """
        self._write("running")
        thread = threading.Thread(target=self._beat, name="raysweep-training-heartbeat", daemon=True)
        thread.start()
        status: Status = "failed"
        try:
            yield
            status = "completed"
        except KeyboardInterrupt:
            status = "cancelled"
            raise
        finally:
            self._over.set()
            thread.join()
            self._try_to_write(status)

    def check(self) -> None:
        """Raise FencedError if another process has taken the run over."""
        newest = self._folder.newest_attempt()
        if newest > self._attempt:
            raise FencedError(self._folder.run_id, self._attempt, newest)

    def _beat(self) -> None:
        while not self._over.wait(INTERVAL_S):
            self._try_to_write("running")

    def _try_to_write(self, status: Status) -> None:
        try:
            self._write(status)
        except StorageError as error:
            logger.warning("training %s: no sign of life could be written: %s", self._folder.run_id, error)

    def _write(self, status: Status) -> None:
        watch = self._watch
        self._folder.write_progress(
            SweepProgress(
                sweep_id=self._folder.run_id,
                name=self._name,
                status=status,
                holder=current_holder(),
                generation=self._attempt,
                at=time.time(),
                started_at=self._started_at,
                counts={"reports": watch.reports},
                metric="",
                mode="max",
                notes=(watch.error.message,) if watch.error else (),
            )
        )
