"""Folders for checkpoints on their way: on a local disk of the node.

Those that a trial fills and hands over are taken by rename; others hold copies (see `captures`).
They lie below `RAYSWEEP_STAGING`, else below the folder for temporary files. What a killed process leaves
there is removed by the next trial that makes one: a folder is a process's as long as that holds its lock.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from raysweep.documents.own_folder import is_own

VARIABLE: Final = "RAYSWEEP_STAGING"
_PREFIX: Final = "raysweep-staging-"
_UNLOCKED: Final = ".raysweep-unlocked-"
_LOCK: Final = "lock"


class Staging:
    """The folders of one attempt; none exists before the first is made."""

    def __init__(self) -> None:
        self._top: Path | None = None
        self._lock: IO[bytes] | None = None
        self._numbers = itertools.count(1)
        self._given: set[Path] = set()
        # What a thread has filled: it may be handed over until that thread begins another.
        self._filled: dict[int, Path] = {}

    @contextmanager
    def new_folder(self) -> Iterator[Path]:
        """A new, empty folder, to be handed over inside the `with` or after it.

        It is removed where the `with` ends by an exception, and where its thread begins another.
        """
        thread = threading.get_ident()
        self._drop(self._filled.pop(thread, None))
        folder = self.make_folder()
        self._given.add(folder)
        try:
            yield folder
        except BaseException:
            self._drop(folder)
            raise
        self._filled[thread] = folder

    def _drop(self, folder: Path | None) -> None:
        if folder in self._given:
            self._given.discard(folder)
            shutil.rmtree(folder, ignore_errors=True)

    def make_folder(self) -> Path:
        """A new, empty folder, which is the caller's. Raises: OSError: there is no place for it."""
        folder = self._open() / f"{next(self._numbers)}"
        folder.mkdir()
        return folder

    def is_ours(self, folder: Path) -> bool:
        """True if a folder is one of `new_folder` that was not handed over yet."""
        return folder in self._given

    def take(self, folder: Path) -> Path:
        """Take over a folder that is one of these, whatever its size; where it is now.

        Raises: OSError: it could not be, and is where it was.
        """
        taken = folder.with_name(f"{folder.name}-taken")
        os.rename(folder, taken)
        self._given.discard(folder)
        return taken

    @property
    def parent(self) -> Path:
        """The folder of all folders."""
        return Path(os.environ.get(VARIABLE) or tempfile.gettempdir())

    def free_bytes(self) -> int:
        """The bytes that may still be written there. Raises: OSError."""
        return shutil.disk_usage(self._open()).free

    def close(self) -> None:
        """Remove all that is left."""
        top, self._top = self._top, None
        if top is not None:
            shutil.rmtree(top, ignore_errors=True)
        if self._lock is not None:
            self._lock.close()

    def _open(self) -> Path:
        if self._top is None:
            parent = self.parent
            parent.mkdir(parents=True, exist_ok=True)
            _sweep_up(parent)
            # It gets its name once it is locked: no process takes it for one that a killed process left.
            unlocked = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=parent))
            try:
                self._lock = open(unlocked / _LOCK, "wb")  # noqa: SIM115  held until the attempt ends
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                top = parent / f"{_PREFIX}{unlocked.name.removeprefix(_UNLOCKED)}"
                os.rename(unlocked, top)
            except OSError:
                shutil.rmtree(unlocked, ignore_errors=True)
                raise
            self._top = top
        return self._top


def _sweep_up(parent: Path) -> None:
    """Remove what processes left that are gone."""
    for top in filter(is_own, parent.glob(f"{_PREFIX}*")):
        with suppress(OSError), open(top / _LOCK, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(top, ignore_errors=True)
