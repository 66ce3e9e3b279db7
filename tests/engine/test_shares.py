"""Sweeps of several processes share one Ray of 8 logical CPUs by their weights and deadlines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.sharing.register import STALE_S
from raysweep.core.vocabulary.events import ShareChanged, TrialReturned, TrialStopped
from tests.engine.conftest import ROOT, Driver, wait_for
from tests.engine.shared import CPUS
from tests.faults.nodes import driving, several_nodes

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
Drive = Callable[..., Driver]
Events = Callable[..., list[Any]]
MakeSpec = Callable[..., rs.SweepSpec]
WEIGHTS = {"a": 2, "b": 1, "c": 1}
WINDOW_S = float(os.environ.get("RAYSWEEP_SHARES_WINDOW_S", "20"))


@pytest.fixture
def shared_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a Ray of its own, which asks the drivers for no token."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-m", "tests.engine.shared"], cwd=ROOT, **pipes)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.communicate(timeout=60)


class Runs:
    """When trials ran, by sweep, from the log of `shared.naps`."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def read(self) -> list[tuple[str, float, float]]:
        lines = [line.split() for line in self._log.read_text().splitlines()]
        return [(line[1], float(line[3]), float(line[4])) for line in lines if line[0] == "ran"]

    def slots(self, begin: float, end: float) -> dict[str, float]:
        """How many trials of each sweep ran at once, on average, between two moments."""
        found: dict[str, float] = {}
        for who, since, until in self.read():
            overlap = max(0.0, min(until, end) - max(since, begin))
            found[who] = found.get(who, 0.0) + overlap / (end - begin)
        return found

    def running(self, at: float) -> dict[str, int]:
        found: dict[str, int] = {}
        for who, since, until in self.read():
            found[who] = found.get(who, 0) + (since <= at < until)
        return found


@pytest.fixture
def runs(log: Path) -> Runs:
    return Runs(log)


def wait_until(at: float) -> None:
    while time.time() < at:
        time.sleep(0.1)


@pytest.mark.slow
def test_three_sweeps_share_by_weight_a_deadline_overtakes_and_each_that_dies_gives_its_part_up(
    make_spec: MakeSpec, drive: Drive, shared_ray: str, runs: Runs, events: Events
) -> None:
    def begin(who: str, nap: float = 0.8, **fields: Any) -> Driver:
        fields = {"name": who, "num_samples": 100_000, "share": {}} | fields
        spec = make_spec("tests.engine.shared:naps", {"who": who, "nap": nap}, **fields)
        return drive(spec, address=shared_ray)

    def steady(*whose: str) -> dict[str, float]:
        """The parts once all of them have run for some seconds, and all slots are in use."""

        def are_running() -> bool:
            for driver in drivers.values():
                if driver.process.poll() is not None:
                    raise AssertionError(driver.finish(), driver.errors)
            running = runs.running(time.time() - 2.0)
            return all(running.get(who) for who in whose) and sum(running.values()) == CPUS

        wait_for(are_running)
        begun = time.time() + 8.0
        wait_until(begun + WINDOW_S + 1.5)
        found = runs.slots(begun, begun + WINDOW_S)
        print("parts", {who: round(count, 2) for who, count in found.items()})
        return found

    drivers = {who: begin(who, share={"weight": WEIGHTS[who]}) for who in "abc"}
    parts = steady("a", "b", "c")
    assert [parts[who] for who in "abc"] == pytest.approx([4, 2, 2], rel=0.1)
    assert sum(parts.values()) >= 0.95 * CPUS

    # A fourth: by its part, 1.6 slots, it would run fewer than 180 trials in 90 s, its start included.
    due = datetime.now(UTC) + timedelta(seconds=90)
    late = begin("late", num_samples=300, stop={"deadline": due.isoformat()})
    outcome = late.outcome()
    print("late", outcome.counts, [each.slots for each in events(ShareChanged, name="late")])
    assert outcome.counts == {"completed": 300}
    assert outcome.status == "completed"

    # Each controller dies once: its part is the others' when its lease lapses, and its own when it is back.
    for who in "abc":
        others = [each for each in "abc" if each != who]
        drivers[who].process.kill()
        killed_at = time.time()
        wait_for(lambda: sum(runs.running(time.time() - 1.5).get(each, 0) for each in others) == CPUS)  # noqa: B023
        assert STALE_S - 3 < time.time() - killed_at < STALE_S + 60  # workers start as well
        drivers[who] = begin(who, share={"weight": WEIGHTS[who]})
        wait_for(lambda: runs.running(time.time() - 2.0).get(who))  # noqa: B023
    parts = steady("a", "b", "c")
    assert [parts[who] for who in "abc"] == pytest.approx([4, 2, 2], rel=0.1)
    assert sum(parts.values()) >= 0.95 * CPUS

    shares = {who: events(ShareChanged, name=who) for who in "abc"}
    assert all(found[-1].beside == 2 for found in shares.values())
    assert len(events(TrialReturned, name="b")) > 20
    for driver in drivers.values():
        driver.process.send_signal(signal.SIGTERM)


@pytest.mark.slow
def test_trials_with_checkpoints_pause_for_a_nearer_deadline_and_continue(
    make_spec: MakeSpec, drive: Drive, shared_ray: str, log: Path, events: Events, lines: Callable[[], Any]
) -> None:
    long = make_spec("steps", {"steps": 100_000, "pause": 0.25}, name="long", num_samples=CPUS, share={})
    driver = drive(long, address=shared_ray)
    wait_for(lambda: len({line[1] for line in lines() if line[0] == "step" and int(line[2]) > 3}) == CPUS)
    due = datetime.now(UTC) + timedelta(seconds=40)
    late = make_spec(
        "tests.engine.shared:naps",
        {"who": "late", "nap": 0.5},
        name="late",
        num_samples=60,
        share={},
        stop={"deadline": due.isoformat()},
    )
    assert drive(late, address=shared_ray).outcome().counts == {"completed": 60}
    moved = {event.trial for event in events(TrialStopped, name="long")}
    assert moved, "trials were paused"
    # Those that were paused continue from where they were.
    wait_for(lambda: {int(line[1]) for line in lines() if line[0] == "resumed"} >= moved)
    assert all(int(line[3]) > 3 for line in lines() if line[0] == "resumed")
    assert driver.process.poll() is None


@pytest.mark.slow
def test_a_trial_of_a_whole_node_gets_one_beside_a_sweep_of_small_trials(
    make_spec: MakeSpec, runs: Runs, monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """Two nodes of four CPUs: small trials end by chance, and never leave one of them empty by themselves."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")

    def make(who: str, nap: object, **fields: Any) -> rs.SweepSpec:
        space = {"who": who, "nap": nap}
        return make_spec("tests.engine.shared:naps", space, name=who, share={}, **fields)

    with several_nodes() as cluster:
        for _ in range(2):
            cluster.add_node(num_cpus=4)
        small = make("small", {"uniform": [2.0, 6.0]}, num_samples=10_000)
        whole = make("whole", 1.0, num_samples=3, resources={"cpu": 4})
        with driving(small, cluster.address) as first:
            wait_for(lambda: runs.running(time.time() - 2.0).get("small") == 8)
            began = time.time()
            with driving(whole, cluster.address) as second:
                assert second.outcome().counts == {"completed": 3}
            took_s = time.time() - began
            assert first.process.poll() is None
        print("three trials of a whole node:", round(took_s, 1), "s")
        assert any(each.kept for each in events(ShareChanged, name="small"))
        assert took_s < 60
