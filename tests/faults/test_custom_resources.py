"""Custom resources by config on a real node: what it offers is never exceeded, also after a kill."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.engine.conftest import wait_for
from tests.engine.trainables import note
from tests.faults.nodes import driving, read_log, several_nodes

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.servers, pytest.mark.timeout(300)]
LICENCES = 3
HOLD_S = 0.5
# A dead worker's locks and its resources in Ray are not free in the same moment.
PATIENCE_S = 0.2


def hold(config: dict[str, Any]) -> dict[str, Any]:
    """Use as many licences as the config says for a while."""
    number, wanted = rs.get_context().number, max(1, config["n"])
    with _licences(Path(config["folder"]), wanted):
        note(config, "start", number)
        time.sleep(HOLD_S)
        note(config, "end", number)
    return {"loss": 1.0, "has": rs.get_context().resources["licence"]}


@contextmanager
def _licences(folder: Path, count: int) -> Iterator[None]:
    """Hold so many of the licences, each a locked file that is free when its process ends.

    Raises: RuntimeError: There are not so many.
    """
    deadline = time.monotonic() + PATIENCE_S
    held: dict[int, int] = {}
    while len(held) < count:
        for number in {*range(LICENCES)} - held.keys():
            lock = _lock(folder / str(number)) if len(held) < count else None
            held |= {} if lock is None else {number: lock}
        if len(held) < count and time.monotonic() > deadline:
            raise RuntimeError(f"{count} licences were wanted, and {len(held)} were free")
        time.sleep(0.01)
    yield
    for lock in held.values():
        os.close(lock)


def _lock(path: Path) -> int | None:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


@pytest.mark.slow
def test_trials_never_hold_more_of_a_custom_resource_than_there_is(tmp_path: Path) -> None:
    log, needs = tmp_path / "log", [1, 2, 3, 1, 0, 3, 2, 1, 1, 4]
    log.touch()
    spec = rs.SweepSpec(
        name="t",
        trainable="tests.faults.test_custom_resources:hold",
        param_space={"n": {"grid_search": needs}, "folder": str(tmp_path), "log": str(log)},
        metric="loss",
        mode="min",
        resources={"cpu": 0.5, "custom": {"licence": 1}, "by_config": {"custom": {"licence": "n"}}},
        failure={"max_failures": 0, "breaker_trials": 0, "placement_timeout_s": 1.0},
        storage_path=str(tmp_path / "sweeps"),
    )

    def numbers(what: str) -> list[str]:
        return [words[1] for words in read_log(log) if words[0] == what]

    with several_nodes() as cluster:
        cluster.add_node(num_cpus=8, resources={"licence": LICENCES})
        with driving(spec, cluster.address) as driver:
            wait_for(lambda: len(numbers("end")) >= 3)
            os.kill(driver.pid, signal.SIGKILL)
            driver.process.wait()
        with driving(spec, cluster.address) as driver:
            outcome = driver.outcome()
    *trials, beyond = outcome.trials
    assert [trial.error for trial in trials] == [None] * len(trials)
    assert [trial.metrics["has"] for trial in trials] == [max(1, n) for n in needs[:-1]]
    assert beyond.error is not None
    assert "it needs custom.licence=4, for which no node has room" in beyond.error.message
    assert outcome.generation == 2
    assert len(numbers("start")) < 2 * len(trials), "what had ended did not run again"
