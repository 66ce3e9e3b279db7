"""Directories of the user's as they were at a report: copied, but for the files that have not changed since.

A file is known by what its file system says of it (`Version`). One that was in the capture before this one,
and is the same, is not copied: while the other's copy is there it gets a second name; once that one is
stored, the new checkpoint refers to what it stored. Only the capture right before counts: so each one between
that which stored a file and that which refers to it has the file, and whichever of them is committed last is
a parent that holds it, also where some could not be stored.

Nothing is believed of a file that changed less than `SETTLED_NS` ago (two changes within one tick of the file
system's clock look the same), nor of one that this process has mapped to write to (that shows late or never).
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from raysweep.storage.checkpoints.directory import scan_directory, unreadable
from raysweep.worker.checkpoints.copying import copy_file

if TYPE_CHECKING:
    from raysweep.storage.checkpoints.manifest import FileEntry, Manifest

SETTLED_NS: Final = 2 * 10**9
"""The coarsest clock of a file system in use is FAT's: 2 s."""
TRIES: Final = 3
"""The number of times that a file is copied that changes meanwhile."""


class Version(NamedTuple):
    """The version of a file, as the file system has it: another content has another version."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """Raises: SpecError: the file cannot be looked at."""
        try:
            found = os.stat(path)
        except OSError as error:
            raise unreadable(path, error.strerror or str(error)) from error
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class NoPlaceError(Exception):
    """There is no place for a capture, and nothing of it is left. `why`: what the disk said."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(slots=True, eq=False, kw_only=True)
class Capture:
    """A directory at a report, in `folder`, where it has no `absent` files: those are as in the parent.

    `versions`: of the files, by path, that can be told from any other; `unsteady`: those that changed each
    time that they were copied.
    """

    folder: Path
    versions: dict[str, Version] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    unsteady: list[str] = field(default_factory=list)
    is_held: bool = True
    """True if the copies are there (still)."""
    is_stored: bool = False

    def by_version(self) -> dict[Version, str]:
        """A path for each version."""
        return {version: path for path, version in self.versions.items()}

    def carried(self, parent: Manifest | None, stored: Capture | None) -> dict[str, FileEntry]:
        """The files that are in the parent, which `stored` became, by their paths here."""
        if parent is None or stored is None:
            return {}
        entries, there = {entry.path: entry for entry in parent.files}, stored.by_version()
        return {
            path: replace(entries[there[version]], path=path)
            for path, version in self.versions.items()
            if version in there
        }


class Captures:
    """Those of one attempt. `new_folder` gives an empty folder for one; `go_on` ends one by an error."""

    def __init__(self, new_folder: Callable[[], Path], go_on: Callable[[], None]) -> None:
        self._new_folder = new_folder
        self._go_on = go_on
        self._last: Capture | None = None
        self._releasing = threading.Lock()
        """While it is held, no copy goes away."""

    def take(self, directory: Path) -> Capture:
        """Copy a directory of the user's, which may be written to again afterwards.

        Raises: SpecError: it cannot be kept. NoPlaceError.
        """
        files, empty_folders = scan_directory(directory)
        folder: Path | None = None
        try:
            folder = self._new_folder()
            capture = Capture(folder=folder)
            for path in empty_folders:
                (folder / path).mkdir(parents=True)
            self._copy(directory, capture, self._reuse(directory, capture, files))
        except OSError as error:
            self._drop(folder)
            raise NoPlaceError(f"{error.strerror or error}") from error
        except BaseException:
            self._drop(folder)
            raise
        self._last = capture
        return capture

    def look(self, directory: Path) -> Capture:
        """A directory that is stored from where it is, once all before it is over: nothing is copied."""
        began_ns = time.time_ns()
        capture = Capture(folder=directory, is_held=False)
        files, _ = scan_directory(directory)
        mapped = mapped_inodes()
        for path in files:
            _note_version(capture, path, Version.of(directory / path), began_ns, mapped)
        self._last = capture
        return capture

    def adopt(self, folder: Path) -> Capture:
        """A folder that is ours already."""
        self._last = Capture(folder=folder)
        return self._last

    def release(self, capture: Capture, *, is_stored: bool) -> None:
        """It is stored, or never will be: its copies go."""
        with self._releasing:
            was_held, capture.is_held, capture.is_stored = capture.is_held, False, is_stored
        if was_held:
            shutil.rmtree(capture.folder, ignore_errors=True)

    def _reuse(self, directory: Path, capture: Capture, files: tuple[str, ...]) -> list[str]:
        """Take what the capture before has; the files that it has not."""
        last = self._last
        if last is None or not last.versions:
            return list(files)
        mapped, changed, paths = mapped_inodes(), [], last.by_version()
        with self._releasing:
            for path in files:
                version = Version.of(directory / path)
                there = None if version.inode in mapped else paths.get(version)
                if there is None or not _take_from(last, there, capture, path):
                    changed.append(path)
                else:
                    capture.versions[path] = version
        return changed

    def _copy(self, directory: Path, capture: Capture, files: list[str]) -> None:
        began_ns, mapped = time.time_ns(), mapped_inodes()
        copies: dict[Version, Path] = {}
        for path in files:
            target = capture.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            version = self._copy_steadily(directory / path, target, copies)
            if version is None:
                capture.unsteady.append(path)
            else:
                copies[version] = target
                _note_version(capture, path, version, began_ns, mapped)

    def _copy_steadily(self, source: Path, target: Path, copies: dict[Version, Path]) -> Version | None:
        """The version that was copied; None: it changed each time that it was.

        `copies`: what was copied just now; a file with several names, or links to it, is copied once.
        """
        for _ in range(TRIES):
            self._go_on()
            before = Version.of(source)
            target.unlink(missing_ok=True)
            if (copy := copies.get(before)) is not None:
                os.link(copy, target)
            else:
                copy_file(source, target, self._go_on)
            if Version.of(source) == before:
                return before
        return None

    def _drop(self, folder: Path | None) -> None:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def mapped_inodes() -> frozenset[int]:
    """The files that this process has mapped to write to."""
    found = set()
    with suppress(OSError), open("/proc/self/maps", "rb") as lines:  # a name in it may be no UTF-8
        for line in lines:
            _, permissions, _, _, inode, *_ = line.split(maxsplit=5)
            if permissions[1:2] == b"w" and permissions[3:4] == b"s":
                found.add(int(inode))
    return frozenset(found)


def _note_version(
    capture: Capture, path: str, version: Version, began_ns: int, mapped: frozenset[int]
) -> None:
    is_settled = max(version.mtime_ns, version.ctime_ns) < began_ns - SETTLED_NS
    if is_settled and version.inode not in mapped:
        capture.versions[path] = version


def _take_from(last: Capture, there: str, capture: Capture, path: str) -> bool:
    """True if a file need not be copied, since the capture before has it."""
    if last.is_stored or there in last.absent:
        capture.absent.add(path)
        return True
    if not last.is_held:
        return False
    target = capture.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(last.folder / there, target)  # of the copy, which does not change
    except OSError:
        return False
    return True
