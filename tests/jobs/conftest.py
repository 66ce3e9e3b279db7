"""One real Ray head for all tests of the jobs room, and ways to look at what is left on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.head import Head


@pytest.fixture(scope="session")
def running_head() -> Iterator[Head]:
    head = Head()
    try:
        head.start()
        yield head
    finally:
        head.close()


@pytest.fixture
def head(running_head: Head) -> Head:
    """The shared head of 2 CPUs; started again if the test before left it dead."""
    if not running_head.answers():
        running_head.restart()
    return running_head


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """Where sweeps are stored; the head is on this machine and can write there."""
    return tmp_path / "sweeps"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file to which the trainables of `tests/engine/trainables.py` write a line at each start or step."""
    path = tmp_path / "log"
    path.touch()
    return path
