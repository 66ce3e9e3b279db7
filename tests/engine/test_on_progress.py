"""An `on_progress` that raises: the error is said once, and the sweep is none the worse for it."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

import raysweep as rs
from raysweep.outcome import SweepProgress
from tests.sampling import first_of

pytestmark = pytest.mark.here


@pytest.mark.parametrize("when", first_of(["always", "at the end"]))
def test_an_on_progress_that_raises_ends_nothing(
    when: str,
    run: Callable[..., rs.SweepOutcome],
    lines: Callable[[], list[list[str]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[SweepProgress] = []

    def show(progress: SweepProgress) -> None:
        calls.append(progress)
        if when == "always" or progress.status == "completed":
            raise ZeroDivisionError("a bug in the caller's own code")

    with caplog.at_level(logging.WARNING, logger="raysweep"):
        outcome = run("slow", {"pause": 0.5}, num_samples=4, on_progress=show)
    assert (outcome.status, outcome.counts, outcome.generation) == ("completed", {"completed": 4}, 1)
    assert sum(line[0] == "start" for line in lines()) == 4
    assert len(calls) >= 2
    assert calls[-1].status == "completed"
    said = [record for record in caplog.records if "on_progress" in record.message]
    assert len(said) == 1
    assert said[0].levelno == logging.WARNING
    assert "a bug in the caller's own code" in caplog.text
    assert "in show" in caplog.text
