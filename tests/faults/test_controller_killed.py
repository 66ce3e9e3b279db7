"""The controller is SIGKILLed around appends to its journal; the same key continues. Real processes."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import (
    ControllerStarted,
    TrialFailed,
    TrialReturned,
    TrialStarted,
    TrialStopped,
)
from raysweep.testing import FaultPlan
from tests.engine.conftest import Driver, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.timeout(600)]
ENDS = (TrialReturned, TrialStopped, TrialFailed)
# (segment, when), each in a controller of its own: the claim, the first records, and somewhere in the middle.
SAMPLE = [(1, "after"), (6, "before")]
MANY = [(n, when) for n, when in zip(range(1, 60, 3), ["before", "after"] * 10, strict=True)]


def check_sweep(
    kills: list[tuple[int, str]],
    spec: rs.SweepSpec,
    plan: FaultPlan,
    start: Callable[[], Driver],
    events: Callable[..., list[Any]],
    lines: Callable[[], list[list[str]]],
) -> None:
    for append, when in kills:
        plan = plan.kill_controller_at(append=append, when=when)  # type: ignore[arg-type]
    ended_then: list[tuple[int, set[int]]] = []
    with plan.active():
        for number in range(len(kills)):
            driver = start()
            assert driver.process.wait(timeout=240) == -signal.SIGKILL, driver.process.communicate()
            assert sum(plan.fired()) == number + 1
            ended_then.append((len(lines()), {event.trial for event in events(*ENDS)}))
        plan.assert_fired()
        outcome = rs.run_sweep(spec, key="k")
    assert outcome.counts == {"completed": 12}
    assert outcome.generation == len(events(ControllerStarted))
    for count, ended in ended_then:
        again = {int(line[1]) for line in lines()[count:] if line[0] == "start"} & ended
        assert not again, f"{again} had ended and ran again"
    attempts = Counter((event.trial, event.attempt) for event in events(TrialStarted))
    assert set(attempts.values()) == {1}, "attempt numbers are not used twice"
    assert all(trial.metrics["step"] == 4 for trial in outcome.trials)
    pids = {int(line[3]) for line in lines() if line[0] == "start"} - {os.getpid()}
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 30)


@pytest.mark.slow
def test_killed_around_appends(
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    events: Callable[..., list[Any]],
    lines: Callable[[], list[list[str]]],
    plan: FaultPlan,
) -> None:
    spec = make_spec("steps", {"pause": 0.05, "steps": 4}, num_samples=12)
    check_sweep(SAMPLE, spec, plan, lambda: drive(spec, address=address), events, lines)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_killed_around_many_appends(
    isolation: str,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    events: Callable[..., list[Any]],
    lines: Callable[[], list[list[str]]],
    plan: FaultPlan,
) -> None:
    spec = make_spec("steps", {"pause": 0.1, "steps": 4}, num_samples=12, isolation=isolation)
    check_sweep(MANY, spec, plan, lambda: drive(spec, address=address), events, lines)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "when"), [("EndSweep", "before"), ("EndSweep", "after")])
def test_killed_at_the_very_end(
    command: str,
    when: Any,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    lines: Callable[[], list[list[str]]],
    plan: FaultPlan,
) -> None:
    plan = plan.kill_controller_at(command=command, when=when)
    spec = make_spec("noop", num_samples=4)
    with plan.active():
        driver = drive(spec, address=address)
        assert driver.process.wait(timeout=240) == -signal.SIGKILL
        plan.assert_fired()
        outcome = drive(spec, address=address).outcome()
    assert outcome.counts == {"completed": 4}
    assert outcome.generation == 2
    # What was still unwritten when it died, a quarter of a second at most, ran again.
    assert set(Counter(line[1] for line in lines()).values()) <= {1, 2}
