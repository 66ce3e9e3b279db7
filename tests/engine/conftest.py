"""One local Ray for all tests that need one, and short ways to run a sweep on it and to read its journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection, connect
from raysweep.core import decode
from raysweep.core.vocabulary.events import Event
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from raysweep.worker.host.cpus import VARIABLES

HERE = "tests.engine.trainables"
ROOT = Path(__file__).parents[2]
INLINE: dict[str, Any] = {"isolation": "inline", "max_concurrent_trials": 1}
"""For sweeps of which it is not asked where their trials run: no worker has to start."""


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayConnection]:
    """An embedded Ray of 2 CPUs that this process is connected to.

    It is started without the numbers of threads that an inline trial may have set in this process.
    """
    set_here = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
    with connect(num_cpus=2) as connection:
        os.environ.update(set_here)
        yield connection


@pytest.fixture(scope="session")
def address(ray_cluster: RayConnection) -> str:
    """Where other processes reach that Ray."""
    import ray

    return str(ray.get_runtime_context().gcs_address)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "sweeps"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file to which the trainables of `trainables.py` write a line at each start or step."""
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def make_spec(storage: Path, log: Path) -> Callable[..., rs.SweepSpec]:
    """A spec for a trainable, by its name in `trainables.py`; `space` adds to a param space with the log."""

    def make(
        trainable: str | Callable[..., Any], space: dict[str, Any] | None = None, **fields: Any
    ) -> rs.SweepSpec:
        if isinstance(trainable, str) and ":" not in trainable:
            trainable = f"{HERE}:{trainable}"
        plain: dict[str, Any] = {"name": "t", "metric": "loss", "mode": "min", "seed": 7, "search": "random"}
        plain["failure"] = {"backoff_initial_s": 0.05, "breaker_trials": 0} | fields.pop("failure", {})
        plain["stop"] = {"grace_s": 0.5} | fields.pop("stop", {})
        plain["param_space"] = {"log": str(log), "x": {"uniform": [0, 1]}} | (space or {})
        return rs.SweepSpec(trainable=trainable, storage_path=str(storage), **plain | fields)

    return make


@pytest.fixture
def run(
    request: pytest.FixtureRequest, make_spec: Callable[..., rs.SweepSpec]
) -> Callable[..., rs.SweepOutcome]:
    """Run a sweep under the key `k`: on the shared Ray, or without one in a test with the mark `here`."""
    place: dict[str, Any] = {"address": "here", "num_cpus": 2}
    if request.node.get_closest_marker("here") is None:
        request.getfixturevalue("ray_cluster")
        place = {}

    def run(*args: Any, on_progress: Any = None, **fields: Any) -> rs.SweepOutcome:
        return rs.run_sweep(make_spec(*args, **fields), key="k", on_progress=on_progress, **place)

    return run


@pytest.fixture
def events(storage: Path) -> Callable[..., list[Any]]:
    """The journal of the sweep with the key `k`, read back: all events, or those of some types."""

    def read(*types: type[Event], name: str = "t") -> list[Any]:
        journal = SweepFolder(open_store(str(storage)), sweep_id(name, "k")).journal()
        decoded = [decode(line) for line in journal.contents().records]
        return [event for event in decoded if not types or isinstance(event, types)]

    return read


@pytest.fixture
def lines(log: Path) -> Callable[[], list[list[str]]]:
    """The log's lines, each split at its spaces."""
    return lambda: [line.split() for line in log.read_text().splitlines()]


@dataclass
class Driver:
    """A process that runs a sweep; it leads a session and a process group of its own."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def finish(self, timeout_s: float = 300) -> tuple[int, dict[str, Any]]:
        """Wait for its end: exit code and what it printed."""
        out, self.errors = self.process.communicate(timeout=timeout_s)
        # Ray may have said something before.
        last = out.strip().splitlines()[-1:]
        return self.process.returncode, json.loads(last[0]) if last else {}

    def outcome(self) -> rs.SweepOutcome:
        code, said = self.finish()
        assert code == 0, (code, said, self.errors)
        return rs.SweepOutcome.from_json(json.dumps(said["outcome"]))


@pytest.fixture
def drive() -> Iterator[Callable[..., Driver]]:
    """Start a driver for a spec; whatever is left of it is killed at the end of the test."""
    started: list[Driver] = []

    def drive(spec: rs.SweepSpec, key: str = "k", **options: Any) -> Driver:
        arguments = json.dumps({"spec": spec.to_dict(), "key": key, **options})
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.engine.driver", arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(Driver(process))
        return started[-1]

    yield drive
    for driver in started:
        for pid in session_of(driver.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        driver.process.communicate()


def session_of(leader: int) -> list[int]:
    """The live processes of the session (as in setsid) that `leader` leads."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] != "Z" and int(fields[3]) == leader:
                    found.append(int(entry.name))
    return found


def wait_for(check: Callable[[], Any], timeout_s: float = 240) -> Any:
    """The first true value of `check`."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = check()
        if value or time.monotonic() > deadline:
            assert value, "waited in vain"
            return value
        time.sleep(0.01)
