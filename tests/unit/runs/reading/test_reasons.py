"""Why a sweep ended is a field: no text of a trial's error changes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import SweepOutcome
from raysweep.pages.words import verdict
from raysweep.runs.reading.listing import read_run
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.reading.whole_sweep import read_whole
from tests.unit.pages.sweeps import store

TEXTS = [
    "job 12 on node7, ended by SLURM; best effort failed",
    "failed: 3 of 4 workers; best guess: no memory",
    "completed: nothing",
    "; not promoted: x; no trial satisfies y",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_text_of_an_error_does_not_change_why_the_sweep_failed(tmp_path: Path, text: str) -> None:
    def fails(config: dict[str, Any], iteration: int) -> None:
        raise RuntimeError(text)

    folder, outcome = store(tmp_path, fails, failure={"max_failures": 0, "breaker_trials": 3}, slots=1)
    reason = outcome.reason
    assert reason.startswith("the first 3 trials all failed in user code (failure.breaker_trials=3); ")
    assert reason.endswith(f"RuntimeError: {text}")
    assert reason in outcome.why
    status = SweepReader(folder.store.url, folder.sweep_id).read()
    summary = read_run(folder.store, folder.sweep_id)
    assert status is not None
    assert summary is not None
    assert (status.reason, summary.reason, summary.cause) == (reason, reason, reason)
    assert reason[1:] in verdict(read_whole(folder))
    assert SweepOutcome.from_json(outcome.to_json()).reason == reason


def test_an_outcome_without_a_stored_reason_gives_all_that_it_says() -> None:
    fields: dict[str, Any] = {"sweep_id": "a", "name": "a", "metric": "", "mode": "max"}
    outcome = SweepOutcome(**fields, status="failed", why="2 trials ended", started_at=0.0, ended_at=1.0)
    assert outcome.reason == "2 trials ended"
