"""The threads around a worker's machine, and the process under it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from raysweep import messages as msg
from raysweep.messages import Exit, FailureFacts, FromWorker, Job, Kill, Order, Recall, Stop
from raysweep.worker.link import Take
from raysweep.worker.process import forking
from raysweep.worker.shell import WorkerShell
from raysweep.worker.wire import HEADER, TO_WORKER, pack, read_frames

JOB = Job(trial=3, attempt=1, config={}, seed=1, memory_limit_bytes=9)
STOP = Stop(trial=3, attempt=1, reason="limit")
RETURNED = msg.TrialReturned(trial=3, attempt=1)
HELD = FailureFacts(origin="memory", type="MemoryLimitExceeded", memory_bytes=7)


class Recorder:
    """A link, and an attempt, that note what happens to them, in order."""

    def __init__(self) -> None:
        self.noted: list[Any] = []
        self.pid = 7

    def listen(self, take: Take, on_gone: Callable[[], None]) -> None:
        raise AssertionError("the tests say what comes")

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        self.noted.append(message)

    def send_now(self, message: FromWorker) -> None:
        self.noted.append(("now", message))

    def send_row(self, *arguments: Any) -> None:
        raise AssertionError("no attempt reports here")

    def close(self, timeout_s: float | None = 10.0) -> None:
        self.noted.append("closed")

    def tell(self, order: Order) -> None:
        self.noted.append(order)

    def abandon(self) -> None:
        self.noted.append("abandoned")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_an_attempt_from_its_job_to_its_end(recorder: Recorder) -> None:
    shell = WorkerShell(recorder)
    shell.take([JOB, STOP, Recall(trials=[3])])
    assert shell.next_job() == JOB
    assert shell.find_process() is None, "it has no process yet"
    shell.begin()
    shell.reach(recorder)
    assert shell.find_process() == (7, 9)
    shell.end(RETURNED)
    assert shell.find_process() is None
    shell.take([Exit()])
    assert shell.next_job() is None
    began = msg.TrialStarted(trial=3, attempt=1)
    assert recorder.noted == [msg.TrialsRecalled(trials=[]), ("now", began), STOP, RETURNED]


@pytest.mark.parametrize("how", ["exit", "link"])
def test_a_thread_that_waits_for_a_job_hears_of_the_end(recorder: Recorder, how: str) -> None:
    shell = WorkerShell(recorder)
    got: list[Job | None] = []
    waiting = threading.Thread(target=lambda: got.append(shell.next_job()))
    waiting.start()
    if how == "exit":
        shell.take([Exit()])
    else:
        shell.lose_link()
    waiting.join(10)
    assert got == [None]


def test_what_runs_without_a_controller_is_ended_and_says_nothing(recorder: Recorder) -> None:
    shell = WorkerShell(recorder)
    shell.take([JOB])
    shell.next_job()
    shell.reach(recorder)
    shell.lose_link()
    assert recorder.noted == ["abandoned"]


def test_what_holds_too_much_says_so_before_it_is_ended(recorder: Recorder) -> None:
    shell = WorkerShell(recorder)
    shell.take([JOB])
    shell.next_job()
    shell.reach(recorder)
    shell.exceed(HELD)
    assert recorder.noted == [msg.TrialFailed(trial=3, attempt=1, failure=HELD), "closed", "abandoned"]


class Server:
    """Stands for the fork server: its child is a process that sleeps, and says what the test says."""

    def __init__(self, says: bytes, *, ends: bool = False) -> None:
        self.heard: list[Any] = []
        self.lives: threading.Thread | None = None
        self._says = says
        self._ends = ends

    def fork(self, sock: socket.socket) -> int:
        self.sock = sock.dup()
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        self.sock.sendall(self._says)
        self.lives = threading.Thread(target=self._live, daemon=True)
        self.lives.start()
        return self.child.pid

    def _live(self) -> None:
        if self._ends:
            self.child.kill()
        self.child.wait()
        self.sock.shutdown(socket.SHUT_WR)
        for messages in read_frames(self.sock, TO_WORKER):
            self.heard += messages

    def wait(self, pid: int) -> int:
        assert pid == self.child.pid
        code = self.child.wait(30)
        return -code if code < 0 else code << 8


def run_child(server: Server, recorder: Recorder, *also: Order) -> None:
    shell = WorkerShell(recorder, is_forked=True)
    shell.take([JOB, *also])
    job = shell.next_job()
    assert job is JOB
    forking._run_child(server, job, shell)  # type: ignore[arg-type]
    if server.lives is not None:
        server.lives.join(30)
    server.sock.close()


def test_a_child_whose_words_cannot_be_read_is_killed(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """User code has its file descriptors, and may write to the wrong one."""
    server = Server(pack([msg.TrialStarted(trial=3, attempt=1)]) + HEADER.pack(5) + b"hello")
    run_child(server, recorder)
    began, failed = recorder.noted
    assert began == ("now", msg.TrialStarted(trial=3, attempt=1))
    assert (failed.failure.origin, failed.failure.type) == ("process", "LinkBroken")
    assert "sent an unreadable message: JSON is malformed" in failed.failure.message
    assert server.child.returncode == -signal.SIGKILL
    assert len(caplog.records) == 1


def test_a_child_that_ends_after_its_last_word_has_said_how(recorder: Recorder) -> None:
    server = Server(pack([msg.TrialStarted(trial=3, attempt=1), RETURNED]), ends=True)
    run_child(server, recorder)
    assert recorder.noted == [("now", msg.TrialStarted(trial=3, attempt=1)), RETURNED]


def test_a_child_that_is_killed_before_it_is_there_was_stopped(recorder: Recorder) -> None:
    server = Server(b"")
    run_child(server, recorder, Kill(trial=3, attempt=1))
    assert recorder.noted == [msg.TrialStopped(trial=3, attempt=1, was_killed=True)]


def test_a_child_that_dies_did_not_say_how(recorder: Recorder) -> None:
    server = Server(pack([msg.TrialStarted(trial=3, attempt=1)]), ends=True)
    run_child(server, recorder)
    assert recorder.noted[-1].failure.message == "the trial's process ended with signal SIGKILL"
