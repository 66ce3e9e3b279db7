"""Starting an embedded Ray: said when it takes long, tried again with more time when it does not come up."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Final

from raysweep.errors import ClusterUnreachableError
from raysweep.raycompat.patience import LAST_S, START_S, patient_start
from raysweep.raycompat.signals import handlers_kept
from raysweep.raycompat.uv import found_environment

log = logging.getLogger("raysweep")
TELL_AFTER_S: Final = 1.0


def start_embedded(num_cpus: float | None, folder: Path) -> None:
    """Start Ray with its files in `folder`. On a busy machine that takes minutes.

    Raises: ClusterUnreachableError: it did not start, and did not with more time.
    """
    with _told_when_slow():
        try:
            _start(num_cpus, folder, START_S)
        except Exception as error:  # noqa: BLE001  Ray raises plain Exception where a process of it is late
            text = "Ray did not start (%s); trying once more, with %g s for its processes instead of %g"
            log.warning(text, _first_line(error), LAST_S, START_S)
            _start_again(num_cpus, folder)


def _start_again(num_cpus: float | None, folder: Path) -> None:
    import ray

    ray.shutdown()
    try:
        _start(num_cpus, folder, LAST_S)
    except Exception as error:
        problem = (
            f"Ray did not start, with {START_S:g} s and then {LAST_S:g} s for its processes: "
            f"{_first_line(error)}"
        )
        raise ClusterUnreachableError("", problem, "try again when the machine is less busy") from error


def _start(num_cpus: float | None, folder: Path, patience_s: float) -> None:
    import ray

    with _muted_stderr(), patient_start(patience_s), handlers_kept(), found_environment():
        ray.init(
            address="local",
            num_cpus=int(num_cpus) if num_cpus else None,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=str(folder),
        )


@contextmanager
def _told_when_slow() -> Iterator[None]:
    timer = Timer(TELL_AFTER_S, lambda: log.info("waiting for Ray to start on this machine"))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Nothing on file descriptor 2: Ray's C++ core announces there that its log level was set."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
