"""What the kernel has taken over arrives, whatever becomes of the process; and in order."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raysweep.worker.outbox import Outbox
from raysweep.worker.wire import read_frames

ROUNDS = 40


@pytest.fixture(params=["tcp", "unix"])
def link(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The worker's end and the controller's."""
    if request.param == "unix":
        pair = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ours = socket.create_connection(server.getsockname())
            ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (ours, server.accept()[0])
    yield pair
    for end in pair:
        end.close()


def received(theirs: socket.socket) -> list[Any]:
    return [message for frame in read_frames(theirs) for message in frame]


def in_a_child(link: tuple[socket.socket, socket.socket], work: Callable[[Outbox], None]) -> list[Any]:
    """What arrives of a process that does some work and is killed right then."""
    ours, theirs = link
    pid = os.fork()
    if pid == 0:
        theirs.close()
        work(Outbox(ours))
        os.kill(os.getpid(), signal.SIGKILL)
    ours.close()
    os.waitpid(pid, 0)
    return received(theirs)


def trials(outbox: Outbox) -> None:
    for trial in range(ROUNDS):
        outbox.post_now(["began", trial, 1])
        outbox.post_row(trial, 1, 0, ("loss",), [0.5])
        outbox.post(["returned", trial, 1])
    outbox.post_now(["began", ROUNDS, 1])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_was_handed_over_outlives_the_process(link: tuple[socket.socket, socket.socket]) -> None:
    """So it is known which trial of a queue ran when its worker was killed, and how those before ended."""
    messages = in_a_child(link, trials)
    assert messages[-1] == ["began", ROUNDS, 1]
    expected = [(kind, trial) for trial in range(ROUNDS) for kind in ("began", "rows", "returned")]
    assert [(message[0], message[1]) for message in messages[:-1]] == expected


def test_it_arrives_without_anything_behind_it(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    outbox = Outbox(ours)
    theirs.settimeout(5)
    outbox.post_now(["began", 1, 1])
    assert theirs.recv(100)
    outbox.close()


def test_a_link_that_is_backed_up_is_not_waited_for(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    outbox = Outbox(ours)
    bulk = "x" * 1_000_000
    for number in range(30):  # far more than a socket's buffers hold
        outbox.post_now(["bulk", number, bulk])
    messages: list[Any] = []
    reader = threading.Thread(target=lambda: messages.extend(received(theirs)))
    reader.start()
    outbox.post_now(["last"])
    outbox.close()
    ours.shutdown(socket.SHUT_WR)
    reader.join(30)
    assert [message[1:] for message in messages] == [*([n, bulk] for n in range(30)), []]


def test_a_controller_that_is_gone_is_no_error(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    outbox = Outbox(ours)
    theirs.close()
    for trial in range(50):
        outbox.post_now(["began", trial, 1])
        outbox.post(["returned", trial, 1])
    outbox.close()
