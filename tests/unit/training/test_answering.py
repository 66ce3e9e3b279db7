"""A worker of a training that is asked for a checkpoint: it waits for what comes of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from raysweep.training import worker_session as session_module
from raysweep.training.worker_session import TrainWorkerSession


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Ray Train says of a node that will go: the last item. Reports go nowhere."""
    train = pytest.importorskip("ray.train")
    said: list[Any] = [None]
    monkeypatch.setattr(train, "get_preemption_info", lambda: said[-1])
    monkeypatch.setattr(train, "report", lambda *args, **options: None)
    monkeypatch.setattr(session_module, "ANSWERED_S", 0.5)
    return said


def reported(session: TrainWorkerSession, checkpoint: Path | None) -> float:
    """The seconds that a report took."""
    began = time.monotonic()
    session.report({"step": 1}, checkpoint, False)
    return time.monotonic() - began


def test_rank_0_waits_once_having_given_a_checkpoint(
    asked: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "train_rank", lambda: (0, 2))
    session = TrainWorkerSession("run-1")
    assert not session.should_checkpoint
    assert reported(session, tmp_path) < 0.4
    asked.append("a node goes")
    assert session.should_checkpoint
    assert reported(session, tmp_path) >= 0.5
    assert not session.should_checkpoint
    assert reported(session, tmp_path) < 0.4, "nothing came of it"
    asked.append("another one")
    assert reported(session, tmp_path) >= 0.5, "before it has heard of it"
    assert session.should_checkpoint
    assert reported(session, None) < 0.4, "no checkpoint"


def test_other_ranks_wait_with_it(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "train_rank", lambda: (1, 2))
    session = TrainWorkerSession("run-1")
    assert reported(session, None) < 0.4
    asked.append("a node goes")
    assert session.should_checkpoint
    assert reported(session, None) >= 0.5
    assert reported(session, None) < 0.4
