"""Ray's own output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray._private import worker


@contextmanager
def quiet_raylet() -> Iterator[None]:
    """Ray's daemon prints nothing on this process's standard output, whatever `log_to_driver` says.

    A worker that died is told about by raysweep itself, with its trial, and standard output may be a pipe.
    """
    before = worker._worker_logs_enabled
    worker._worker_logs_enabled = False
    try:
        yield
    finally:
        worker._worker_logs_enabled = before
