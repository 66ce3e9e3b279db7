"""The server beside a program: started before it, asked until it is ready, watched, and ended after it."""

from __future__ import annotations

import http.client
import selectors
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NoReturn
from urllib.parse import urlsplit

from raysweep.errors import ProgramFailedError, one_line
from raysweep.programs.claims import claimed_port
from raysweep.programs.failures import failure_of, name_of
from raysweep.programs.listeners import find_stranger, is_taken, local_addresses
from raysweep.programs.process import ProgramProcess
from raysweep.worker.host.memory import count_kernel_ooms

MARK: Final = "RAYSWEEP_SERVICE"
"""The variable by which the server's processes are found."""
READY: Final = "program.service.ready"
ASK_S: Final = 0.1
"""The seconds between two checks if it is ready."""
ANSWER_S: Final = 2.0
"""The longest wait for one answer."""
_PLAIN: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Its address is on this node, or near: no proxy is asked."""


class ServiceNotReady(ProgramFailedError):
    """The server did not become ready in time."""


class ServicePortTaken(ProgramFailedError):
    """Another server answers, or would, at the address of the service."""


class Endpoint:
    """The address of a service's readiness check: `http://…`, `https://…` or `tcp://…`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._host, self.port = "", 0
        with suppress(ValueError):  # that it is no address is said when it is asked
            parts = urlsplit(address)
            self.port = parts.port or (443 if parts.scheme == "https" else 80)
            self._host = parts.hostname or ""
        self._local = local_addresses(self._host) if self._host else set()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold its port; of another node's address nothing is known.

        Raises: ProgramFailedError. ServicePortTaken: Something listens already.
        """
        if not self._local:
            yield
            return
        with claimed_port(READY, self.port):
            if is_taken(self._host, self._local, self.port):
                self._refuse(find_stranger(self._local, self.port, ()) or "another program", "listens")
            yield

    def check_is_of(self, own: Collection[int]) -> None:
        """See that these processes answer there. Raises ServicePortTaken."""
        stranger = find_stranger(self._local, self.port, own) if self._local else ""
        if stranger:
            self._refuse(stranger, "and not the service, listens")

    def _refuse(self, other: str, does: str) -> NoReturn:
        text = (
            f"{READY}: {other} {does} on port {self.port}, and would be measured: write {{port}}, or end it"
        )
        raise ServicePortTaken(one_line(text), "", 0)


class Service:
    """The server of one attempt. Raises ProgramFailedError where it cannot be started."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        selector: selectors.BaseSelector,
    ) -> None:
        self._command = command
        self._ooms = count_kernel_ooms()
        self._process = ProgramProcess(
            command, cwd=cwd, environment=environment, mark=MARK, on_stdout=None, selector=selector
        )

    def await_ready(self, at: Endpoint, within_s: float, meanwhile: Callable[[], None]) -> None:
        """Ask until it says that it is ready; `meanwhile` is called again and again.

        Raises:
            ProgramFailedError: It has ended.
            ServicePortTaken: Another server answers.
            ServiceNotReady: The time is over.
        """
        deadline = time.monotonic() + within_s
        while True:
            why = _ask(at.address)
            self.check()  # another program may answer
            if not why:
                at.check_is_of(self._process.find())
                return
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                text = f"the service {name_of(self._command)} was not ready within {within_s:g} s"
                message = f"{text} (program.service.ready_timeout_s): {at.address}: {why}"
                raise ServiceNotReady(one_line(message), self._process.output, 0)
            meanwhile()
            self._process.await_end(min(ASK_S, left_s), meanwhile)

    def check(self) -> None:
        """Raises ProgramFailedError where it has ended."""
        if not self._process.has_ended:
            return
        code = self._process.kill()
        self._process.drain()
        found = failure_of(
            self._command,
            -9 if code is None else code,
            self._process.stderr,
            is_kernel_oom=count_kernel_ooms() > self._ooms,
            output=self._process.output,
        )
        raise ProgramFailedError(f"the service {found}", found.output, found.code, found.origin)

    def end(self, signal: str, grace_s: float) -> None:
        """End it: the signal, the time to act on it, and SIGKILL to all its processes."""
        self._process.signal(signal)
        self._process.await_end(grace_s, lambda: None)
        self._process.kill()
        self._process.drain()
        self._process.close()


def _ask(address: str) -> str:
    """The reason why the server is not ready; empty: it is."""
    parts = urlsplit(address)
    try:
        if parts.scheme == "tcp":
            with socket.create_connection((parts.hostname, parts.port), timeout=ANSWER_S):
                return ""
        with _PLAIN.open(address, timeout=ANSWER_S):  # 2xx, after redirections
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return f"status {error.code}"
    except urllib.error.URLError as error:
        return str(getattr(error.reason, "strerror", None) or error.reason)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(getattr(error, "strerror", None) or error) or type(error).__name__
