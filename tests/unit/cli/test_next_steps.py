"""What a person can do next is said with the end itself: of a failed sweep, and of a night that trained."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli.sweep_summary import print_night, print_status
from raysweep.errors import SweepFailedError
from raysweep.outcome import TrainOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep.outcome.train import TrainSource
from raysweep.terminal import TextConsole
from tests.unit.pages.odd_sweeps import LOSS, once
from tests.unit.pages.sweeps import store


def fails(config: dict[str, Any], iteration: int) -> None:
    raise ValueError("no data")


def test_a_failed_sweep_names_retry_and_restart(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path, fails, failure={"max_failures": 0, "breaker_trials": 3})
    console = TextConsole(file=io.StringIO(), width=300)
    print_status(console, status_of_outcome(outcome, now=0.0))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    at = f"{folder.sweep_id} --storage {tmp_path}"
    assert f"raysweep retry {at}" in shown
    assert f"raysweep restart {at}" in shown
    with pytest.raises(SweepFailedError, match="no data") as raised:
        outcome.raise_for_status()
    for verb in ("retry", "restart"):
        assert f"`raysweep {verb} {folder.uri}`" in str(raised.value)


def test_a_night_says_which_config_was_trained(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path, once, **LOSS)
    best = outcome.found_best
    assert best is not None
    other = next(trial for trial in outcome.trials if trial.number != best.number)
    train = TrainOutcome(
        run_id="full-1", name="full", status="completed", started_at=0.0, ended_at=1.0, uri="/t/full-1",
        config={"x": 0.25, "epochs": 90}, source=TrainSource(sweep=folder.uri, trial_id=other.trial_id),
    )  # fmt: skip
    console = TextConsole(file=io.StringIO(), width=300)
    print_night(console, outcome, train, skipped="")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"trial {other.trial_id} of {folder.sweep_id}: x=0.25 epochs=90" in shown
    assert "config: {'x': 0.25, 'epochs': 90}" in str(train)
