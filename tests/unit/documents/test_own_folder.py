"""A folder with a known name in a shared place: this user's own, or none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from raysweep.documents.own_folder import is_own, make_own_folder
from raysweep.worker.host import pinning


def test_it_is_made_for_this_user_alone_and_made_so_where_it_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "own"
    for _ in range(2):
        make_own_folder(folder)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        folder.chmod(0o777)
    assert is_own(folder)


@pytest.mark.parametrize("kind", ["link", "file", "stranger"])
def test_what_is_not_this_users_folder_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    elsewhere.mkdir()
    match kind:
        case "link":
            folder.symlink_to(elsewhere)
        case "file":
            folder.write_text("")
        case _:
            folder.mkdir(mode=0o777)
            other = os.getuid() + 1
            monkeypatch.setattr(os, "getuid", lambda: other)  # no test can make a folder of another user
    with pytest.raises(PermissionError, match="is not a folder of this user"):
        make_own_folder(folder)
    assert pinning.pin(1, folder) == []
    assert list(elsewhere.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Of each CPU, so that none could be pinned to."""
    target = tmp_path / "target"
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    for cpu in os.sched_getaffinity(0):
        (folder / str(cpu)).symlink_to(target)
    assert pinning.pin(1, folder) == []
    assert not target.exists()
