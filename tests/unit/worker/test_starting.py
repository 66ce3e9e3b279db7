"""What the controller says of an attempt right when it begins reaches it: in a worker, and in a forked child.

The child is a real one, of a real fork server, whose link ends here.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from raysweep import messages as msg
from raysweep.errors import TrialStopped
from raysweep.messages import FromWorker, Interrupt, Job, Order, Stop
from raysweep.worker.link import SocketLink
from raysweep.worker.process.fork_server import Unforkable
from raysweep.worker.process.forking import LATE, Zygote, serve_forked
from raysweep.worker.runner import INTERRUPT, install_interrupt, run_attempt
from raysweep.worker.session import Session
from raysweep.worker.setup import WorkerSetup
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.wire import FROM_WORKER, pack, read_frames
from tests.unit.worker import forkable

PLACE = SweepPlace(sweep_id="s-1", storage_path="", resources={})
JOB = Job(trial=3, attempt=2, config={}, seed=1, checkpoint=None, iteration=0, next_checkpoint=0)
STOP = Stop(trial=3, attempt=2, reason="sweep", allows="checkpoint")
INTERRUPTION: list[Order] = [
    Stop(trial=3, attempt=2, reason="sweep", wants_checkpoint=True, allows="checkpoint"),
    Interrupt(trial=3, attempt=2),
]
EARLY: dict[str, tuple[str, list[Order]]] = {
    "a stop": ("reports_for_ever", [STOP]),
    "an interruption": ("sleeps", INTERRUPTION),
    "a stop of another attempt before it": (
        "reports_for_ever",
        [Stop(trial=3, attempt=1, reason="hung"), STOP],
    ),
}


class Hasty(SocketLink):
    """As if the controller's answer to `TrialStarted` were back before anything else happens here."""

    def __init__(self, sock: socket.socket, answers: list[Order]) -> None:
        super().__init__(sock)
        self.shell = WorkerShell(self)
        self._answers = answers

    def send_now(self, message: FromWorker) -> None:
        super().send_now(message)
        self.shell.take([*self._answers])


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


def said_on(link: socket.socket) -> list[FromWorker]:
    return [message for frame in read_frames(link, FROM_WORKER) for message in frame]


def ends_of(link: socket.socket) -> list[FromWorker]:
    return [
        message for message in said_on(link) if not isinstance(message, msg.TrialReported | msg.TrialStarted)
    ]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("trainable", "early"), EARLY.values(), ids=EARLY)
@pytest.mark.usefixtures("interruptible")
def test_a_worker_hears_what_comes_before_its_session(
    trainable: str, early: list[Order], link: tuple[socket.socket, socket.socket]
) -> None:
    sender = Hasty(link[0], early)
    sender.shell.take([JOB])
    assert sender.shell.next_job() is JOB
    run_attempt(getattr(forkable, trainable), JOB, PLACE, sender.shell)
    sender.close()
    link[0].shutdown(socket.SHUT_WR)
    assert ends_of(link[1]) == [msg.TrialStopped(trial=3, attempt=2)]


def setup_of(trainable: str) -> WorkerSetup:
    return WorkerSetup(
        host="",
        port=0,
        token="",
        trainable=f"tests.unit.worker.{trainable if ':' in trainable else f'forkable:{trainable}'}",
        pickled=None,
        isolation="process",
        place=PLACE,
    )


@pytest.fixture
def zygote_of() -> Iterator[Callable[[str], Zygote]]:
    """Starts a fork server for one of the trainables."""
    started: list[Zygote] = []

    def start(trainable: str, answer: Unforkable | None = None, late: Unforkable | None = None) -> Zygote:
        started.append(Zygote(setup_of(trainable), unforkable=late))
        assert started[-1].await_ready() == answer
        return started[-1]

    yield start
    for zygote in started:
        zygote.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("trainable", "early"), EARLY.values(), ids=EARLY)
def test_a_forked_child_hears_what_comes_before_its_session(
    trainable: str,
    early: list[Order],
    link: tuple[socket.socket, socket.socket],
    zygote_of: Callable[[str], Zygote],
) -> None:
    zygote = zygote_of(trainable)
    ours, theirs = link
    # All of it is there before the child looks for the first time.
    ours.sendall(pack([JOB]) + pack(early))
    pid = zygote.fork(theirs)
    theirs.close()
    watchdog = threading.Timer(15, partial(end, pid))
    watchdog.start()
    assert ends_of(ours) == [msg.TrialStopped(trial=3, attempt=2)]
    watchdog.cancel()
    assert zygote.wait(pid) == 0


def test_a_module_that_looks_for_a_gpu_can_be_forked(
    zygote_of: Callable[..., Zygote], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its torch is a stand-in: there may be no GPU."""
    zygote_of("with_cuda:train")
    monkeypatch.setenv("RAYSWEEP_TEST_OPENS", "1")
    assert zygote_of("with_cuda:train", Unforkable(("torch",)))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for CUDA's driver."""
    if shutil.which("cc") is None:
        pytest.skip("the stand-in for the library has to be compiled")
    library, source = tmp_path / "libcuda.so.1", Path(__file__).with_name("host") / "fake_cuda.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("RAYSWEEP_TEST_CUDA", str(library))


def run_in_child(zygote: Zygote) -> list[FromWorker]:
    """What a child says of one trial."""
    ours, theirs = socket.socketpair()
    ours.sendall(pack([JOB]))
    pid = zygote.fork(theirs)
    theirs.close()
    messages = said_on(ours)
    ours.close()
    assert zygote.wait(pid) == 0
    return messages


@pytest.mark.usefixtures("driver")
def test_a_driver_that_is_only_loaded_is_forked_with(zygote_of: Callable[..., Zygote]) -> None:
    messages = run_in_child(zygote_of("with_driver:train"))
    assert messages[-1] == msg.TrialReturned(trial=3, attempt=2)


@pytest.mark.usefixtures("driver")
def test_each_trial_imports_a_module_that_opens_a_gpu_in_a_fresh_process(
    zygote_of: Callable[..., Zygote], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSWEEP_TEST_OPENS", "1")
    zygote_of("with_driver:train", Unforkable())
    late = zygote_of("with_driver:train", late=Unforkable(("json",)))
    for _ in range(2):
        assert run_in_child(late)[-1] == msg.TrialReturned(trial=3, attempt=2)


@pytest.mark.usefixtures("driver")
def test_a_worker_says_once_that_its_trials_are_not_forked_with_their_module(
    monkeypatch: pytest.MonkeyPatch, link: tuple[socket.socket, socket.socket]
) -> None:
    monkeypatch.setenv("RAYSWEEP_TEST_OPENS", "1")
    shell = WorkerShell(SocketLink(link[0]))
    shell.link.listen(shell.take, shell.lose_link)
    link[1].sendall(pack([JOB, replace(JOB, trial=4)]))
    worker = threading.Thread(target=serve_forked, args=(setup_of("with_driver:train"), shell))
    worker.start()
    messages: list[FromWorker] = []
    for frame in read_frames(link[1], FROM_WORKER):
        messages += frame
        if sum(isinstance(each, msg.TrialReturned) for each in messages) == 2:
            break
    link[1].sendall(pack([msg.Exit()]))
    worker.join(30)
    assert not worker.is_alive()
    notes = [each for each in messages if isinstance(each, msg.TrialNoted)]
    assert notes == [msg.TrialNoted(trial=3, attempt=2, text=LATE, is_shared=True)]
    assert [each.trial for each in messages if isinstance(each, msg.TrialReturned)] == [3, 4]


def test_what_pytorch_imports_with_the_first_optimizer_is_there_before_a_fork(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its torch is a stand-in."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("def manual_seed(seed): ...")
    (tmp_path / "torch" / "_dynamo.py").touch()
    (tmp_path / "with_torch.py").write_text(
        "import sys, torch\ndef train(config):\n    return {'loss': float('torch._dynamo' in sys.modules)}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    zygote = Zygote(dataclasses.replace(setup_of(""), trainable="with_torch:train"))
    assert zygote.await_ready() is None
    (rows,) = [each for each in run_in_child(zygote) if isinstance(each, msg.TrialReported)]
    zygote.close()
    assert dict(zip(rows.keys, rows.rows[0], strict=True))["loss"] == 1.0


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
    ours.sendall(pack([replace(JOB, config={"reports": 4000})]))
    pid = zygote.fork(theirs)
    theirs.close()
    # Longer than a worker that was told to end would wait.
    threading.Event().wait(12)
    messages = said_on(ours)
    assert messages[-1] == msg.TrialReturned(trial=3, attempt=2)
    assert sum(len(message.rows) for message in messages if isinstance(message, msg.TrialReported)) == 4000
    assert zygote.wait(pid) == 0


@pytest.mark.timeout(120)
def test_what_waits_for_an_answer_ends_when_it_is_interrupted(
    link: tuple[socket.socket, socket.socket],
) -> None:
    """It was asked for a checkpoint, so it may continue reporting until there is no more time for that."""
    sender = SocketLink(link[0])
    session = Session(JOB, PLACE, sender)
    session.stop("preempt", wants_checkpoint=True)
    threading.Timer(0.2, session.interrupt).start()
    with pytest.raises(TrialStopped, match="preempt"):
        session.report({"loss": 1.0}, None, True)
    sender.close()
