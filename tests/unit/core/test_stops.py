"""What is still taken of a trial that was asked to end: one table for the core and the workers."""

from __future__ import annotations

from typing import get_args

import pytest

from raysweep.core.vocabulary.stop_reasons import STOPS, StopReason
from raysweep.messages import Stop
from tests.unit.core.sweep import running
from tests.unit.fleet.fleet import Driven


def test_each_reason_has_a_row() -> None:
    assert set(STOPS) == set(get_args(StopReason))


@pytest.mark.parametrize(("reason", "counts"), [("interrupt", True), ("sweep", False)])
def test_the_core_counts_reports_as_the_table_says(reason: StopReason, counts: bool) -> None:
    from raysweep.core.vocabulary import events as ev

    sweep = running(1)
    sweep.report(0, 0.9)
    sweep.send(ev.InterruptRequested if reason == "interrupt" else ev.CancelRequested)
    assert sweep.state.trials[0].stop_reason == reason
    sweep.report(0, 0.1)
    assert STOPS[reason].counts is counts
    assert (sweep.state.trials[0].results.last_score == 0.1) is counts


def test_a_worker_is_told_what_the_table_allows() -> None:
    driven = Driven().running(1)
    driven.stop(0, 1)
    (send,) = driven.actions
    (stop,) = send.messages  # type: ignore[union-attr]
    assert stop == Stop(trial=1, attempt=1, reason="limit", allows=STOPS["limit"].allows)
