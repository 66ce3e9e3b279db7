"""Folders with a known name in a place where other users may write, such as /tmp or /dev/shm."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make_own_folder(folder: Path) -> None:
    """Make a folder for this user alone, unless it is there.

    Raises:
        OSError: It cannot be made; it is a link, or belongs to another user (PermissionError).
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(f"{folder} is not a folder of this user") from None
        if found.st_mode & 0o077:
            os.chmod(folder, 0o700)  # it is ours: no one else can put a link in its place


def is_own(path: Path) -> bool:
    """True if it belongs to this user, and is no link."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode)
