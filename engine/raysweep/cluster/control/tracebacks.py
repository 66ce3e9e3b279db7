"""Stores whole tracebacks of failed attempts in the sweep's folder."""

from __future__ import annotations

import logging
from concurrent.futures import Executor

from raysweep.cluster.control.background import Background
from raysweep.core.state.trial import trial_id
from raysweep.errors import StorageError
from raysweep.runs.folder import SweepFolder

log = logging.getLogger("raysweep")


class Tracebacks:
    """Writes each traceback on `thread`. One that cannot be stored is logged; the sweep continues."""

    def __init__(self, folder: SweepFolder, background: Background, thread: Executor) -> None:
        self._folder = folder
        self._background = background
        self._thread = thread

    def keep(self, trial: int, attempt: int, text: str) -> str:
        """Store a traceback in the background. Returns its path below the sweep's folder."""
        path = f"errors/{trial_id(trial)}-{attempt}.txt"

        def put() -> None:
            try:
                self._folder.write_text(path, text)
            except StorageError as error:
                log.warning("the traceback of trial %s was not stored: %s", trial_id(trial), error)

        self._background.spawn_on(self._thread, put)
        return path
