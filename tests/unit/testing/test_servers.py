"""Local servers: found with all that they started, told when they end, ended whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.servers import LocalServers, LocalServersError

# A server with two children: one in a session of its own, one without a word of its parent's environment.
PARENT = """
    import os, subprocess, sys, time
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    away = subprocess.Popen(sleep, start_new_session=True)
    bare = subprocess.Popen(sleep, env={})
    print(os.getpid(), away.pid, bare.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[LocalServers]:
    servers = LocalServers(tmp_path)
    yield servers
    servers.kill()


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", textwrap.dedent(code)]


def family(servers: LocalServers, name: str = "parent") -> list[int]:
    servers.launch(name, python(PARENT))
    servers.wait_until(lambda: "\n" in servers.log(name), 20)
    return [int(word) for word in servers.log(name).split()]


def test_all_that_they_started_is_found_and_killed(servers: LocalServers) -> None:
    parent, away, bare = family(servers)
    other = servers.launch("other", python("import time; time.sleep(60)")).pid
    assert servers.processes() == sorted([parent, away, bare, other])
    # Of one server: its session.
    assert servers.processes("parent") == sorted([parent, bare])
    servers.kill("parent")
    assert servers.processes() == sorted([away, other])
    servers.kill()
    assert servers.processes() == []


def test_an_end_leaves_what_the_server_left(servers: LocalServers) -> None:
    parent, away, bare = family(servers)
    servers.end("parent")
    assert servers.processes() == sorted([away, bare])
    assert parent not in servers.processes("parent")
    servers.close()
    assert servers.processes() == []


def test_one_that_ignores_its_end_is_killed(servers: LocalServers) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    servers.launch("deaf", python(code))
    servers.wait_until(lambda: "up" in servers.log("deaf"), 20)
    began = time.monotonic()
    servers.end("deaf", timeout_s=0.3)
    assert time.monotonic() - began < 10
    assert servers.processes() == []


def test_nobody_elses_processes_are_found(servers: LocalServers, tmp_path: Path) -> None:
    others = LocalServers(tmp_path)
    try:
        pid = others.launch("other", python("import time; time.sleep(60)")).pid
        assert servers.processes() == []
        servers.kill()
        assert others.processes() == [pid]
    finally:
        others.kill()


def test_who_ends_while_it_is_waited_for_says_why(servers: LocalServers) -> None:
    servers.launch("broken", python("raise SystemExit('the port is taken')"))
    with pytest.raises(LocalServersError, match="the broken ended with 1: the port is taken"):
        servers.wait_until(lambda: False, 20)


def test_who_does_not_come_up_shows_the_logs(servers: LocalServers) -> None:
    servers.launch("slow", python("import time; print('migrating', flush=True); time.sleep(60)"))
    servers.wait_until(lambda: "migrating" in servers.log("slow"), 20)
    with pytest.raises(LocalServersError, match=r"not up after 0 s.*\n--- slow\nmigrating"):
        servers.wait_until(lambda: False, 0.3)


def test_a_command_that_fails_shows_what_it_said(servers: LocalServers) -> None:
    assert servers.output_of(python("print(1)"), timeout_s=20) == "1\n"
    with pytest.raises(LocalServersError, match="ended with 3: no such table"):
        servers.output_of(python("print('no such table'); raise SystemExit(3)"), timeout_s=20)


SERVING = """
    from pathlib import Path
    from devtools.servers import LocalServers, LocalServersError, serve_until_interrupted

    def start(stack, console):
        servers = LocalServers(Path("."))
        stack.callback(servers.close)
        servers.launch("one", ["sleep", "60"])
        if {fails}:
            raise LocalServersError("the one ended with 1")
        print(*servers.processes(), flush=True)

    serve_until_interrupted(start, "Ctrl-C ends it")
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_served_until_interrupted(how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SERVING.format(fails=False))]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        while "Ctrl-C" not in process.stdout.readline():
            pass
        process.send_signal(how)
        assert process.stdout.read().split()[-3:] == ["ending", "…", "ended"]
    assert process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_does_not_start_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SERVING.format(fails=True))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) == (1, "error: the one ended with 1")
