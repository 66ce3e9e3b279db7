"""A run of tests in a forked child that is ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import pytest

OPTIONS = (
    *(
        "-x",
        "-q",
        "-s",
        "--no-header",
        "--tb=line",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.mutation.ordering",
    ),
    *("-m", "not slow and not servers and not ray"),
    # Hypothesis is there before pytest, which would have liked to rewrite it.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
POLL_S = 0.01
LOG_CHARACTERS = 2000

MUTATED = "RAYSWEEP_MUTATION_FILE"
"""The environment variable that names the mutated module."""


class Answer(TypedDict):
    """How one run of tests ended."""

    code: int | None
    """pytest's exit code; None: it was ended, as it took too long."""
    test: str
    """The last test that began: with `-x` the one that failed, or did not come back."""
    took_s: float
    log: str
    """The end of what was printed."""


class Notes:
    """A pytest plugin: notes each test that begins, and whether one has failed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.has_failed = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Called before each test."""
        self._file.write_text(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called after set-up, call and tear-down of each test."""
        if report.failed:
            self.has_failed = True
            print(report.nodeid, report.longreprtext, sep="\n")


def run(tests: Callable[[Notes], int], limit_s: float, mutated: str | None) -> Answer:
    """Call `tests` in a forked child; its result is the exit code."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        child = os.fork()
        if child == 0:
            _child(folder, tests, mutated)
        code = _wait(child, began + limit_s)
        test, log = _read(folder / "test"), _read(folder / "log")
    return Answer(code=code, test=test, took_s=time.monotonic() - began, log=log[-LOG_CHARACTERS:])


def _child(folder: Path, tests: Callable[[Notes], int], mutated: str | None) -> None:
    """Never returns."""
    code: int = pytest.ExitCode.INTERNAL_ERROR
    try:
        _settle(folder, mutated)
        code = tests(Notes(folder / "test"))
    except BaseException:  # noqa: BLE001  a child may end only below
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _settle(folder: Path, mutated: str | None) -> None:
    """A session of its own, a log, a folder to work in: a mutant that loses a path's parent writes there."""
    os.setsid()
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(stream, number)
    if mutated is not None:
        os.environ[MUTATED] = mutated
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    (folder / "work").mkdir()
    os.chdir(folder / "work")


def _wait(child: int, deadline: float) -> int | None:
    """The child's exit code; None where it had to be ended. What it started ends with it."""
    try:
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(POLL_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _read(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
