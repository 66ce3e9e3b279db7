"""Sweeps whose schedulers pause, resume and exploit trials: on Ray, also where the controller is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.outcome import TrialOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.storage.checkpoints.store import restore_uri
from raysweep.storage.objects.opening import open_store
from raysweep.verify import verify_sweep
from tests.engine.conftest import Driver, wait_for
from tests.engine.results import shown

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
SCHEDULERS: dict[str, dict[str, Any]] = {
    "pauses": {"tests.policies:Halving": {"rungs": [2, 5]}},
    "exploits": {"tests.policies:Copycat": {"at": 3, "of_ended": True}},
}


def made_by(trial: TrialOutcome, tmp_path: Path) -> list[int]:
    """Which trials made the steps on the way to the newest checkpoint."""
    assert trial.checkpoint_uri is not None
    target = tmp_path / "restored" / trial.trial_id
    restore_uri(trial.checkpoint_uri, target)
    made: list[int] = json.loads((target / "at.json").read_text())
    return made


@pytest.mark.slow  # `tests/unit/simulate/test_exactness.py` has these moves and kills by day
@pytest.mark.parametrize("what", SCHEDULERS)
def test_a_killed_controller_changes_nothing_in_the_end(
    what: str,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    lines: Callable[[], list[list[str]]],
    storage: Path,
    tmp_path: Path,
) -> None:
    spec = make_spec(
        "heir", {"pause": 0.02}, num_samples=5, max_concurrent_trials=1, scheduler=SCHEDULERS[what]
    )
    undisturbed = rs.run_sweep(spec, key="undisturbed")
    before = len(lines())
    driver = drive(spec, address=address)
    wait_for(lambda: len(lines()) >= before + 14 or driver.process.poll() is not None)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.generation == 2
    assert shown(outcome) == shown(undisturbed)
    ends = {attempt.end for trial in outcome.trials for attempt in trial.attempts}
    assert ("paused" if what == "pauses" else "exploited") in ends
    for trial in outcome.trials:
        donors = [attempt.donor for attempt in trial.attempts if attempt.donor is not None]
        made = made_by(trial, tmp_path)
        # A donor has completed: nothing was left to do behind its last checkpoint.
        assert set(made) == set(donors or [trial.number]), (trial.attempts, made)
    assert not verify_sweep(SweepFolder(open_store(str(storage)), outcome.sweep_id)).damage


def test_an_exploiter_goes_on_from_the_content_of_the_donors_checkpoint(
    make_spec: Callable[..., rs.SweepSpec], ray_cluster: object, tmp_path: Path
) -> None:
    scheduler = {"tests.policies:Copycat": {"at": 4}}
    spec = make_spec("heir", {"pause": 0.05}, num_samples=4, scheduler=scheduler)
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.counts == {"completed": 4}
    heirs = [trial for trial in outcome.trials if any(each.donor is not None for each in trial.attempts)]
    assert heirs
    for trial in heirs:
        made = made_by(trial, tmp_path)
        assert made[0] != trial.number
        assert len(made) == 9
        # Where nothing was left to do behind the checkpoint, result and config are those of it.
        assert trial.score == pytest.approx(trial.config["x"] / 9)
        assert made[-1] == trial.number or f"trial {trial.number} continued" in " ".join(outcome.notes)
        assert trial.attempts[0].config != trial.config
