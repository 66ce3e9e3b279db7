"""A sweep counts as started by the server only if the server's own process runs it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from raysweep.mcp_server import started
from raysweep.outcome import Holder


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that were started, in place of sweeps; each waits until it is ended."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(words: Sequence[str], **given: Any) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, **given))
        return begun[-1]

    monkeypatch.setattr(started, "process_of", begin)
    monkeypatch.setattr(started, "refused", lambda words: None)
    monkeypatch.setattr(started, "ELSEWHERE_S", 0.3)
    yield begun
    for each in begun:
        each.communicate(b"\n")


@pytest.mark.parametrize(("host", "pid", "is_own"), [("", 0, True), ("elsewhere", 0, False), ("", 1, False)])
def test_a_process_of_the_same_number_on_another_host_is_not_the_servers(
    processes: list[subprocess.Popen[bytes]], host: str, pid: int, is_own: bool
) -> None:
    def runs_it() -> Holder:
        where = host or socket.gethostname()
        return Holder(host=where, pid=processes[-1].pid + pid, process_started_at=1.0, boot_id="b", user="u")

    looks: Callable[[], Holder | None] = runs_it
    assert started.Started().start(["sweep"], looks).document == {"started": is_own}
