"""Follows the tutorial by its commands alone, in a fresh environment with the wheel, and times it.

    python -m devtools.tutorial              builds the wheel; prints the seconds of each step as JSON
    python -m devtools.tutorial --wheel X    takes this one

The steps are those of `docs/tutorial.md`: its files are written as they stand there, and its commands run
in their order. Only the folder of the packages' index and the browser are those of this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from devtools.release import build

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs/tutorial.md"
_FILE: Final = re.compile(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMAND: Final = re.compile(r"^\$ (.+)$", re.MULTILINE)
_INSTALL: Final = re.compile(r"^pip install 'raysweep\[ray\]'(.*)$", re.MULTILINE)


def files() -> dict[str, str]:
    """The text of each file that the tutorial has the reader write, by its path."""
    return dict(_FILE.findall(PAGE.read_text(encoding="utf-8")))


def commands() -> list[str]:
    """The commands that the reader gives, in their order; those of Python files are not among them."""
    return _COMMAND.findall(PAGE.read_text(encoding="utf-8"))


def write_files(folder: Path) -> None:
    """Write the tutorial's files into a folder."""
    for name, text in files().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "digits_model/__init__.py").touch()


def follow(wheel: Path, folder: Path) -> dict[str, tuple[float, float]]:
    """Follow the tutorial in an empty folder; by command, the seconds by the clock and of the processor.

    The processor's are those of the command and of what it waited for: Ray's own processes are not all in it.

    Raises:
        subprocess.CalledProcessError: A command failed; its output is in the error.
    """
    (more,) = _INSTALL.findall(PAGE.read_text(encoding="utf-8"))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))
    }
    environment |= {
        "HOME": str(folder),
        "PATH": f"{folder}/.venv/bin:{os.environ['PATH']}",
        "BROWSER": "true",
    }
    took: dict[str, tuple[float, float]] = {}

    def run(shown: str, *command: str) -> None:
        began, used = time.monotonic(), _used_s()
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
        took[shown] = (round(time.monotonic() - began, 1), round(_used_s() - used, 1))
        seconds = "{:7.1f} s, {:6.1f} s of the processor".format(*took[shown])
        print(f"{seconds}  {shown}", file=sys.stderr, flush=True)  # noqa: T201

    run("python -m venv .venv", sys.executable, "-m", "venv", ".venv")
    run("pip install", "pip", "install", "--quiet", f"raysweep[ray] @ {wheel.as_uri()}", *more.split())
    write_files(folder)
    for command in commands():
        run(command, *shlex.split(command))
        if command.startswith("raysweep trials"):
            run("python results.py", "python", "results.py")
            run("python plot.py", "python", "plot.py")
    return took


def _used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Follow it and print the seconds; 1 where a command fails."""
    parser = argparse.ArgumentParser(prog="python -m devtools.tutorial", description=__doc__)
    parser.add_argument("--wheel", type=Path, help="default: it is built from this checkout")
    parser.add_argument("--keep", type=Path, help="an empty folder to follow it in; default: a temporary one")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="raysweep-tutorial-") as temporary:
        wheel = given.wheel
        if wheel is None:
            uv = str(Path(sys.executable).with_name("uv"))
            wheel = build(uv, ROOT, Path(temporary), dict(os.environ))[1]
        folder = given.keep or Path(temporary, "tutorial")
        folder.mkdir(exist_ok=True)
        try:
            took = follow(wheel.resolve(), folder.resolve())
        except subprocess.CalledProcessError as error:
            print(f"{shlex.join(error.cmd)} failed:\n{error.stdout}{error.stderr}", file=sys.stderr)  # noqa: T201
            return 1
    steps = {command: {"clock_s": clock, "processor_s": used} for command, (clock, used) in took.items()}
    found = {"steps": steps, "all_clock_s": round(sum(clock for clock, _ in took.values()), 1)}
    print(json.dumps(found, indent=2))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
