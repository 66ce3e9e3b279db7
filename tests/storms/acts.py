"""Misbehaviours of trials, by name: each is performed at one step of a trial, or after its last.

`ANYWHERE` may happen in the process of a person (`isolation: inline`); the others end or mark the process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import raysweep as rs

_open, _write, _close, _sleep, _leave = os.open, os.write, os.close, time.sleep, os._exit
STRAY_S: Final = 1.2
"""How long a stray thread reports: over several trials that follow."""
SLEEPER: Final = ("sleep", "3599")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """Where an act is performed: the storm's plan, the trial, its step, and what it is about to report."""

    plan: Mapping[str, Any]
    number: int
    step: int
    row: Row


class Misbehaviour(BaseException):
    """No Exception."""


def say(plan: Mapping[str, Any], what: str, **facts: Any) -> None:
    """A line in the storm's log, whatever the trial has done to its process; `at`: no clock that jumps."""
    line = json.dumps({"what": what, "pid": os.getpid(), "at": time.monotonic(), **facts}) + "\n"
    descriptor = _open(plan["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        _write(descriptor, line.encode())
    finally:
        _close(descriptor)


def perform(act: str, scene: Scene) -> Row:
    """Do it; what the trial is to report at this step."""
    known = ANYWHERE.get(act) or IN_A_WORKER.get(act)
    if known is None:
        return scene.row  # it comes at the end
    changed = known(scene)
    return scene.row if changed is None else changed


def conclude(act: str, plan: Mapping[str, Any], number: int) -> Any:
    """What it does after its last step, and returns."""
    if act == "returns text":
        return "done"
    if act == "returns list":
        return [1, 2]
    if act == "report after the end":
        _stray(Scene(plan, number, 0, {}), pause_s=0.3, count=1)
    if act == "stray thread":
        _stray(Scene(plan, number, 0, {}))
    return None


AT_THE_END: Final = ("returns text", "returns list", "report after the end", "stray thread")


def _once(scene: Scene, name: str) -> bool:
    return is_first(scene.plan, f"{name}.{scene.number}")


def is_first(plan: Mapping[str, Any], name: str) -> bool:
    """Whether this name is asked for the first time in the storm."""
    path = f"{plan['log']}.{name}"
    try:
        _close(_open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


# -- ends ----------------------------------------------------------------------------------------------------


def _raise(scene: Scene) -> None:
    raise RuntimeError(f"trial {scene.number} raises")


def _raise_once(scene: Scene) -> None:
    if _once(scene, "raise"):
        raise ValueError("once")


def _raise_base(scene: Scene) -> None:
    raise Misbehaviour("no Exception")


def _raise_kind(kind: type[BaseException]) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        raise kind

    return act


def _recursion(scene: Scene) -> None:
    _recursion(scene)


def _signal_once(number: signal.Signals) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        if _once(scene, number.name):
            os.kill(os.getpid(), number)
            _sleep(5.0)

    return act


def _hang(scene: Scene) -> None:
    if _once(scene, "hang"):
        _sleep(3599.0)


def _sleep_through(scene: Scene) -> None:
    """Hears no stop for a while."""
    end = time.monotonic() + 2.0
    while time.monotonic() < end:
        with suppress(BaseException):
            _sleep(0.05)


# -- strays --------------------------------------------------------------------------------------------------


def _stray(scene: Scene, pause_s: float = 0.02, count: int = int(STRAY_S / 0.02)) -> None:
    """A thread of this trial that reports on, whichever trial runs."""
    said: set[str] = set()

    def later() -> None:
        for k in range(count):
            _sleep(pause_s)
            row = {"loss": -1e6, "acc": 9.0, "step": 1000 + k, "of": scene.number, "x": 0.0, "cost": 1.0}
            try:
                rs.report({**row, "odd": 1})
            except BaseException as error:  # noqa: BLE001  it is the thread's, which must continue
                if type(error).__name__ not in said:
                    said.add(type(error).__name__)
                    say(scene.plan, "refused", trial=scene.number, error=type(error).__name__)

    threading.Thread(target=later, daemon=True, name="storm-stray").start()


def _stray_and_raise(scene: Scene) -> None:
    _stray(scene)
    raise RuntimeError("leaves a thread behind")


def _stray_checkpoint(scene: Scene) -> None:
    """Saves in the background, and is not waited for."""

    def later() -> None:
        _sleep(0.25)
        with tempfile.TemporaryDirectory() as name, suppress(BaseException):
            content = {"trial": scene.number, "step": scene.step, "pad": "stray"}
            pathlib.Path(name, "stray.json").write_text(json.dumps(content))
            rs.report({**scene.row, "odd": 1}, checkpoint=name)

    threading.Thread(target=later, daemon=True, name="storm-stray").start()
    raise RuntimeError("leaves a thread behind that saves")


def _fork_reports(scene: Scene) -> None:
    pid = os.fork()
    if pid == 0:
        with suppress(BaseException):
            rs.report({**scene.row, "loss": -5e6, "odd": 1, "forked": 1})
        _leave(0)
    os.waitpid(pid, 0)


def _child(scene: Scene) -> None:
    subprocess.Popen(SLEEPER)


def _child_in_session(scene: Scene) -> None:
    subprocess.Popen(SLEEPER, start_new_session=True)


def _daemon(scene: Scene) -> None:
    """A grandchild without a parent, with a session of its own, and no environment."""
    subprocess.run(["setsid", "--fork", *SLEEPER], env={"PATH": os.defpath}, check=False)


def _forked_sleeper(scene: Scene) -> None:
    if os.fork() == 0:
        os.setsid()
        _sleep(3599.0)
        _leave(0)


# -- marks that it leaves on its process -------------------------------------------------------------------


def _chdir(scene: Scene) -> None:
    os.chdir(tempfile.mkdtemp(dir=os.path.dirname(scene.plan["log"])))


def _chdir_gone(scene: Scene) -> None:
    _chdir(scene)
    os.rmdir(os.getcwd())


def _environ(scene: Scene) -> None:
    os.environ["STORM_OF"] = str(scene.number)
    os.environ["HOME"] = "/nowhere"


def _environ_cleared(scene: Scene) -> None:
    os.environ.clear()


def _itimer(scene: Scene) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.6)


def _handlers(scene: Scene) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(each, signal.SIG_IGN)


def _interrupt_ignored(scene: Scene) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _logging(scene: Scene) -> None:
    logging.getLogger().addHandler(logging.NullHandler())


def _numpy(scene: Scene) -> None:
    import numpy as np

    np.seterr(all="ignore")


def _umask(scene: Scene) -> None:
    os.umask(0o777)


def _few_files(scene: Scene) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def _socket_timeout(scene: Scene) -> None:
    socket.setdefaulttimeout(0.001)


def _no_stdout(scene: Scene) -> None:
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def _closed_stdout(scene: Scene) -> None:
    sys.stdout.close()
    sys.stderr.close()
    os.close(1)


def _no_sleep(scene: Scene) -> None:
    time.sleep = lambda seconds: None


# -- reports -----------------------------------------------------------------------------------------------


def _with(**values: Any) -> Callable[[Scene], Row]:
    return lambda scene: {**scene.row, "odd": 1, **values}


def _numpy_values(scene: Scene) -> Row:
    import numpy as np

    return {name: np.float64(v) if name in ("loss", "acc") else v for name, v in scene.row.items()}


def _no_metric(scene: Scene) -> Row:
    return {"other": 1, "of": scene.number, "odd": 1}


def _many(scene: Scene) -> None:
    for _ in range(40):
        rs.report(scene.row)


def _threads_report(scene: Scene) -> None:
    threads = [threading.Thread(target=rs.report, args=(scene.row,)) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def _task_reports(scene: Scene) -> None:
    async def go() -> None:
        rs.report(scene.row)

    asyncio.run(go())


def _swallow(scene: Scene) -> None:
    for _ in range(5):
        with suppress(BaseException):
            rs.report(scene.row)


def _prints(scene: Scene) -> None:
    for _ in range(500):
        print("x" * 200)


def _other_keys(scene: Scene) -> None:
    rs.report({"loss": scene.row["loss"], "of": scene.number, "odd": 1})


# -- checkpoints -------------------------------------------------------------------------------------------


def _checkpoint_deleted(scene: Scene) -> None:
    with rs.new_checkpoint() as folder:
        shutil.rmtree(folder)
        with suppress(rs.RaysweepError, OSError, ValueError):
            rs.report(scene.row, checkpoint=folder)


def _checkpoint_missing(scene: Scene) -> None:
    with suppress(rs.RaysweepError, OSError, ValueError):
        rs.report(scene.row, checkpoint="/nonexistent/folder")


def _checkpoint_deleted_later(scene: Scene) -> None:
    """While it may still be uploaded."""
    name = tempfile.mkdtemp()
    pathlib.Path(name, "late.bin").write_bytes(os.urandom(2_000_000))
    rs.report(scene.row, checkpoint=name)
    shutil.rmtree(name, ignore_errors=True)


def _checkpoint_nested(scene: Scene) -> None:
    with tempfile.TemporaryDirectory() as name:
        deep = pathlib.Path(name, "a b", "ü")
        deep.mkdir(parents=True)
        (deep / "é").write_text("deep")
        pathlib.Path(name, "link").symlink_to("a b")
        with suppress(rs.RaysweepError, OSError, ValueError):
            rs.report(scene.row, checkpoint=name)


def _checkpoint_big(scene: Scene) -> None:
    with rs.new_checkpoint() as folder:
        (folder / "weights").write_bytes(os.urandom(4_000_000))
        rs.report(scene.row, checkpoint=folder)


ANYWHERE: Final[Mapping[str, Callable[[Scene], Row | None]]] = {
    "raises": _raise,
    "raises once": _raise_once,
    "raises a BaseException": _raise_base,
    "StopIteration": _raise_kind(StopIteration),
    "GeneratorExit": _raise_kind(GeneratorExit),
    "CancelledError": _raise_kind(asyncio.CancelledError),
    "recursion": _recursion,
    "sleeps through a stop": _sleep_through,
    "stray thread, then raises": _stray_and_raise,
    "stray checkpoint": _stray_checkpoint,
    "nan": _with(loss=float("nan")),
    "inf": _with(loss=float("inf")),
    "huge": _with(loss=1e308),
    "big integer": _with(loss=2**70),
    "text as metric": _with(loss="0.1"),
    "null as metric": _with(loss=None),
    "nested": _with(deep={"a": {"b": [1, {"c": None}]}}, text="ß"),
    "big report": _with(text="z" * 1_000_000),
    "numpy values": _numpy_values,
    "no metric": _no_metric,
    "many reports": _many,
    "threads report": _threads_report,
    "a task reports": _task_reports,
    "swallows": _swallow,
    "prints much": _prints,
    "other keys": _other_keys,
    "checkpoint deleted": _checkpoint_deleted,
    "checkpoint missing": _checkpoint_missing,
    "checkpoint deleted later": _checkpoint_deleted_later,
    "checkpoint nested": _checkpoint_nested,
    "checkpoint big": _checkpoint_big,
}
IN_A_WORKER: Final[Mapping[str, Callable[[Scene], Row | None]]] = {
    "SystemExit": _raise_kind(SystemExit),
    "KeyboardInterrupt": _raise_kind(KeyboardInterrupt),
    "os._exit(0)": lambda scene: os._exit(0),
    "os._exit(5)": lambda scene: os._exit(5),
    "SIGKILL": _signal_once(signal.SIGKILL),
    "segfault": _signal_once(signal.SIGSEGV),
    "SIGTERM": _signal_once(signal.SIGTERM),
    "SIGINT": _signal_once(signal.SIGINT),
    "hangs": _hang,
    "forked process reports": _fork_reports,
    "child": _child,
    "child in its own session": _child_in_session,
    "daemon": _daemon,
    "forked sleeper": _forked_sleeper,
    "chdir": _chdir,
    "chdir, deleted": _chdir_gone,
    "environ": _environ,
    "environ cleared": _environ_cleared,
    "itimer": _itimer,
    "signal handlers": _handlers,
    "interrupt ignored": _interrupt_ignored,
    "logging handler": _logging,
    "numpy errors": _numpy,
    "umask": _umask,
    "few files": _few_files,
    "socket timeout": _socket_timeout,
    "no stdout": _no_stdout,
    "closed stdout": _closed_stdout,
    "time.sleep replaced": _no_sleep,
}
