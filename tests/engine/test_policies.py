"""A scheduler and a searcher of a user's own on a real Ray: refused in one line, or resumed exactly."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import SpecChangedError
from raysweep.simulate import simulate
from tests.engine.conftest import Driver, wait_for
from tests.engine.own_policies import curve, shown
from tests.engine.policies import Climber, Median
from tests.sampling import sampled

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
MakeSpec = Callable[..., rs.SweepSpec]


def own(make_spec: MakeSpec, **fields: Any) -> rs.SweepSpec:
    policies = {"search": Climber, "scheduler": {Median: {"max_t": 7}}}
    space = {"pause": 0.02, "steps": 9}
    return make_spec("steps", space, **{"num_samples": 12, "max_concurrent_trials": 1} | policies | fields)


def test_a_killed_driver_changes_nothing_in_the_end(
    make_spec: MakeSpec, drive: Callable[..., Driver], address: str, lines: Callable[[], list[list[str]]]
) -> None:
    spec = own(make_spec)
    driver = drive(spec, address=address)
    wait_for(lambda: sum(line[0] == "step" for line in lines()) >= 24 or driver.process.poll() is not None)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()

    outcome = rs.run_sweep(spec, key="k")

    assert outcome.generation == 2
    assert {"completed", "stopped"} <= set(outcome.counts)
    assert max(trial.metrics["step"] for trial in outcome.trials) == 7
    # Nobody is killed there.
    assert shown(outcome) == shown(simulate(spec, curve).outcome)


@pytest.mark.slow
def test_a_searcher_of_ray_tunes_goes_on_as_it_was_asked_and_told(
    make_spec: MakeSpec, drive: Callable[..., Driver], address: str, lines: Callable[[], list[list[str]]]
) -> None:
    """Two at a time: what it suggests depends on which results it knew. A resume that differs is refused."""
    spec = own(
        make_spec, search="ray.tune.search.optuna:OptunaSearch", num_samples=20, max_concurrent_trials=2
    )
    driver = drive(spec, address=address)
    wait_for(lambda: sum(line[0] == "step" for line in lines()) >= 50 or driver.process.poll() is not None)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.generation == 2
    assert len(outcome.trials) == 20


NAMED: dict[str, dict[str, Any]] = {
    "hyperband": {"scheduler": {"hyperband": {"max_t": 9}}, "num_samples": 8},
    "pbt": {
        "scheduler": {"pbt": {"perturbation_interval": 2, "synch": True, "quantile_fraction": 0.5}},
        "num_samples": 4,
    },
    # Told of trials that pause: most of what it knows comes from these.
    "pasha": {"scheduler": {"pasha": {"max_t": 9}}, "search": {"tpe": {"n_startup_trials": 3}}},
}


@pytest.mark.parametrize("kind", sampled(NAMED, lambda kind: kind != "pasha"))
def test_a_named_scheduler_that_pauses_decides_as_if_no_driver_had_been_killed(
    kind: str,
    make_spec: MakeSpec,
    drive: Callable[..., Driver],
    address: str,
    lines: Callable[[], list[list[str]]],
) -> None:
    spec = own(make_spec, **{"search": "random", "isolation": "inline"} | NAMED[kind])
    driver = drive(spec, address=address)
    wait_for(lambda: sum(line[0] == "step" for line in lines()) >= 18 or driver.process.poll() is not None)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()

    outcome = rs.run_sweep(spec, key="k")

    assert outcome.generation == 2
    attempts = [attempt for trial in outcome.trials for attempt in trial.attempts]
    assert "paused" in {attempt.end for attempt in attempts}
    assert any(attempt.donor is not None for attempt in attempts) == (kind == "pbt")
    # Nobody is killed there.
    assert shown(outcome) == shown(simulate(spec, curve, save_every=1).outcome)


def test_another_class_is_another_sweep(make_spec: MakeSpec, ray_cluster: object, storage: Path) -> None:
    with pytest.raises(rs.SpecError, match=r"scheduler: .*has no 'Mode'.*did you mean"):
        rs.run_sweep(own(make_spec, scheduler="tests.engine.policies:Mode"), key="k")
    assert not list(storage.rglob("*.json")), "nothing was written"
    assert rs.run_sweep(own(make_spec, num_samples=1), key="k").status == "completed"
    with pytest.raises(SpecChangedError, match="scheduler: "):
        rs.run_sweep(own(make_spec, num_samples=1, scheduler="fifo"), key="k")
