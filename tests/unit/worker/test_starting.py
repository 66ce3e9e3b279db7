"""What the controller says of an attempt right when it begins reaches it: in a worker, and in a forked child.

The child is a real one, of a real fork server, whose link ends here.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest

from raysweep.errors import TrialStopped
from raysweep.worker.actor import Inbox, WorkerSetup
from raysweep.worker.forking import Zygote
from raysweep.worker.mailbox import Mailbox
from raysweep.worker.outbox import Outbox
from raysweep.worker.runner import INTERRUPT, install_interrupt, run_attempt
from raysweep.worker.session import Session, SweepPlace
from raysweep.worker.wire import Job, Message, pack, read_frames
from tests.unit.worker import forkable

PLACE = SweepPlace(sweep_id="s-1", storage_path="", resources={})
JOB = Job(trial=3, attempt=2, config={}, seed=1, checkpoint=None, iteration=0, next_checkpoint=0)
STOP: Message = ["stop", 3, 2, "sweep", False, "checkpoint"]
INTERRUPTION: list[Message] = [["stop", 3, 2, "sweep", True, "checkpoint"], ["interrupt", 3, 2]]
EARLY = {
    "a stop": ("reports_for_ever", [STOP]),
    "an interruption": ("sleeps", INTERRUPTION),
    "a stop of another attempt before it": (
        "reports_for_ever",
        [["stop", 3, 1, "hung", False, "nothing"], STOP],
    ),
}


class Hasty(Outbox):
    """As if the controller's answer to `began` were back before anything else happens here."""

    def __init__(self, sock: socket.socket, answers: list[Message]) -> None:
        super().__init__(sock)
        self.inbox: Inbox | None = None
        self._answers = answers

    def post_now(self, message: Message) -> None:
        super().post_now(message)
        assert self.inbox is not None
        for answer in self._answers:
            self.inbox.take(answer)


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.getsignal(INTERRUPT)
    install_interrupt()
    yield
    signal.signal(INTERRUPT, before)


def ends_of(link: socket.socket) -> list[Message]:
    return [
        message for frame in read_frames(link) for message in frame if message[0] not in ("rows", "began")
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("trainable", "early"), EARLY.values(), ids=EARLY)
@pytest.mark.usefixtures("interruptible")
def test_a_worker_hears_what_comes_before_its_session(
    trainable: str, early: list[Message], link: tuple[socket.socket, socket.socket]
) -> None:
    outbox = Hasty(link[0], early)
    outbox.inbox = inbox = Inbox(outbox)
    inbox.take(["run", asdict(JOB)])
    job = inbox.next_job()
    assert job is not None
    run_attempt(getattr(forkable, trainable), job, PLACE, outbox, inbox.set_session)
    outbox.close()
    link[0].shutdown(socket.SHUT_WR)
    assert ends_of(link[1]) == [["stopped", 3, 2, False, ""]]


@pytest.fixture
def zygote_of() -> Iterator[Callable[[str], Zygote]]:
    """Starts a fork server for one of the trainables."""
    started: list[Zygote] = []

    def start(trainable: str) -> Zygote:
        setup = WorkerSetup(
            host="",
            port=0,
            token="",
            trainable=f"tests.unit.worker.forkable:{trainable}",
            pickled=None,
            isolation="process",
            place=PLACE,
        )
        started.append(Zygote(setup))
        assert started[-1].await_ready() is None
        return started[-1]

    yield start
    for zygote in started:
        zygote.close()


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("trainable", "early"), EARLY.values(), ids=EARLY)
def test_a_forked_child_hears_what_comes_before_its_session(
    trainable: str,
    early: list[Message],
    link: tuple[socket.socket, socket.socket],
    zygote_of: Callable[[str], Zygote],
) -> None:
    zygote = zygote_of(trainable)
    ours, theirs = link
    # All of it is there before the child looks for the first time.
    ours.sendall(pack([["run", asdict(JOB)]]) + pack(early))
    pid = zygote.fork(theirs)
    theirs.close()
    watchdog = threading.Timer(15, partial(end, pid))
    watchdog.start()
    assert ends_of(ours) == [["stopped", 3, 2, False, ""]]
    watchdog.cancel()
    assert zygote.wait(pid) == 0


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_child_that_has_ended_stays_until_its_reports_are_read(
    link: tuple[socket.socket, socket.socket], zygote_of: Callable[[str], Zygote]
) -> None:
    """However long the controller does not read: nothing that was reported is lost."""
    zygote = zygote_of("reports")
    ours, theirs = link
    job = asdict(JOB) | {"config": {"reports": 4000}}
    ours.sendall(pack([["run", job]]))
    pid = zygote.fork(theirs)
    theirs.close()
    # Longer than a worker that was told to end would wait.
    threading.Event().wait(12)
    messages: list[Any] = [message for frame in read_frames(ours) for message in frame]
    assert messages[-1] == ["returned", 3, 2]
    assert sum(len(message[5]) for message in messages if message[0] == "rows") == 4000
    assert zygote.wait(pid) == 0


def test_only_what_is_meant_for_the_present_attempt_is_kept() -> None:
    heard: list[Message] = []
    mailbox = Mailbox()
    mailbox.take(STOP)
    mailbox.expect(JOB)
    mailbox.take(["answer", 3, 1, 5])
    mailbox.take(["answer", 3, 2, 0])
    mailbox.take(STOP)
    mailbox.open(heard.append)
    mailbox.take(["interrupt", 3, 2])
    mailbox.close()
    mailbox.take(["interrupt", 3, 2])
    mailbox.expect(JOB)
    mailbox.open(heard.append)
    assert heard == [["answer", 3, 2, 0], STOP, ["interrupt", 3, 2]]


@pytest.mark.timeout(20)
def test_what_waits_for_an_answer_ends_when_it_is_interrupted(
    link: tuple[socket.socket, socket.socket],
) -> None:
    """It was asked for a checkpoint, so it may go on reporting until there is no more time for that."""
    outbox = Outbox(link[0])
    session = Session(JOB, PLACE, outbox)
    session.stop("preempt", wants_checkpoint=True)
    threading.Timer(0.2, session.interrupt).start()
    with pytest.raises(TrialStopped, match="preempt"):
        session.report({"loss": 1.0}, None, True)
    outbox.close()
