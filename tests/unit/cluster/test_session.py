"""A trial whose checkpoint cannot be stored goes on, and says so."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.cluster.outbox import Outbox
from raysweep.cluster.session import Session, SweepPlace
from raysweep.cluster.wire import Job, read_frames
from raysweep.storage.checkpoints import CheckpointStore

JOB = Job(trial=3, attempt=2, config={}, seed=1, checkpoint=None, iteration=0, next_checkpoint=7)


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_checkpoint_that_cannot_be_stored_is_said(
    tmp_path: Path, link: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a-file"
    blocked.write_text("no folder can be made below this")
    source = tmp_path / "source"
    source.mkdir()
    # Two minutes in earnest.
    monkeypatch.setitem(CheckpointStore.__init__.__kwdefaults__, "give_up_after_s", 0.3)
    place = SweepPlace(sweep_id="s-1", storage_path=str(blocked), resources={})
    outbox = Outbox(link[0])
    session = Session(JOB, place, outbox)
    (source / "f").write_text("x")
    session.report({"loss": 1.0}, source, False)
    session.report({"loss": 0.5}, None, False)
    outbox.close()
    link[0].shutdown(socket.SHUT_RDWR)
    messages: list[Any] = [message for frame in read_frames(link[1]) for message in frame]
    kinds = [message[0] for message in messages]
    assert kinds == ["rows", "busy", "unsaved", "rows"]
    _, trial, attempt, number, problem = messages[2]
    assert (trial, attempt, number) == (3, 2, 7)
    assert str(blocked) in problem
