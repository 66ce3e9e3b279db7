"""Renews the lease of a training run; ends the run when another process has claimed it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from raysweep.errors import FencedError, StorageError
from raysweep.outcome import SweepProgress
from raysweep.runs.ownership.holder import current_holder, note_left
from raysweep.runs.ownership.training_claim import Claim
from raysweep.runs.training import PROGRESS
from raysweep.training.progress import Watch

INTERVAL_S = 2.0

logger = logging.getLogger(__name__)

Status = Literal["running", "completed", "failed", "cancelled"]


class Heartbeat:
    """The holder's sign of life in train_progress.json.

    Args:
        claim: The attempt that it speaks for.
        name: The run's name.
        watch: What the run has done so far.
        stop: Set as soon as a beat finds a newer claim: the run is to end.
        interval_s: The time between two beats.
    """

    def __init__(
        self,
        claim: Claim,
        name: str,
        watch: Watch,
        stop: threading.Event,
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._claim = claim
        self._name = name
        self._watch = watch
        self._stop = stop
        self._interval_s = interval_s
        self._fenced: FencedError | None = None
        self._started_at = time.time()
        self._over = threading.Event()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat until the block ends; what it ended with is the last beat.

        Raises: StorageError if not even the first beat can be written. FencedError if another process has
            claimed the run, whatever the block ended with, except for Ctrl-C.
        """
        self._write("running")
        thread = threading.Thread(target=self._beat, name="raysweep-training-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        except KeyboardInterrupt:
            self._end(thread, "cancelled")
            raise
        except BaseException:
            self._end(thread, "failed")
            self._check()
            raise
        self._end(thread, "completed")
        self._check()

    def _end(self, thread: threading.Thread, status: Status) -> None:
        self._over.set()
        thread.join()
        note_left(self._claim.folder.run_id, self._claim.number, self._started_at)
        self._try_to_write(status)

    def _check(self) -> None:
        if self._fenced is not None:
            raise self._fenced

    def _beat(self) -> None:
        while not self._over.wait(self._interval_s) and self._fenced is None:
            self._try_to_write("running")

    def _try_to_write(self, status: Status) -> None:
        try:
            self._write(status)
        except FencedError as error:
            self._fenced = error
            self._stop.set()
        except StorageError as error:
            run_id = self._claim.folder.run_id
            logger.warning("training %s: no sign of life could be written: %s", run_id, error)

    def _write(self, status: Status) -> None:
        watch = self._watch
        progress = SweepProgress(
            sweep_id=self._claim.folder.run_id,
            name=self._name,
            status=status,
            holder=current_holder(),
            generation=self._claim.number,
            at=time.time(),
            started_at=self._started_at,
            counts={"reports": watch.reports},
            metric="",
            mode="max",
            notes=(watch.error.message,) if watch.error else (),
            usage=watch.meter.read(),
        )
        self._claim.replace(PROGRESS, progress.to_json().encode())
