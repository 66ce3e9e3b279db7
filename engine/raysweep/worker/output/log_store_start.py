"""Starts the process that stores what trials print on this node: one for all workers of a controller."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from raysweep import faultplan
from raysweep.messages import Hello
from raysweep.worker.output.captured import CapturedOutput, Output
from raysweep.worker.output.spool import HEADER, LOCK, is_locked, make_spool, spool_folder
from raysweep.worker.process.descendants import unrelated
from raysweep.worker.wire import dial, pack

if TYPE_CHECKING:
    from raysweep.worker.setup import WorkerSetup

# A keeper that was begun is there within this time; else the next worker begins another.
START_S: Final = 20.0
LOOK_S: Final = 10.0
CONNECT_S: Final = 10.0
STARTING: Final = "keeper.starting"
KEEPER_PREFIX: Final = "logs-"
"""The beginning of a keeper's name on the link; the names of workers are hexadecimal."""
_ORPHANED: Final = 'exec 3<&0; "$0" "$@" <&3 3<&- &'
# What it loads takes 50 ms of a CPU. It has nothing to do at first, the trials have: it waits, as little of
# a Python as there can be, unless the controller has word for it or is gone.
CODE: Final = """\
import select
select.select([0], [], [], 0.5)
from raysweep.worker.output.log_store import main
main()
"""
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
        """The output of this process's attempts."""
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
    """True if no other worker has begun to start a keeper a moment ago."""
    try:
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if abs(time.time() - mark.stat().st_mtime) < START_S:  # a mark of the future is one of another clock
            return False
        os.utime(mark)
    return True


def _start(setup: WorkerSetup, folder: Path) -> None:
    """It leaves this process's family at once: Ray ends a worker together with its children.

    A shell does that sooner than a Python could.
    """
    sock = _connect(setup)
    header = {
        "folder": str(folder),
        "is_linked": sock is not None,
        "sweep_id": setup.place.sweep_id,
        "storage_path": setup.place.storage_path,
        "limit_bytes": setup.log_bytes,
    }
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        HEADER: json.dumps(header),
    }
    # Planned faults are those of workers and controllers; what a keeper does comes whenever it comes.
    environment.pop(faultplan.VARIABLE, None)
    try:
        with open(folder / ERRORS, "ab") as errors, unrelated():
            subprocess.run(
                ["/bin/sh", "-c", _ORPHANED, sys.executable, "-P", "-c", CODE, str(folder)],
                stdin=subprocess.DEVNULL if sock is None else sock.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=environment,
                start_new_session=True,
                check=False,
            )
    finally:
        if sock is not None:
            sock.close()


def _connect(setup: WorkerSetup) -> socket.socket | None:
    """The keeper's link to the controller, which so knows of it at once; None if that is gone already."""
    name = f"{KEEPER_PREFIX}{os.urandom(4).hex()}@{socket.gethostname()}"
    try:
        sock = dial(setup.host, setup.port, CONNECT_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.sendall(pack([Hello(token=setup.token, worker=name)]))
    except OSError:
        return None
    return sock
