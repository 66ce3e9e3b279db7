"""Servers on this machine that are started, looked at and ended together, with all that they start.

For `make airflow`, `make prefect` and tests. Each server is a session of its own, and has a mark in its
environment. By these two its processes are found, and nobody else's: a process that began a session of its
own still has the mark, and one that wrote its title over its environment is still in the session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from rich.console import Console

MARK: Final = "RAYSWEEP_LOCAL_SERVERS"
END_S: Final = 20.0
_LOOK_S: Final = 0.2
_TAIL: Final = 2_000


class LocalServersError(RuntimeError):
    """A command failed, or a server did not start or did not end; says why."""


class LocalServers:
    """Processes with names; of one name there may be several.

    Args:
        home: Where they write, each to `<name>.log`.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._mark = os.urandom(8).hex()
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        # By the id of its first process, which is no other's while one of the session lives.
        self._sessions: dict[int, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        """For their processes, and for commands that are to use them."""
        return dict(os.environ)

    # --- beginning

    def launch(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a server; returns at once."""
        with open(self.home / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command,
                env=self.environment | {MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to who started this, which ends them in order.
                start_new_session=True,
            )
        self._running.append((name, process))
        self._sessions[process.pid] = name
        return process

    def wait_until(self, is_up: Callable[[], bool], timeout_s: float) -> None:
        """Wait for it. Raises: LocalServersError, with the logs' ends, where a server ended or time is up."""
        deadline = time.monotonic() + timeout_s
        while not is_up():
            for name, process in self._running:
                if process.poll() is not None:
                    raise LocalServersError(
                        f"the {name} ended with {process.returncode}: {self.log(name)[-_TAIL:]}"
                    )
            if time.monotonic() > deadline:
                names = dict.fromkeys(name for name, _ in self._running)
                logs = "\n".join(f"--- {name}\n{self.log(name)[-_TAIL:]}" for name in names)
                raise LocalServersError(
                    f"not up after {timeout_s:.0f} s; the logs in {self.home} end with\n{logs}"
                )
            time.sleep(_LOOK_S)

    def output_of(self, command: Sequence[str], *, timeout_s: float, **environment: str) -> str:
        """The output of a command that uses them. Raises: LocalServersError where it fails."""
        done = subprocess.run(
            command,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            said = (done.stdout + done.stderr)[-_TAIL:]
            raise LocalServersError(f"{' '.join(command)} ended with {done.returncode}: {said}")
        return done.stdout

    # --- looking

    def log(self, name: str) -> str:
        """The output of a server."""
        path = self.home / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def processes(self, name: str | None = None) -> list[int]:
        """The live processes of one server, by its session; or all that they ever started."""
        found = {
            pid
            for pid, session in _sessions()
            if session in self._sessions and name in (None, self._sessions[session])
        }
        if name is None:
            found.update(processes_with(MARK, self._mark))
        return sorted(found)

    # --- ending

    def end(self, name: str, how: signal.Signals = signal.SIGTERM, timeout_s: float = END_S) -> None:
        """End a server's first process as a deployment does, and wait for it; killed after `timeout_s`.

        What it leaves behind lives on.
        """
        for process in self._take(name):
            process.send_signal(how)
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self, name: str | None = None) -> None:
        """SIGKILL one server with all of its session; or everything."""
        deadline = time.monotonic() + END_S
        while pids := self.processes(name):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # Those that this process has started are zombies until they are waited for.
            for _, process in self._running:
                process.poll()
            if time.monotonic() > deadline:
                raise LocalServersError(f"still there after SIGKILL: {pids}")
            time.sleep(0.02)
        for process in self._take(name):
            process.wait()

    def close(self) -> None:
        """SIGTERM to each, the newest first; what is left of them then is killed."""
        for process in (running := [process for _, process in reversed(self._running)]):
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + END_S
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
        self.kill()

    def _take(self, name: str | None) -> list[subprocess.Popen[bytes]]:
        taken = [process for each, process in self._running if name in (None, each)]
        self._running = [each for each in self._running if name not in (None, each[0])]
        return taken


def serve_until_interrupted(start: Callable[[ExitStack, Console], None], last_words: str) -> None:
    """Serve with everything that `start` has put on the stack until Ctrl-C or SIGTERM; then end it.

    Args:
        start: Starts everything, and says where it is.
        last_words: Said once it has.

    Raises: SystemExit(1) where a server does not start, after one line that says why.
    """
    console = Console(highlight=False)
    # make, and shells in the background, may have them ignored.
    _on_signals(signal.default_int_handler)
    try:
        with ExitStack() as stack:
            try:
                start(stack, console)
                console.print(f"\n{last_words}", soft_wrap=True)
                threading.Event().wait()
            except KeyboardInterrupt:
                # Ending takes seconds: a second Ctrl-C must not leave half of it behind.
                _on_signals(signal.SIG_IGN)
                console.print("ending …")
                raise
    except LocalServersError as error:
        Console(stderr=True).print(f"[red]error:[/] {error}", soft_wrap=True, highlight=False)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        console.print("ended")


def processes_with(name: str, value: str) -> list[int]:
    """The live processes that have this environment variable."""
    needle = f"{name}={value}\0".encode()
    found = []
    for pid, _ in _sessions():
        with suppress(OSError):
            if needle in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def _sessions() -> list[tuple[int, int]]:
    """The live processes of this machine, each with its session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                found += [(int(entry.name), int(session))] if state not in "ZX" else []
    return found


def _on_signals(handler: Callable[..., object] | signal.Handlers) -> None:
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, handler)
