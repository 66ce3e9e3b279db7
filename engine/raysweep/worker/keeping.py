"""Starts the process that stores what trials print on this node: one for all workers of a controller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from raysweep import faultplan
from raysweep.worker.output import CapturedOutput, Output
from raysweep.worker.spool import LOCK, is_locked, make_spool, spool_folder

if TYPE_CHECKING:
    from raysweep.worker.setup import WorkerSetup

# A keeper that was begun is there within this time; else the next worker begins another.
START_S: Final = 20.0
LOOK_S: Final = 10.0
STARTING: Final = "keeper.starting"
_ORPHANED: Final = 'exec 3<&0; "$0" "$@" <&3 3<&- &'
ERRORS: Final = "keeper.err"


class Keeping:
    """Sees to it that there is a keeper, as long as this worker lives."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self.folder = spool_folder(setup.place.sweep_id, setup.token)
        self.look()
        threading.Thread(target=self._look_again, name="raysweep-keeping", daemon=True).start()

    @property
    def output(self) -> Output:
        """Where this process's attempts write to."""
        return CapturedOutput(self.folder)

    def look(self) -> None:
        """Start a keeper if there is none, which takes milliseconds. It may fail: then there are no logs."""
        with suppress(OSError):
            make_spool(self.folder)
            if not is_locked(self.folder / LOCK) and _is_first(self.folder / STARTING):
                _start(self._setup, self.folder)

    def _look_again(self) -> None:
        while True:
            time.sleep(LOOK_S)
            self.look()


def _is_first(mark: Path) -> bool:
    """Whether no other worker has begun to start a keeper a moment ago."""
    try:
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if time.time() - mark.stat().st_mtime < START_S:
            return False
        os.utime(mark)
    return True


def _start(setup: WorkerSetup, folder: Path) -> None:
    """It leaves this process's family at once: Ray ends a worker together with its children.

    A shell does that sooner than a Python could.
    """
    header = {
        "folder": str(folder),
        "host": setup.host,
        "port": setup.port,
        "token": setup.token,
        "sweep_id": setup.place.sweep_id,
        "storage_path": setup.place.storage_path,
        "limit_bytes": setup.log_bytes,
    }
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    # Planned faults are those of workers and controllers; what a keeper does comes whenever it comes.
    environment.pop(faultplan.VARIABLE, None)
    with open(folder / ERRORS, "ab") as errors:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _ORPHANED, sys.executable, "-m", "raysweep.worker.keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    process.communicate(json.dumps(header).encode())
