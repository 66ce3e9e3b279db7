"""What the kernel has taken over arrives, whatever becomes of the process; and in order."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import raysweep.worker.link as link_module
from raysweep.messages import (
    Answer,
    CheckpointFailed,
    Exit,
    FromWorker,
    Hello,
    TrialReported,
    TrialReturned,
    TrialStarted,
)
from raysweep.worker.link import SocketLink
from raysweep.worker.wire import FROM_WORKER, HEADER, pack, read_frames

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


def received(theirs: socket.socket) -> list[FromWorker]:
    return [message for frame in read_frames(theirs, FROM_WORKER) for message in frame]


def in_a_child(link: tuple[socket.socket, socket.socket], work: Callable[[SocketLink], None]) -> list[Any]:
    """What arrives of a process that does some work and is killed right then."""
    ours, theirs = link
    pid = os.fork()
    if pid == 0:
        theirs.close()
        work(SocketLink(ours))
        os.kill(os.getpid(), signal.SIGKILL)
    ours.close()
    os.waitpid(pid, 0)
    return received(theirs)


def trials(sender: SocketLink) -> None:
    for trial in range(ROUNDS):
        sender.send_now(TrialStarted(trial=trial, attempt=1))
        sender.send_row(trial, 1, 0, ("loss",), [0.5])
        sender.send(TrialReturned(trial=trial, attempt=1))
    sender.send_now(TrialStarted(trial=ROUNDS, attempt=1))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_was_handed_over_outlives_the_process(link: tuple[socket.socket, socket.socket]) -> None:
    """So it is known which trial of a queue ran when its worker was killed, and how those before ended."""
    messages = in_a_child(link, trials)
    assert messages[-1] == TrialStarted(trial=ROUNDS, attempt=1)
    expected = [
        (kind, trial) for trial in range(ROUNDS) for kind in (TrialStarted, TrialReported, TrialReturned)
    ]
    assert [(type(message), message.trial) for message in messages[:-1]] == expected


def test_it_outlives_the_process_also_where_that_had_not_read_what_came(
    link: tuple[socket.socket, socket.socket],
) -> None:
    """A socket closed with something unread in it is reset: what the kernel has not sent yet is lost."""
    ours, theirs = link
    theirs.sendall(pack([Exit()]))
    pid = os.fork()
    if pid == 0:
        theirs.close()
        trials(SocketLink(ours))
        os.kill(os.getpid(), signal.SIGKILL)
    ours.close()
    os.waitpid(pid, 0)
    got: list[FromWorker] = []
    with contextlib.suppress(ConnectionResetError):
        for frame in read_frames(theirs, FROM_WORKER):
            got += frame
    assert got[-1] == TrialStarted(trial=ROUNDS, attempt=1)


def test_it_arrives_without_anything_behind_it(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    sender = SocketLink(ours)
    theirs.settimeout(5)
    sender.send_now(TrialStarted(trial=1, attempt=1))
    assert theirs.recv(100)
    sender.close()


def test_a_link_that_is_backed_up_is_not_waited_for(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    sender = SocketLink(ours)
    bulk = "x" * 1_000_000
    for number in range(30):  # far more than a socket's buffers hold
        sender.send_now(CheckpointFailed(trial=number, attempt=1, number=0, problem=bulk))
    messages: list[FromWorker] = []
    reader = threading.Thread(target=lambda: messages.extend(received(theirs)))
    reader.start()
    sender.send_now(TrialReturned(trial=30, attempt=1))
    sender.close()
    ours.shutdown(socket.SHUT_WR)
    reader.join(30)
    bulky = [CheckpointFailed(trial=number, attempt=1, number=0, problem=bulk) for number in range(30)]
    assert messages == [*bulky, TrialReturned(trial=30, attempt=1)]


def test_a_controller_that_is_gone_is_no_error(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    sender = SocketLink(ours)
    theirs.close()
    for trial in range(50):
        sender.send_now(TrialStarted(trial=trial, attempt=1))
        sender.send(TrialReturned(trial=trial, attempt=1))
    sender.close()


class Listener:
    """What a link hands over, in order, and at its end `None`."""

    def __init__(self, link: SocketLink) -> None:
        self.heard: list[Any] = []
        self._is_over = threading.Event()
        link.listen(self.heard.extend, self._end)

    def _end(self) -> None:
        self.heard.append(None)
        self._is_over.set()

    def wait(self) -> list[Any]:
        assert self._is_over.wait(10)
        return self.heard


@pytest.mark.parametrize("files", [0, 64])
@pytest.mark.parametrize("by", ["send", "send_now"])
def test_a_link_whose_descriptor_was_closed_is_gone(
    link: tuple[socket.socket, socket.socket], by: str, files: int
) -> None:
    """As by `os.closerange`, and perhaps a file's since. Who reads from it does not see that, ever."""
    pid = os.fork()
    if pid == 0:
        try:
            sender = SocketLink(link[0])
            listener = Listener(sender)
            time.sleep(0.2)  # it reads
            os.closerange(3, 1024)
            for _ in range(files):
                os.open("/dev/null", os.O_WRONLY)
            getattr(sender, by)(TrialStarted(trial=1, attempt=1))
            listener.wait()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0


def test_hello_goes_first_and_what_comes_is_handed_over_in_order(
    link: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = link
    hello = Hello(token="t", worker="w")
    listener = Listener(SocketLink(ours, hello))
    expected = pack([hello])
    assert theirs.recv(len(expected), socket.MSG_WAITALL) == expected
    answers = [Answer(trial=1, attempt=1, report=number) for number in range(3)]
    theirs.sendall(pack(answers[:2]) + pack([answers[2], Exit()]))
    theirs.shutdown(socket.SHUT_WR)
    assert listener.wait() == [*answers, Exit(), None]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'[["sing"]]', "Invalid value 'sing'"),
        (b'[["trialstarted",1,1]]', "Invalid value 'trialstarted'"),
        (b"hello", "malformed"),
    ],
    ids=["unknown", "not an order", "no JSON"],
)
def test_a_controller_that_cannot_be_understood_counts_as_gone(
    link: tuple[socket.socket, socket.socket], body: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = link
    listener = Listener(SocketLink(ours))
    theirs.sendall(pack([Exit()]) + HEADER.pack(len(body)) + body + pack([Exit()]))
    assert listener.wait() == [Exit(), None]
    (record,) = caplog.records
    assert problem in record.getMessage()


def outboxes() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "raysweep-outbox"}


def test_what_little_an_attempt_says_takes_no_thread(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    before, sender = outboxes(), SocketLink(ours, is_brief=True)
    sender.send_now(TrialStarted(trial=1, attempt=1))
    sender.send_row(1, 1, 0, ("loss",), [0.5])
    sender.send(TrialReturned(trial=1, attempt=1))
    assert not outboxes() - before
    sender.close()
    ours.close()
    assert [type(message) for message in received(theirs)] == [TrialStarted, TrialReported, TrialReturned]


def test_many_messages_leave_on_a_thread_in_order(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    before, sender = outboxes(), SocketLink(ours, is_brief=True)
    for trial in range(ROUNDS):
        sender.send(TrialReturned(trial=trial, attempt=1))
    assert len(outboxes() - before) == 1
    sender.close()
    ours.close()
    assert received(theirs) == [TrialReturned(trial=trial, attempt=1) for trial in range(ROUNDS)]


def test_a_first_message_that_the_kernel_cannot_take_is_not_waited_for(
    link: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = link
    before, sender = outboxes(), SocketLink(ours, is_brief=True)
    problem = "x" * (link_module.MAX_QUEUED_BYTES - link_module.MIN_ROW_BYTES)
    sender.send(CheckpointFailed(trial=1, attempt=1, number=0, problem=problem))
    assert len(outboxes() - before) == 1
    got: list[FromWorker] = []
    reader = threading.Thread(target=lambda: got.extend(received(theirs)))
    reader.start()
    sender.close()
    ours.close()
    reader.join(30)
    assert got == [CheckpointFailed(trial=1, attempt=1, number=0, problem=problem)]


def test_a_link_that_ends_does_not_wait_for_more_to_send(
    link: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = link
    monkeypatch.setattr(link_module, "COALESCE_S", 60.0)  # far longer than the test may take
    before, sender = outboxes(), SocketLink(ours, is_brief=True)
    for trial in range(ROUNDS):
        sender.send(TrialReturned(trial=trial, attempt=1))
    sender.close(timeout_s=10.0)
    assert not outboxes() - before
    ours.close()
    assert len(received(theirs)) == ROUNDS
