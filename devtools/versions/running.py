"""Makes the environment of a cell, runs its sample there, and says what came of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from devtools.versions.cells import NEWEST, TESTERS, Cell

ROOT: Final = Path(__file__).resolve().parents[2]
UV: Final = Path(sys.executable).with_name("uv")
PART_S: Final = 900.0
"""The longest run of the tests of one part."""
TODAY: Final = "2100-01-01"
"""A day that excludes no release."""
EXPERIMENTAL: Final = "optuna.exceptions.ExperimentalWarning"
"""Optuna 4 gives it for arguments that are usual in Optuna 5."""
OLD_NAMES: Final = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")
"""The tests treat warnings as errors. A row has packages of many ages, with older names of each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The result of the tests of one part."""

    result: str
    """`passed`, `failed`, or `skipped` where nothing ran."""
    passed: int = 0
    skipped: int = 0
    failed: Sequence[str] = ()
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a cell. `problem`: why its environment could not be made."""

    version: str
    date: str
    python: str = ""
    problem: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


class NoEnvironment(Exception):
    """The environment of a cell cannot be made; the message is the installer's."""


def run(
    cell: Cell, say: Callable[[str], None], keep: Callable[[Result], None], only: Sequence[str] = ()
) -> Result:
    """Make the environment, and run the parts of the sample, or those that are named.

    `keep` gets the result after each part: a run takes minutes, and may be interrupted.
    """
    result = Result(version=cell.version, date=f"{datetime.now(UTC):%Y-%m-%d}")
    try:
        python = make_environment(cell)
    except NoEnvironment as error:
        result.problem = str(error)
        say(f"{cell.name}: {result.problem}")
        keep(result)
        return result
    result.python, result.packages = installed(python)
    for part, arguments in cell.sample.items():
        if only and part not in only:
            continue
        found = run_part(cell, python, part, arguments)
        result.parts[part] = found
        keep(result)
        failed = f", {len(found.failed)} failed: {' '.join(found.failed)}" if found.failed else ""
        say(f"{cell.name}: {part}: {found.result}, {found.passed} passed{failed} ({found.seconds:.0f} s)")
    return result


def make_environment(cell: Cell) -> Path:
    """The cell's interpreter; its environment is made where it is not there, or was made of something else.

    Raises: NoEnvironment.
    """
    folder = ROOT / f".venv-versions-{cell.name}"
    python, stamp = folder / "bin/python", folder / ".installed"
    wanted = _digest(cell)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    if not python.exists():
        _install("venv", "--seed", "--python", find_python(cell.python), str(folder))
    requirements = [*cell.packages, *TESTERS]
    constraints: list[str] = []
    if cell.until:
        newest = [f"--exclude-newer-package={name}={TODAY}" for name in NEWEST]
        constraints = ["--exclude-newer", cell.until, *newest]
    if cell.is_pinned:
        constraints = ["--constraints", str(_constraints(cell, folder))]
    # The cell's own requirements stand above raysweep's: a version that is not promised yet can be tried.
    overrides = folder / "overrides.txt"
    overrides.write_text("\n".join(cell.packages) + "\n")
    constraints += ["--overrides", str(overrides)]
    what = ["--editable", f"{ROOT}[{cell.extras}]", *requirements]
    _install("pip", "install", "--python", str(python), *constraints, *what)
    stamp.write_text(wanted)
    return python


def find_python(version: str) -> str:
    """An interpreter of this version: on PATH, or pyenv's, or the name, which uv looks up.

    The environment of a test needs an interpreter that this machine has: nothing is downloaded.
    """
    home = Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv"))) / "versions"
    found = sorted(home.glob(f"{version}.*/bin/python"), key=lambda path: _numbers(path.parts[-3]))
    return str(found[-1]) if found else version


def installed(python: Path) -> tuple[str, dict[str, str]]:
    """The version of Python in an environment, and those of the packages that the table is about."""
    code = (
        "import importlib.metadata as m, json, platform\n"
        "names = ['ray', 'apache-airflow', 'prefect', 'optuna', 'torch', 'pydantic', 'sqlalchemy', 'typer']\n"
        "found = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "print(json.dumps([platform.python_version(), {n: found[n] for n in names if n in found}]))"
    )
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    version, packages = json.loads(said.stdout)
    return str(version), packages


def run_part(cell: Cell, python: Path, part: str, arguments: Sequence[str]) -> Part:
    """The tests of one part, in one process of pytest."""
    report = python.parents[1] / f"{re.sub('[^a-z]+', '-', part.lower())}.xml"
    report.unlink(missing_ok=True)
    options = [
        "-q",
        "-n0",
        "-p",
        "no:cacheprovider",
        *(
            f"-Wdefault::{name}"
            for name in (*OLD_NAMES, *([EXPERIMENTAL] if cell.product == "optuna" else []))
        ),
        "--tb=short",
        "-o",
        "junit_family=xunit1",
        f"--junitxml={report}",
    ]
    began = time.monotonic()
    log = report.with_suffix(".log")
    with log.open("wb") as output:
        try:
            subprocess.run(
                [python, "-m", "pytest", *options, *arguments, "-m", _marks(arguments)],
                cwd=ROOT,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=PART_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Part(result="failed", failed=[f"no end after {PART_S:.0f} s"], seconds=PART_S)
    return read_report(report, time.monotonic() - began)


def _marks(arguments: Sequence[str]) -> str:
    """A test that is named may be slow; of a folder or a file those that are not."""
    return "" if all("::" in each for each in arguments if each.startswith("tests/")) else "not slow"


def read_report(report: Path, seconds: float) -> Part:
    """The results in pytest's XML; no file: it did not come to that."""
    if not report.exists():
        return Part(result="failed", failed=["pytest did not start"], seconds=round(seconds, 1))
    passed, skipped, failed = 0, 0, list[str]()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(case.get("name") or case.get("classname") or "?")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    result = "failed" if failed else "passed" if passed else "skipped"
    return Part(result=result, passed=passed, skipped=skipped, failed=failed, seconds=round(seconds, 1))


def _constraints(cell: Cell, folder: Path) -> Path:
    """constraints.txt without the packages that the cell names itself, or does not pin."""
    own = {re.split(r"[\[=<>~!; ]", each, maxsplit=1)[0].lower() for each in cell.packages}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    names = [re.split(r"[\[=<>~!; ]", line, maxsplit=1)[0].lower() for line in lines]
    kept = [
        line
        for line, name in zip(lines, names, strict=True)
        if name not in own and not name.startswith(cell.unpinned)
    ]
    path = folder / "constraints.txt"
    path.write_text("\n".join(kept) + "\n")
    return path


def _install(*arguments: str) -> None:
    done = subprocess.run([UV, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise NoEnvironment(" ".join(lines)[:600] or f"uv ended with {done.returncode}")


def _digest(cell: Cell) -> str:
    """Of all that an environment is made of."""
    text = repr((cell.extras, cell.packages, cell.until, cell.python, cell.is_pinned, cell.unpinned, TESTERS))
    for name in ("pyproject.toml", *(["constraints.txt"] if cell.is_pinned else [])):
        text += (ROOT / name).read_text()
    return sha256(text.encode()).hexdigest()


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]
