"""The surroundings of a trainable in a gang: the variables that name its rank, and its process group."""

from __future__ import annotations

import importlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

from raysweep.errors import ProgramFailedError, RaysweepError
from raysweep.messages import Gang
from raysweep.worker.gang.process_groups import Group, find_group
from raysweep.worker.gang.sessions import MemberSession

if TYPE_CHECKING:
    from raysweep.worker.session import Session

_ECHO: Final = re.compile(r"gloo|nccl|tcpstore|connection (closed|reset) by peer|broken pipe", re.IGNORECASE)
_ECHO_TYPES: Final = frozenset(
    {"DistError", "DistBackendError", "DistNetworkError", "DistStoreError", "HorovodInternalError"}
)
# What TensorFlow raises where a peer has gone; by their modules, as others have errors of these names, too.
_TENSORFLOW: Final = "tensorflow.python.framework.errors_impl"
_TENSORFLOW_ECHOES: Final = frozenset({"UnavailableError", "AbortedError", "CancelledError"})
_ALONE: Final = nullcontext()
# The group of the attempt, until the trainable's frames are gone.
_present: list[Group] = []


def preload(group: str) -> None:
    """Import, before any trial, what the process group is made of.

    Raises:
        RaysweepError: It is not there.
    """
    if not group:
        return
    found = find_group(group)
    try:
        for name in found.preloaded:
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise RaysweepError(
            f"scaling.backend: {error}; install {found.package} where the workers run, or write backend: null"
        ) from error


def joined(session: Session) -> AbstractContextManager[None]:
    """Around the trainable. Where the attempt is no gang's, nothing.

    Raises:
        TrialStopped: It is to end before all have met.
    """
    gang = session.job.gang
    if gang is None:
        return _ALONE
    assert isinstance(session, MemberSession)
    return _joined(session, gang)


@contextmanager
def _joined(session: MemberSession, gang: Gang) -> Iterator[None]:
    group = find_group(gang.group) if gang.group else None
    with _environment(_variables(gang, session.job.rank), group.names if group is not None else ()):
        if group is None:
            yield
            return
        _present.append(group)
        try:
            group.meet(session, gang)
            yield
        finally:
            group.part()


def is_echo(error: BaseException) -> bool:
    """True if it was raised because another rank has gone."""
    lineage = type(error).__mro__
    if any(cls.__name__ in _TENSORFLOW_ECHOES and cls.__module__ == _TENSORFLOW for cls in lineage):
        return True
    names = {cls.__name__ for cls in lineage}
    is_plain = isinstance(error, RuntimeError | OSError | ProgramFailedError)
    return bool(names & _ECHO_TYPES) or (is_plain and _ECHO.search(str(error)) is not None)


def close() -> None:
    """The trainable's frames are gone: release its connection."""
    while _present:
        _present.pop().close()


def own_host(host: str, port: int) -> str:
    """This node's address on the way to the controller: there the others of a gang reach it."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])
    return ""


def _variables(gang: Gang, rank: int) -> dict[str, str]:
    variables = {
        "RANK": str(rank),
        "WORLD_SIZE": str(gang.world_size),
        "LOCAL_RANK": str(gang.local_rank),
        "LOCAL_WORLD_SIZE": str(gang.local_world_size),
        "NODE_RANK": str(gang.node_rank),
    }
    if gang.devices is not None:
        # As torchrun and Ray Train have it: all of the node's, so that LOCAL_RANK is the number of one's own.
        variables["CUDA_VISIBLE_DEVICES"] = gang.devices
    return variables


@contextmanager
def _environment(variables: dict[str, str], others: tuple[str, ...]) -> Iterator[None]:
    """With these variables; they, and what `others` names, are as before afterwards."""
    names = (*variables, *others)
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
