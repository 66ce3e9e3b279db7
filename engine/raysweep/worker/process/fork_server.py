"""The fork server of a worker: loads the trainable once, forks a child for each trial, reports how
children end.

Run as `python -m raysweep.worker.process.fork_server FD`. It has one thread and no Ray, so a fork of it is a
clean copy.
Its first line on stdin is a `Setup`. Requests come over the SOCK_SEQPACKET socket FD: `fork`, with the
child's end of its link as a passed descriptor. Answers: `Loaded` or `Unloadable` once, `Forked` for each
fork, `Ended` for each child, once nothing that it started is left.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from raysweep.messages import FailureFacts
from raysweep.worker.checking import check_forkable
from raysweep.worker.gang.surroundings import preload
from raysweep.worker.host.cuda_driver import has_opened_gpu
from raysweep.worker.host.gpu_share import ENFORCED
from raysweep.worker.link import SocketLink
from raysweep.worker.output.captured import CapturedOutput, Output
from raysweep.worker.process.descendants import Descendants
from raysweep.worker.process.rehearsal import rehearse
from raysweep.worker.ray_calls.refused import refuse_ray
from raysweep.worker.runner import Trainable, describe, install_interrupt, run_attempt
from raysweep.worker.setup import make_trainable
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.wire import Decoder, encode

# Far more than a failure of a start takes, whose texts are bounded.
MAX_ANSWER_BYTES: Final = 1 << 17
# Their import takes long, and initialises no GPU.
_HARMLESS: Final = ("numpy", "torch")
_PR_SET_PDEATHSIG: Final = 1
# Found once: in each child, that would be a tenth of its start.
_LIBC: Final = ctypes.CDLL(None)
_prctl: Final = getattr(_LIBC, "prctl", None)


class Setup(Struct, frozen=True, kw_only=True):
    """The facts for the fork server; with `has_pickle`, the pickled trainable follows (it came through Ray).

    Before it, as many bytes as `parameters_bytes`: what `tune.with_parameters` was given.
    """

    trainable: str
    has_pickle: bool
    parameters_bytes: int = 0
    place: SweepPlace
    parent: int
    spool: str = ""
    process_group: str = ""
    loads_late: bool = False
    """True if each child imports the trainable itself, as its module initialises CUDA."""
    preloads: tuple[str, ...] = ()
    """Modules to import before the first fork."""
    refuses_ray: bool = False
    """True if the sweep runs without Ray (`ray_calls.refused`)."""


class Loaded(Struct, frozen=True, tag=True):
    """The trainable is loaded."""


class Unloadable(Struct, frozen=True, tag=True):
    """It cannot be."""

    failure: FailureFacts


class Unforkable(Struct, frozen=True, tag=True):
    """Its module has initialised CUDA, which works in no process that is forked after that.

    `preloads`: the modules that a fork server which does not import it may import all the same.
    """

    preloads: tuple[str, ...] = ()


class Forked(Struct, frozen=True, tag=True):
    """A child runs."""

    pid: int


class Ended(Struct, frozen=True, tag=True):
    """A child has ended, with this wait status."""

    pid: int
    status: int


Answer = Loaded | Unloadable | Unforkable | Forked | Ended
ANSWER: Final[Decoder[Answer]] = Decoder(Answer)
SETUP: Final[Decoder[Setup]] = Decoder(Setup)


def main() -> None:
    """Serve forks until the worker closes the socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    setup = SETUP.decode(sys.stdin.buffer.readline())
    values = sys.stdin.buffer.read(setup.parameters_bytes)
    pickled = sys.stdin.buffer.read() if setup.has_pickle else None
    _die_with_parent(setup.parent)
    if setup.refuses_ray:
        refuse_ray()
    # Else torch would initialise CUDA's driver to say whether there is a GPU, and no child could use one.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    try:
        preload(setup.process_group)
        trainable = _make_trainable(setup, pickled, values)
        del values, pickled
        if not setup.loads_late:
            _import_deferred()
        is_forkable = not has_opened_gpu()
        if setup.loads_late:
            check_forkable(is_forkable)
    except BaseException as error:  # noqa: BLE001  whatever the user's module raises while it is imported
        control.send(encode(Unloadable(describe(error, origin="start", is_fatal=True))))
        return
    if not is_forkable:
        control.send(encode(Unforkable(tuple(name for name in _HARMLESS if name in sys.modules))))
        return
    rehearse(setup.place)
    output, descendants = _make_output(setup), Descendants()
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    # What is loaded now is shared with every child: keep the collector from touching (and so copying) its
    # pages.
    gc.collect()
    gc.freeze()
    control.send(encode(Loaded()))
    child = 0
    while True:
        readable, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _reap(control, child, output, descendants)
        if control.fileno() in readable:
            request, descriptors, _, _ = socket.recv_fds(control, 64, 1)
            if not request:
                descendants.end()
                output.close()
                return
            descendants.begin()
            child = _fork(control, wake, waker, descriptors[0], trainable, setup, output)


def _import_deferred() -> None:
    """Import what PyTorch imports when a trial makes its first optimizer: a second or more in each child."""
    if "torch" in sys.modules:
        with suppress(Exception):  # this PyTorch has none, or it is something else of this name
            importlib.import_module("torch._dynamo")


def _make_trainable(setup: Setup, pickled: bytes | None, values: bytes) -> Trainable:
    """The trainable, imported here, or else by each child that calls it."""
    if not setup.loads_late:
        return _load(setup, pickled, values)
    for name in setup.preloads:
        importlib.import_module(name)
    return lambda config: _load(setup, pickled, values)(config)


def _load(setup: Setup, pickled: bytes | None, values: bytes) -> Trainable:
    parameters: tuple[Mapping[str, Any], ...] = ()
    if values:
        import cloudpickle

        parameters = cloudpickle.loads(values)
    return make_trainable(setup.trainable, pickled, parameters, setup.place)


def _make_output(setup: Setup) -> Output:
    if not setup.spool:
        return Output()
    output = CapturedOutput(Path(setup.spool))
    output.prepare()
    # As Ray does for its workers: where a child was when a signal ended it.
    faulthandler.enable()
    return output


def _fork(
    control: socket.socket,
    wake: int,
    waker: int,
    descriptor: int,
    trainable: Trainable,
    setup: Setup,
    output: Output,
) -> int:
    """The child's pid."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        control.send(encode(Forked(pid)))
        return pid
    try:
        control.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(wake)
        os.close(waker)
        _die_with_parent(parent)
        # Signals to the group of the worker are not for the trial.
        os.setpgid(0, 0)
        _run_child(descriptor, trainable, setup, output)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Not sys.exit: what this server registered to run at its own exit must not run in each child.
        os._exit(0)


def _run_child(descriptor: int, trainable: Trainable, setup: Setup, output: Output) -> None:
    link = SocketLink(socket.socket(fileno=descriptor), is_brief=True)
    shell = WorkerShell(link)
    install_interrupt()
    link.listen(shell.take, lambda: os._exit(1))
    job = shell.next_job()
    if ENFORCED in os.environ:
        from raysweep.worker.host.gpu_share import enforce_share

        enforce_share()
    if job is not None:
        run_attempt(trainable, job, setup.place, shell, output, descendants=Descendants())
        output.close()
    # However long the controller does not read: what was reported is not lost. If the worker goes, so does
    # this process.
    link.close(timeout_s=None)


def _reap(control: socket.socket, child: int, output: Output, descendants: Descendants) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid != child:  # the user's module has started it, or the trial
            continue
        left = descendants.end()
        with suppress(ProcessLookupError, PermissionError):  # where there is no /proc
            os.killpg(pid, signal.SIGKILL)
        output.settle(left)
        control.send(encode(Ended(pid, status)))


def _die_with_parent(parent: int) -> None:
    """Linux: be killed when the parent dies, however it dies."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main()
