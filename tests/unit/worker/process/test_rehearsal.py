"""What a process rehearses before it forks leaves no trace."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import raysweep
from raysweep.errors import RaysweepError
from raysweep.testing import FaultPlan
from raysweep.worker.process import rehearsal
from raysweep.worker.sweep_info import SweepPlace

PLACE = SweepPlace(sweep_id="s-1", storage_path="", resources={}, metric="loss")


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    runs: list[int] = []

    def trainable(config: object) -> dict[str, float]:
        runs.append(raysweep.get_context().number)
        return {"loss": 0.0}

    monkeypatch.setattr(rehearsal, "_trainable", trainable)
    return runs


def test_it_leaves_neither_a_thread_nor_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with a second thread could not be forked safely."""
    runs, threads = count_runs(monkeypatch), threading.enumerate()
    rehearsal.rehearse(PLACE)
    assert runs == list(range(rehearsal.TIMES))
    assert threading.enumerate() == threads
    with pytest.raises(RaysweepError):
        raysweep.report({"loss": 0.0})


def test_a_planned_fault_is_not_met_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs = count_runs(monkeypatch)
    with FaultPlan(str(tmp_path)).fail_at(step=1).active():
        rehearsal.rehearse(PLACE)
    assert runs == []
