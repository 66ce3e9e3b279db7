"""Runs tests on a scratch copy of the repository, with one mutant in it at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

from tests.mutation import scope
from tests.mutation.forked import Answer
from tests.mutation.ordering import TIMES
from tests.mutation.population import Mutant
from tests.mutation.swapped import CANNOT

Process = subprocess.Popen[str]

SOURCE_ROOTS = ("engine", "operators", "flows")
BASELINE_LIMIT_S = 1800.0
GRACE_S = 60.0
TIMES_AS_LONG = 3.0

Fate = Literal["killed", "hung", "survived"]
"""A mutant that hangs is found out as well: `hung` counts as killed."""

OK = 0
"""pytest's exit code where all passed."""


@dataclass(frozen=True)
class Trial:
    """What became of one mutant."""

    mutant: Mutant
    fate: Fate
    by: str
    """The first test that failed; empty where none did."""
    took_s: float


class Laboratory:
    """A copy of the repository and two processes that run tests there. Nothing is written to the checkout."""

    def __init__(self, folder: Path, swapped: Process, fresh: Process) -> None:
        self._folder = folder
        self._swapped = swapped
        self._fresh = fresh
        self._limit_s = BASELINE_LIMIT_S

    def baseline(self) -> Answer:
        """Run all tests on the code as it is: no mutant takes much longer."""
        answer = ask(self._swapped, tests=[""], limit_s=BASELINE_LIMIT_S, mutated=None)
        self._limit_s = GRACE_S + TIMES_AS_LONG * answer["took_s"]
        return answer

    def test(self, mutant: Mutant) -> Trial:
        """Put the mutant in, run its tests stage by stage until one fails, put the original back."""
        original = (self._folder / mutant.file).read_text()
        took_s = 0.0
        try:
            # Written also where it is swapped in: tests start processes that import it.
            self._write(mutant.file, mutant.code)
            for tests in scope.stages_of(mutant.file):
                request = {"tests": tests, "limit_s": self._limit_s, "mutated": mutant.file}
                answer = ask(self._swapped, **request, original=original, code=mutant.code)
                if answer["code"] == CANNOT:
                    answer = ask(self._fresh, **request)
                took_s += answer["took_s"]
                if answer["code"] != OK:
                    break
        finally:
            self._write(mutant.file, original)
        return Trial(mutant, fate(answer), culprit(answer), took_s)

    def _write(self, file: str, code: str) -> None:
        """Write a module, and forget what Python has compiled of it: length and second may be the same."""
        path = self._folder / file
        path.write_text(code)
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()


@contextmanager
def laboratory(root: Path, folder: Path, files: Iterable[str]) -> Iterator[Laboratory]:
    """A scratch copy of the working tree in `folder`; in it, two processes that run these modules' tests."""
    copy(root, folder)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*(str(folder / name) for name in SOURCE_ROOTS), *inherited(root)]),
        TIMES: str(folder / ".times.json"),
    }
    with (
        started("swapped", *scope.tests_of(files), cwd=folder, env=environment) as swapped,
        started("fresh", cwd=folder, env=environment) as fresh,
    ):
        yield Laboratory(folder, swapped, fresh)


@contextmanager
def started(module: str, *arguments: str, cwd: Path, env: dict[str, str]) -> Iterator[Process]:
    """A process of this package that answers requests."""
    command = [sys.executable, "-m", f"tests.mutation.{module}", *arguments]
    process = subprocess.Popen(
        command, cwd=cwd, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def ask(process: Process, **request: Any) -> Answer:
    """Send a request, wait for the answer."""
    requests, answers = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)
    print(json.dumps(request), file=requests, flush=True)
    return cast("Answer", json.loads(answers.readline()))


def inherited(root: Path) -> list[str]:
    """PYTHONPATH without the checkout's own folders."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [path for path in paths if path and not Path(path).is_relative_to(root)]


def copy(root: Path, folder: Path) -> None:
    """Copy what git tracks, or would, as it lies there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=root, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listing.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def fate(answer: Answer) -> Fate:
    """What the tests say of a mutant. Anything but a pass is a failure: an import that fails, a crash."""
    if answer["code"] is None:
        return "hung"
    return "survived" if answer["code"] == OK else "killed"


def culprit(answer: Answer) -> str:
    """The test that has found the mutant out; what was printed last where none had begun."""
    if answer["code"] == OK:
        return ""
    lines = [line for line in answer["log"].splitlines() if line.strip()]
    return answer["test"] or "".join(lines[-1:])
