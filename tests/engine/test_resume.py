"""A driver that is killed, or asked to leave, and then run again."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.core.vocabulary.events import CheckpointCommitted, TrialFailed, TrialReturned, TrialStopped
from tests.engine.conftest import Driver, wait_for
from tests.engine.results import shown

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
Events = Callable[..., list[Any]]
Lines = Callable[[], list[list[str]]]
Drive = Callable[..., Driver]
MakeSpec = Callable[..., rs.SweepSpec]

ENDS = (TrialReturned, TrialStopped, TrialFailed)


def sequential(make_spec: MakeSpec) -> rs.SweepSpec:
    return make_spec(
        "steps",
        {"pause": 0.02, "steps": 9, "y": {"loguniform": [1e-3, 1]}},
        num_samples=14,
        search={"tpe": {"n_startup_trials": 4}},
        scheduler={"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3}},
        max_concurrent_trials=1,
    )


@pytest.fixture(scope="module")
def undisturbed(ray_cluster: RayConnection, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The outcome of the sequential sweep when nobody kills anybody."""
    folder = tmp_path_factory.mktemp("undisturbed")

    def make(trainable: str, space: dict[str, Any], **fields: Any) -> rs.SweepSpec:
        return rs.SweepSpec(
            name="t",
            trainable=f"tests.engine.trainables:{trainable}",
            param_space={"log": str(folder / "log"), "x": {"uniform": [0, 1]}} | space,
            metric="loss",
            mode="min",
            seed=7,
            failure={"backoff_initial_s": 0.05, "breaker_trials": 0},
            stop={"grace_s": 0.5},
            storage_path=str(folder / "sweeps"),
            **fields,
        )

    outcome = rs.run_sweep(sequential(make), key="k")
    assert {"completed", "stopped"} <= set(outcome.counts)
    return shown(outcome)


@pytest.mark.parametrize(
    "steps", [3, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (18, 31, 44))]
)
def test_a_killed_driver_changes_nothing_in_the_end(
    steps: int,
    make_spec: MakeSpec,
    drive: Drive,
    address: str,
    events: Events,
    lines: Lines,
    undisturbed: dict[str, Any],
) -> None:
    spec = sequential(make_spec)
    driver = drive(spec, address=address)
    wait_for(lambda: sum(line[0] == "step" for line in lines()) >= steps or driver.process.poll() is not None)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    ended = {event.trial for event in events(*ENDS)}
    checkpointed = {event.trial for event in events(CheckpointCommitted)} - ended
    assert len(ended) < 14

    outcome = rs.run_sweep(spec, key="k")

    assert outcome.generation == 2
    assert shown(outcome) == undisturbed
    starts = Counter(int(line[1]) for line in lines() if line[0] == "start")
    assert all(starts[trial] == 1 for trial in ended)
    resumed = {int(line[1]) for line in lines() if line[0] == "resumed"}
    assert checkpointed <= resumed


@pytest.mark.slow
def test_two_at_a_time_are_not_run_again_either(
    make_spec: MakeSpec, drive: Drive, address: str, events: Events, lines: Lines
) -> None:
    spec = make_spec("slow", {"pause": 0.1}, num_samples=30)
    driver = drive(spec, address=address)
    wait_for(lambda: sum(line[0] == "end" for line in lines()) >= 10)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    ended = {event.trial for event in events(*ENDS)}
    assert ended
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.counts == {"completed": 30}
    starts = Counter(int(line[1]) for line in lines() if line[0] == "start")
    assert all(starts[trial] == 1 for trial in ended)
    assert outcome == rs.run_sweep(spec, key="k")


# -- embedded Ray: what is left of it ------------------------------------------------------------------


def folders_of(pid: int) -> list[Path]:
    """The temporary folders of the embedded Ray that process `pid` started."""
    found = []
    for owner in Path("/tmp").glob("rs-*/owner.json"):
        try:
            if f'"pid": {pid},' in owner.read_text():
                found.append(owner.parent)
        except OSError:
            continue
    return found


def check_nothing_is_left(driver: Driver, folder: Path) -> None:
    from raysweep.cluster.ray.temp_folder import processes_in
    from tests.engine.conftest import session_of

    wait_for(lambda: not processes_in(folder) and not session_of(driver.pid), 10)
    assert not folder.exists()
    assert not folders_of(driver.pid)


def start_embedded(spec: rs.SweepSpec, drive: Drive, lines: Lines) -> tuple[Driver, Path]:
    before = len(lines())
    driver = drive(spec, num_cpus=2)
    wait_for(lambda: len(lines()) >= before + 2 or driver.process.poll() is not None)
    assert driver.process.poll() is None, driver.finish() and driver.errors
    (folder,) = folders_of(driver.pid)
    return driver, folder


@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_one_ctrl_c_leaves_a_sweep_that_goes_on(
    name: str, make_spec: MakeSpec, drive: Drive, lines: Lines, ray_cluster: RayConnection
) -> None:
    spec = make_spec("steps", {"pause": 0.1, "steps": 30}, num_samples=2)
    driver, folder = start_embedded(spec, drive, lines)
    for trial in "01":
        wait_for(lambda trial=trial: sum(line[:2] == ["step", trial] for line in lines()) >= 3)
    if name == "SIGINT":
        # A terminal sends it to the whole foreground group: Ray's processes get it too.
        os.killpg(driver.pid, signal.SIGINT)
    else:
        os.kill(driver.pid, signal.SIGTERM)
    code, said = driver.finish(60)
    assert (code, said["error"]) == (3, "SweepInterrupted"), driver.errors
    assert "Traceback" not in driver.errors
    check_nothing_is_left(driver, folder)

    outcome = rs.run_sweep(spec, key="k")
    assert outcome.counts == {"completed": 2}
    assert sum(line[0] == "resumed" for line in lines()) == 2
    steps = Counter((line[1], line[2]) for line in lines() if line[0] == "step")
    assert max(steps.values()) <= 2
    assert sum(steps.values()) <= 62


@pytest.mark.slow
def test_two_ctrl_c_end_at_once(make_spec: MakeSpec, drive: Drive, lines: Lines) -> None:
    spec = make_spec("sleeper", {"sleepers": [0, 1]}, num_samples=2, stop={"grace_s": 30})
    driver, folder = start_embedded(spec, drive, lines)
    os.killpg(driver.pid, signal.SIGINT)
    with pytest.raises(Exception, match="timed out"):
        driver.finish(2)
    os.killpg(driver.pid, signal.SIGINT)
    code, said = driver.finish(30)
    assert (code, said["error"]) == (3, "SweepInterrupted")
    check_nothing_is_left(driver, folder)


@pytest.mark.slow
def test_ctrl_c_while_ray_starts(make_spec: MakeSpec, drive: Drive) -> None:
    driver = drive(make_spec("noop"), num_cpus=2)
    (folder,) = wait_for(lambda: folders_of(driver.pid))
    wait_for(lambda: any(folder.glob("session_*/sockets")))
    os.killpg(driver.pid, signal.SIGINT)
    code, _ = driver.finish(60)
    assert code != 0
    check_nothing_is_left(driver, folder)


@pytest.mark.slow
def test_what_a_killed_driver_leaves_is_removed_by_the_next(
    make_spec: MakeSpec, drive: Drive, lines: Lines
) -> None:
    from raysweep.cluster.ray.temp_folder import processes_in, remove_stale

    spec = make_spec("sleeper", {"sleepers": [0, 1]}, num_samples=2)
    driver, folder = start_embedded(spec, drive, lines)
    remove_stale(Path("/tmp"))
    assert folder.exists(), "a live driver's folder is nobody else's business"
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    trials = {int(line[3]) for line in lines() if line[0] == "start"}
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in trials), 10)
    for pid in processes_in(folder):  # Ray's agents stay for a minute
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not processes_in(folder), 10)
    remove_stale(Path("/tmp"))
    assert not folder.exists()
