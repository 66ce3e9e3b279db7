"""An earlier tree of this repository to compare with: a folder, or what a revision of git has."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

LAST: Final = "last"
"""The newest release's tag; before the first release, the newest commit that is a day older than HEAD."""
DAY_S: Final = 86_400


@contextmanager
def earlier(asked: str, root: Path) -> Iterator[Path]:
    """The tree, for as long as the block runs. Raises: ValueError: it is neither a tree nor a revision."""
    if Path(asked).is_dir():
        yield _checked(Path(asked), asked)
        return
    revision = last_of(root) if asked == LAST else asked
    with TemporaryDirectory(prefix="raysweep-earlier-") as folder:
        with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", revision))) as archive:
            archive.extractall(folder, filter="data")
        yield _checked(Path(folder), asked)


def last_of(root: Path) -> str:
    """The revision that `LAST` means. Raises: ValueError."""
    tags = _git(root, "tag", "--list", "v*", "--sort=-creatordate", "--merged", "HEAD").decode().split()
    if tags:
        return tags[0]
    made_at = int(_git(root, "log", "-1", "--format=%ct"))
    found = _git(root, "rev-list", "-1", f"--before={made_at - DAY_S}", "HEAD").decode().strip()
    return found or "HEAD~1"


def _checked(tree: Path, asked: str) -> Path:
    if not (tree / "engine" / "raysweep").is_dir():
        raise ValueError(f"--against: {asked} has no engine/raysweep")
    return tree


def _git(root: Path, *arguments: str) -> bytes:
    ran = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    if ran.returncode:
        said = ran.stderr.decode(errors="replace").strip()
        raise ValueError(f"--against takes a folder, a revision of git, or {LAST!r}: {said}")
    return ran.stdout
