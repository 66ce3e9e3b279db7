"""The folder of an embedded Ray: created, cleared of processes, removed. Also folders of killed drivers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from raysweep.documents.own_folder import is_own
from raysweep.runs.ownership.holder import boot_id, process_started_at

PREFIX: Final = "rs-"
OWNER: Final = "owner.json"
# What Ray's shutdown leaves running ends by itself within milliseconds, or not at all.
END_S: Final = 2.0


@contextmanager
def ray_folder() -> Iterator[Path]:
    """A new folder for an embedded Ray; at the end its processes are ended and it is removed.

    Before that, folders of drivers that were killed are removed, once nothing runs in them any more.
    """
    # Ray's sockets live in here, and their paths may not be longer than 107 characters.
    root = Path("/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir())
    remove_stale(root)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    try:
        (folder / OWNER).write_text(json.dumps(_owner(os.getpid())), encoding="ascii")
        yield folder
    finally:
        end_processes(folder)
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale(root: Path) -> None:
    """Remove the folders whose owner is dead, on this boot of this machine, and in which nothing runs."""
    for owner in root.glob(f"{PREFIX}*/{OWNER}"):
        try:
            if not is_own(owner) or not is_own(owner.parent):
                continue
            written = json.loads(owner.read_text(encoding="ascii"))
            is_alive = written == _owner(int(written["pid"]))
            is_elsewhere = written["boot"] != boot_id()
        except (OSError, ValueError, KeyError, TypeError):
            continue
        # Another boot's processes are gone for certain; another container's cannot be seen from here.
        if is_alive or (is_elsewhere and _boot(written["boot"]) == _boot(boot_id())):
            continue
        if not processes_in(owner.parent):
            shutil.rmtree(owner.parent, ignore_errors=True)


def end_processes(folder: Path) -> None:
    """End what Ray left running in `folder`: what an interrupted start had started, above all."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes_in(folder, b"/ray/"):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            if not processes_in(folder, b"/ray/"):
                return
            time.sleep(0.02)


def processes_in(folder: Path, program: bytes = b"") -> list[int]:
    """The live processes of this user with `folder` (and `program`) in their command line, but this one."""
    found = []
    needle = os.fsencode(f"{folder}/")
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry.name}/cmdline", "rb") as file:
                line = file.read()
            is_in_it = needle in line and program in line and entry.stat().st_uid == os.getuid()
        except OSError:
            continue  # it has ended meanwhile
        if is_in_it and process_started_at(int(entry.name)) is not None:
            found.append(int(entry.name))
    return found


def _owner(pid: int) -> dict[str, object]:
    return {"pid": pid, "started_at": process_started_at(pid), "boot": boot_id()}


def _boot(text: str) -> str:
    return text.partition(":")[0]
