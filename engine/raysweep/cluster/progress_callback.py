"""The caller's `on_progress`. Exceptions in it are logged once and ignored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

from raysweep.documents.code import user_code

log = logging.getLogger("raysweep")
ProgressT = TypeVar("ProgressT")


class Listener(Generic[ProgressT]):
    """Calls it; an error of it is logged once, with its traceback, and the run continues."""

    def __init__(self, call: Callable[[ProgressT], None]) -> None:
        self._call = call
        self._has_failed = False

    def __call__(self, progress: ProgressT) -> None:
        try:
            user_code.call(self._call, progress)
        except Exception:
            # Whatever it raises, it is no reason to end hours of work.
            if not self._has_failed:
                log.warning("on_progress raised; the run continues and calls it again", exc_info=True)
            self._has_failed = True

    def stage(self, text: str) -> None:
        """Say what is done before there is progress, to a call that also takes this (`LiveTable` does)."""
        stage = getattr(self._call, "stage", None)
        if callable(stage):
            user_code.call(stage, text)
