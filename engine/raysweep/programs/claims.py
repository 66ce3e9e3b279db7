"""One trial of a node has a file, folder or port at a time: else each would get the other's numbers.

A claim is the name of a socket (Linux), which the kernel frees with the process. Nothing is written. Trials
on several nodes that share a file system do not see each other's claims.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from raysweep.errors import ProgramFailedError


@contextmanager
def claimed(paths: Iterable[tuple[str, Path]], own: Path) -> Iterator[None]:
    """Hold these paths, each with its option; those in the folder `own` are the attempt's anyway.

    Raises ProgramFailedError: Another trial reads one of them.
    """
    with ExitStack() as stack:
        for option, path in paths:
            real = Path(os.path.realpath(path))
            if sys.platform == "linux" and not real.is_relative_to(os.path.realpath(own)):
                stack.enter_context(_claim(option, real))
        yield


@contextmanager
def claimed_port(option: str, port: int) -> Iterator[None]:
    """Hold a port for a service.

    Raises ProgramFailedError: The service of another trial has it, or is about to listen there.
    """
    if sys.platform != "linux":
        yield
        return
    what = f"{option}: the service of another trial on this node has port {port}"
    with _bind(f"port-{port}", f"{what}: write {{port}}, which is a free one"):
        yield


def _claim(option: str, path: Path) -> socket.socket:
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:40]
    what = f"{option}: another trial on this node reads {path} now, and would count this one's reports"
    return _bind(f"reads-{digest}", f"{what}: write to {{output_dir}}, or name it by {{number}}")


def _bind(name: str, refusal: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.bind(f"\0raysweep-{name}-{os.getuid()}")
    except OSError as error:
        sock.close()
        if error.errno != errno.EADDRINUSE:
            raise
        raise ProgramFailedError(refusal) from None
    return sock
