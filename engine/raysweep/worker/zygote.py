"""The fork server of a worker: loads the trainable once, forks a child for each trial, reports how
children end.

Run as `python -m raysweep.worker.zygote FD`. It has one thread and no Ray, so a fork of it is a clean copy.
Requests come over the SOCK_SEQPACKET socket FD: `fork`, with the child's end of its link as a passed
descriptor.
Answers: `{"ready": true}` or `{"failed": …}` once, `{"pid": n}` for each fork, `{"ended": n, "status": s}`
for each child.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import Any, Final

import orjson

from raysweep.worker.mailbox import Mailbox
from raysweep.worker.outbox import Outbox
from raysweep.worker.runner import (
    Trainable,
    describe,
    install_interrupt,
    load_by_reference,
    run_attempt,
    tell,
)
from raysweep.worker.session import Session, SweepPlace
from raysweep.worker.wire import Job, read_frames

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """Serve forks until the worker closes the socket."""
    control = socket.socket(fileno=int(sys.argv[1]))
    header = orjson.loads(sys.stdin.buffer.readline())
    pickled = sys.stdin.buffer.read() if header["has_pickle"] else None
    _die_with_parent(header["parent"])
    try:
        trainable = _load(header["trainable"], pickled)
    except BaseException as error:  # noqa: BLE001  whatever the user's module raises while it is imported
        control.send(_fit({"failed": describe(error, origin="start", is_fatal=True)}))
        return
    place = SweepPlace(**header["place"])
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.signal(signal.SIGCHLD, lambda signum, frame: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    # What is loaded now is shared with every child: keep the collector from touching (and so copying) its
    # pages.
    gc.collect()
    gc.freeze()
    control.send(orjson.dumps({"ready": True}))
    while True:
        readable, _, _ = select.select([control.fileno(), wake], [], [])
        if wake in readable:
            os.read(wake, 4096)
            _reap(control)
        if control.fileno() in readable:
            request, descriptors, _, _ = socket.recv_fds(control, 64, 1)
            if not request:
                return
            _fork(control, wake, waker, descriptors[0], trainable, place)


def _load(reference: str, pickled: bytes | None) -> Trainable:
    if pickled is not None:
        import cloudpickle

        loaded: Trainable = cloudpickle.loads(pickled)
        return loaded
    return load_by_reference(reference)


def _fork(
    control: socket.socket, wake: int, waker: int, descriptor: int, trainable: Trainable, place: SweepPlace
) -> None:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(descriptor)
        control.send(orjson.dumps({"pid": pid}))
        return
    try:
        control.close()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(wake)
        os.close(waker)
        _die_with_parent(parent)
        # What the trial starts, ends with it: it leads a process group of its own.
        os.setpgid(0, 0)
        _run_child(descriptor, trainable, place)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # Not sys.exit: what the zygote registered to run at its own exit must not run in each child.
        os._exit(0)


def _run_child(descriptor: int, trainable: Trainable, place: SweepPlace) -> None:
    sock = socket.socket(fileno=descriptor)
    frames = read_frames(sock)
    ((_, fields),) = next(frames)
    job = Job(**fields)
    outbox, mailbox = Outbox(sock), Mailbox()
    mailbox.expect(job)

    def on_session(session: Session | None) -> None:
        if session is not None:
            mailbox.open(partial(tell, session))
        else:
            mailbox.close()

    def read() -> None:
        for messages in frames:
            for message in messages:
                mailbox.take(message)
        os._exit(1)

    install_interrupt()
    threading.Thread(target=read, name="raysweep-link", daemon=True).start()
    run_attempt(trainable, job, place, outbox, on_session)
    # However long the controller does not read: what was reported is not lost. If the worker goes, `read`
    # ends this process.
    outbox.close(timeout_s=None)


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        control.send(orjson.dumps({"ended": pid, "status": status}))


def _die_with_parent(parent: int) -> None:
    """Linux: be killed when the parent dies, however it dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _fit(answer: dict[str, Any]) -> bytes:
    return orjson.dumps(answer)[: 1 << 16]


if __name__ == "__main__":
    main()
