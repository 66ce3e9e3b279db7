"""A newcomer's tour with the wheel of this checkout, in fresh environments, by commands alone.

    python -m devtools.tour                  builds the wheel
    python -m devtools.tour --wheel X        takes this one

First result, own model, a failure found and retried, a run resumed after `kill -9`, the report in a
browser, a night in Airflow and one in Prefect. Each step checks what its reader would look for.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devtools.release import build
from devtools.tutorial import ROOT, write_files

BROKEN: Final = '''"""Fails where rate is large, until the file `mended` is there."""
from pathlib import Path

import raysweep as rs


def train(config):
    if config["rate"] > 0.5 and not Path(__file__).with_name("mended").exists():
        raise ValueError(f"rate {config['rate']:.2f} is too large")
    rs.report({"loss": config["rate"]})
'''
BROKEN_SPEC: Final = """name: broken
trainable: broken:train
metric: loss
mode: min
num_samples: 6
seed: 1
param_space: {rate: {uniform: [0, 1]}}
"""


class Reader:
    """The reader that follows the tour in a folder: gives commands, in one environment at a time."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self._wheel = wheel
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))
        }
        self._environment = kept | {"HOME": str(folder), "BROWSER": "true", "NO_COLOR": "1"}
        self.took: dict[str, float] = {}
        self._part = ""
        self._began = time.monotonic()

    def part(self, name: str) -> None:
        """The next part of the tour begins."""
        self.end_part()
        self._part, self._began = name, time.monotonic()
        self._say(f"\n## {name}")

    def end_part(self) -> None:
        """The part that runs has ended."""
        if self._part:
            self.took[self._part] = round(time.monotonic() - self._began, 1)
            self._say(f"   {self.took[self._part]} s")

    def install(self, extras: str, *more: str) -> None:
        """Make an environment and install the wheel with extras into it."""
        place = self.folder / f"env-{extras.replace(',', '-')}"
        self._environment["PATH"] = f"{place}/bin:{os.environ['PATH']}"
        self.run(f"{sys.executable} -m venv {place}", shown="python -m venv .venv")
        wheel = f"raysweep[{extras}] @ {self._wheel.as_uri()}"
        words = ["pip", "install", "--quiet", wheel, *more]
        self.run(shlex.join(words), shown=shlex.join(["pip", "install", f"raysweep[{extras}]", *more]))

    def run(
        self, command: str, *, at: str = "", shown: str = "", variables: Mapping[str, str] | None = None
    ) -> str:
        """Give a command and return what it printed. Raises: SystemExit: it failed."""
        began = time.monotonic()
        where = self.folder / at
        done = subprocess.run(
            shlex.split(command),
            cwd=where,
            env=self._environment | dict(variables or {}),
            capture_output=True,
            text=True,
            check=False,
        )
        self._say(f"{time.monotonic() - began:7.1f} s  $ {shown or command}")
        if done.returncode:
            self._say(done.stdout[-3000:] + done.stderr[-3000:])
            raise SystemExit(f"{shown or command}: exit code {done.returncode}")
        return done.stdout

    def start(self, command: str, *, at: str = "") -> subprocess.Popen[bytes]:
        """Start a command and leave it running, as a process group of its own."""
        self._say(f"           $ {command} &")
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            shlex.split(command),
            cwd=self.folder / at,
            env=self._environment,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )

    def show(self, text: str, lines: int = 6) -> None:
        """Show the reader the first lines of what a command printed."""
        self._say("\n".join(f"           {line}" for line in text.strip().splitlines()[:lines]))

    @staticmethod
    def _say(text: str) -> None:
        print(text, flush=True)  # noqa: T201


def expect(holds: object, what: str) -> None:
    """Raises: SystemExit: what the reader looks for is not there."""
    if not holds:
        raise SystemExit(f"not seen: {what}")


def follow(reader: Reader) -> Mapping[str, float]:
    """Follow the whole tour; the seconds of each part."""
    _first_result(reader)
    _own_model(reader)
    _failure(reader)
    _killed(reader)
    _report(reader)
    _airflow(reader)
    _prefect(reader)
    reader.end_part()
    return reader.took


def _first_result(reader: Reader) -> None:
    reader.part("First result")
    reader.install("ray", "scikit-learn")
    reader.run("raysweep init churn")
    reader.run("raysweep plan sweep.yaml", at="churn")
    reader.run("raysweep sweep sweep.yaml --key first", at="churn")
    best = reader.run("raysweep best churn@latest", at="churn")
    reader.show(best)
    expect(best.startswith("loss 0."), "the best trial")


def _own_model(reader: Reader) -> None:
    reader.part("Own model")
    write_files(reader.folder)
    reader.run("raysweep sweep digits.yaml --key first")
    best = reader.run("raysweep best digits")
    reader.show(best)
    expect(best.startswith("accuracy 0.9"), "the best trial of the own model")


def _failure(reader: Reader) -> None:
    reader.part("A failure, found and retried")
    (reader.folder / "broken.py").write_text(BROKEN, encoding="utf-8")
    (reader.folder / "broken.yaml").write_text(BROKEN_SPEC, encoding="utf-8")
    reader.run("raysweep sweep broken.yaml --key first")
    status = reader.run("raysweep status broken@latest")
    expect("is too large" in status, "the error in `status`")
    reader.show("\n".join(line for line in status.splitlines() if "too large" in line or "retry" in line))
    (reader.folder / "mended").touch()
    reader.run("raysweep retry broken@latest")
    counts = json.loads(reader.run("raysweep status broken@latest --json"))["counts"]
    expect(counts == {"completed": 6}, f"six completed trials in {counts}")


def _killed(reader: Reader) -> None:
    reader.part("Resumed after kill -9")
    command = "raysweep sweep digits.yaml --key killed"
    with reader.start(command) as process:
        before = _until_some_ended(reader, process)
        os.killpg(process.pid, signal.SIGKILL)
    reader.run(command)
    trials = json.loads(reader.run("raysweep trials digits@killed --json"))
    after = {each["trial_id"]: each for each in _rows(trials)}
    expect(len(after) == 16, f"16 trials in {len(after)}")
    for each in before:
        expect(
            after[each["trial_id"]]["attempts"] == each["attempts"], f"{each['trial_id']} was not run again"
        )
    reader.show(f"{len(before)} trials had ended before the kill; none of them ran again")


def _until_some_ended(reader: Reader, process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """The trials that had ended when it was looked; waits until there are three."""
    for _ in range(120):
        time.sleep(1)
        expect(process.poll() is None, "a sweep that still runs")
        looked = subprocess.run(
            ["raysweep", "trials", "digits@killed", "--json"],
            cwd=reader.folder,
            env=reader._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if looked.returncode == 0:
            ended = [
                each for each in _rows(json.loads(looked.stdout)) if each["state"] in ("completed", "stopped")
            ]
            if len(ended) >= 3:
                return ended
    raise SystemExit("not seen: three trials that ended")


def _rows(trials: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = trials["trials"]
    return found


def _report(reader: Reader) -> None:
    reader.part("The report in a browser")
    reader.run("raysweep report digits@first --output digits.html")
    browser = next((name for name in ("chromium", "google-chrome") if shutil.which(name)), None)
    expect(browser, "a browser: chromium or google-chrome")
    options = "--headless --no-sandbox --disable-gpu --virtual-time-budget=5000"
    page = reader.run(f"{browser} {options} --dump-dom {(reader.folder / 'digits.html').as_uri()}")
    expect("Importance of parameters" in page, "the report's parts")


def _airflow(reader: Reader) -> None:
    reader.part("A night in Airflow")
    reader.install("ray,airflow")
    variables = {
        "AIRFLOW_HOME": str(reader.folder / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(reader.folder / "churn"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "RAYSWEEP_ADDRESS": "local",
    }
    reader.run("airflow db migrate", variables=variables)
    reader.run(
        "airflow dags test churn", shown="RAYSWEEP_ADDRESS=local airflow dags test churn", variables=variables
    )
    nights = reader.run("raysweep status --name churn")
    reader.show(nights)
    expect(nights.count("completed") >= 2, "the night of Airflow in `status`")


def _prefect(reader: Reader) -> None:
    reader.part("A night in Prefect")
    reader.install("ray,prefect")
    reader.run("python flow.py", at="churn")
    nights = reader.run("raysweep status --name churn")
    reader.show(nights)
    expect(nights.count("completed") >= 3, "the night of Prefect in `status`")


def main(argv: Sequence[str] | None = None) -> int:
    """Follow it and print the seconds of each part; 1 where something is not seen."""
    parser = argparse.ArgumentParser(prog="python -m devtools.tour", description=__doc__)
    parser.add_argument("--wheel", type=Path, help="default: it is built from this checkout")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="raysweep-tour-") as temporary:
        wheel = given.wheel
        if wheel is None:
            uv = str(Path(sys.executable).with_name("uv"))
            wheel = build(uv, ROOT, Path(temporary), dict(os.environ))[1]
        folder = Path(temporary, "tour")
        folder.mkdir()
        took = follow(Reader(folder, wheel.resolve()))
    print(json.dumps({"parts": took, "all_s": round(sum(took.values()), 1)}, indent=2))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
