"""One fault: where it happens, to whom, and what happens."""

from __future__ import annotations

import importlib
import os
import signal
import time
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from raysweep.errors import RaysweepError, StorageUnavailableError

Place = Literal["load", "begin", "report", "reported", "checkpoint", "stop", "store", "command"]
Action = Literal["raise", "kill", "exit", "sleep"]
When = Literal["before", "after"]
IN_TRIALS: Final = frozenset({"load", "begin", "report", "reported", "checkpoint", "stop"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: at this place, do this. None matches anything.

    `place`: in a worker `load` (before it loads the trainable), `begin` (before user code), `report` and
    `reported` (on the way into and out of `raysweep.report`), `checkpoint` (files stored, manifest not yet),
    `stop` (the trial was just told to end); anywhere `store` (around an operation on the storage); in the
    controller `command` (around a command of the core). `nth`: the so-manyth time that a process comes by.
    """

    place: Place
    action: Action
    when: When = "before"
    trial: int | None = None
    step: int | None = None
    attempt: int | None = None
    operation: str | None = None
    match: str | None = None
    nth: int = 1
    times: int = 1
    seconds: float = 0.0
    exit_code: int = 1
    error: str = ""
    message: str = ""

    def __str__(self) -> str:
        given = {name: value for name, value in asdict(self).items() if value != _DEFAULTS.get(name)}
        rest = [f"{name}={value!r}" for name, value in given.items() if name not in ("place", "action")]
        return f"{self.action} at {self.place}" + (f" ({', '.join(rest)})" if rest else "")


_DEFAULTS: Final = {
    name: getattr(Fault(place="begin", action="raise"), name)
    for name in Fault.__dataclass_fields__
    if name not in ("place", "action")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """The place of a process, as far as faults ask: trial, attempt and step; operation, and its key."""

    trial: int | None = None
    step: int | None = None
    attempt: int | None = None
    operation: str = ""
    key: str = ""


def matches(fault: Fault, here: Here) -> bool:
    """True if a fault is meant for what happens here."""
    return (
        fault.trial in (None, here.trial)
        and fault.step in (None, here.step)
        and fault.attempt in (None, here.attempt)
        and fault.operation in (None, here.operation)
        and (fault.match is None or _fits(fault.match, here.key))
    )


def _fits(pattern: str, key: str) -> bool:
    """Part by part, `**` for any number of parts at the end; the sweep's own folder is left out."""
    wanted, parts = pattern.split("/"), key.split("/")[1:]
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        parts = parts[: len(wanted)]
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


_leave: Final = os._exit  # as it is before a worker makes it say something: a fault is a sudden death


def perform(fault: Fault) -> None:
    """Do it, to this process."""
    match fault.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # until the signal is there
        case "exit":
            _leave(fault.exit_code)
        case "sleep":
            time.sleep(fault.seconds)
        case "raise" if fault.place == "store":
            raise StorageUnavailableError("storage", f"planned fault: {fault}", "nothing: this is a test")
        case "raise":
            raise _make_error(fault)


def describe_error(error: BaseException | type[BaseException]) -> tuple[str, str]:
    """An exception as (import path, message), from which another process can make it again.

    Raises:
        RaysweepError: Its class cannot be imported.
    """
    cls = error if isinstance(error, type) else type(error)
    if "<" in cls.__qualname__ or cls.__module__ == "__main__":
        raise RaysweepError(
            f"{cls.__qualname__} cannot be raised in another process: define it at the top of a module"
        )
    message = "planned fault" if isinstance(error, type) else str(error)
    return f"{cls.__module__}:{cls.__qualname__}", message


def _make_error(fault: Fault) -> BaseException:
    module, _, name = fault.error.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    error: BaseException = found(fault.message)
    return error
