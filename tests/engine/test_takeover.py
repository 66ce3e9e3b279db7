"""Whose sweep is it: two at once, a forced takeover, a finished sweep, a changed spec."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.core import SweepState, step
from raysweep.core.vocabulary.events import ControllerStarted, SpecChanged, TrialReturned
from raysweep.errors import SpecChangedError, SweepInterrupted
from raysweep.outcome import SweepProgress
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import INLINE, ROOT, Driver, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
Events = Callable[..., list[Any]]
Lines = Callable[[], list[list[str]]]
Drive = Callable[..., Driver]
MakeSpec = Callable[..., rs.SweepSpec]


def starts_of(lines: list[list[str]]) -> Counter[int]:
    return Counter(int(line[1]) for line in lines if line[0] == "start")


def check_journal(storage: Path, spec: rs.SweepSpec, events: Events, claims: int) -> None:
    """It reads whole (each line's checksum included) and replays to the end."""
    contents = SweepFolder(open_store(str(storage)), sweep_id("t", "k")).journal().contents()
    assert contents.repairs == ()
    assert len(contents.claims) == claims
    state = SweepState.create(spec, spec.seed or 0)
    for event in events():
        step(state, event)
    assert state.phase == "ended"
    assert len(events(ControllerStarted)) == claims


@pytest.mark.slow
def test_of_two_at_once_one_runs_and_one_follows(
    make_spec: MakeSpec, drive: Drive, address: str, storage: Path, events: Events, lines: Lines
) -> None:
    spec = make_spec("slow", {"pause": 0.15}, num_samples=20)
    drivers = [drive(spec, address=address) for _ in range(2)]
    first, second = (driver.outcome() for driver in drivers)
    assert first == second
    assert first.counts == {"completed": 20}
    assert starts_of(lines()) == dict.fromkeys(range(20), 1)
    check_journal(storage, spec, events, claims=1)


def test_a_takeover_ends_the_first_and_finishes(
    make_spec: MakeSpec, drive: Drive, address: str, storage: Path, events: Events, lines: Lines
) -> None:
    spec = make_spec("slow", {"pause": 0.25}, num_samples=24)
    driver = drive(spec, address=address)
    wait_for(lambda: sum(line[0] == "end" for line in lines()) >= 6)
    done = {event.trial for event in events(TrialReturned)}
    outcome = rs.run_sweep(spec, key="k", takeover=True)
    assert outcome.counts == {"completed": 24}
    assert outcome.generation == 2
    code, said = driver.finish()
    assert (code, said["error"]) == (1, "FencedError"), driver.errors
    starts = starts_of(lines())
    assert all(starts[trial] == 1 for trial in done)
    # What ran under the first at that moment, or ended there unseen, ran again; nothing else did.
    assert sum(starts.values()) <= 24 + 6
    ours = {int(line[3]) for line in lines() if line[0] == "start"}
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ours), 20)
    check_journal(storage, spec, events, claims=2)


@pytest.mark.usefixtures("ray_cluster")
def test_a_finished_sweep_comes_back_without_ray(make_spec: MakeSpec) -> None:
    spec = make_spec("noop", num_samples=3, **INLINE)
    outcome = rs.run_sweep(spec, key="k")
    seen: list[SweepProgress] = []
    began = time.perf_counter()
    assert rs.run_sweep(spec, key="k", on_progress=seen.append) == outcome
    assert time.perf_counter() - began < 5
    script = textwrap.dedent(
        f"""
        import sys
        import raysweep as rs
        outcome = rs.run_sweep({spec.to_dict()!r}, key="k")
        assert len(outcome) == 3
        assert "ray" not in sys.modules
        """
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


@pytest.mark.slow
def test_an_outcome_that_was_not_written_any_more_is_written(
    make_spec: MakeSpec, ray_cluster: RayConnection, storage: Path, lines: Lines
) -> None:
    spec = make_spec("noop", num_samples=3)
    outcome = rs.run_sweep(spec, key="k")
    (path,) = storage.glob("*/outcome.json")
    path.unlink()
    again = rs.run_sweep(spec, key="k")
    assert again.trials == outcome.trials
    assert (again.status, again.ended_at) == (outcome.status, outcome.ended_at)
    assert path.exists()
    assert len(lines()) == 3


@pytest.mark.slow
def test_a_sweep_that_runs_under_another_spec_is_not_followed(
    make_spec: MakeSpec, drive: Drive, address: str, lines: Lines
) -> None:
    driver = drive(make_spec("slow", {"pause": 0.2}, num_samples=100), address=address)
    wait_for(lambda: lines() or driver.process.poll() is not None)
    with pytest.raises(SpecChangedError, match="mode"):
        rs.run_sweep(make_spec("slow", {"pause": 0.2}, num_samples=100, mode="max"), key="k")


def stop_after(completed: int) -> Callable[[SweepProgress], None]:
    """Ctrl-C, once so many trials have completed."""
    has_stopped = False

    def see(progress: SweepProgress) -> None:
        nonlocal has_stopped
        if progress.counts.get("completed", 0) >= completed and not has_stopped:
            has_stopped = True
            os.kill(os.getpid(), signal.SIGINT)

    return see


def test_a_changed_spec_is_refused_and_a_safe_change_goes_on(
    make_spec: MakeSpec, ray_cluster: RayConnection, storage: Path, events: Events, lines: Lines
) -> None:
    space = {"pause": 0.1}
    spec = make_spec("slow", space, num_samples=16)
    with pytest.raises(SweepInterrupted):
        rs.run_sweep(spec, key="k", on_progress=stop_after(4))
    done = {event.trial for event in events(TrialReturned)}
    assert len(done) >= 4
    before = sum(path.is_file() for path in storage.rglob("*"))

    other = make_spec("slow", space | {"x": {"uniform": [0, 2]}}, num_samples=16, mode="max")
    with pytest.raises(SpecChangedError) as caught:
        rs.run_sweep(other, key="k")
    assert caught.value.sweep_id == sweep_id("t", "k")
    assert any(line.startswith("mode: ") for line in caught.value.diff)
    assert any(line.startswith("param_space.x") for line in caught.value.diff)
    assert sum(path.is_file() for path in storage.rglob("*")) == before

    larger = make_spec("slow", space, num_samples=20, max_concurrent_trials=1, failure={"max_failures": 2})
    with pytest.raises(SweepInterrupted):
        rs.run_sweep(larger, key="k", on_progress=stop_after(10))
    fewer = make_spec("slow", space, num_samples=12)
    with pytest.raises(SpecChangedError, match="num_samples"):
        rs.run_sweep(fewer, key="k")

    outcome = rs.run_sweep(larger, key="k")
    assert outcome.counts == {"completed": 20}
    assert outcome.generation == 3
    (changed,) = events(SpecChanged)
    assert any("num_samples: 16 -> 20" in line for line in changed.changes)
    starts = starts_of(lines())
    assert all(starts[trial] == 1 for trial in done)
    assert rs.run_sweep(larger, key="k") == outcome
    check_journal(storage, spec, events, claims=3)


@pytest.mark.slow
def test_ctrl_c_ends_the_run_and_its_trials(
    make_spec: MakeSpec, ray_cluster: RayConnection, lines: Lines
) -> None:
    with pytest.raises(SweepInterrupted):
        rs.run_sweep(make_spec("slow", {"pause": 0.05}, num_samples=400), key="k", on_progress=stop_after(1))
    ours = {int(line[3]) for line in lines() if line[0] == "start"}
    assert ours
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ours - {os.getpid()}), 10)
