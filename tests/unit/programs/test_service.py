"""A server beside the program of a trial: waited for, watched, ended with it, and tuned like the program."""

from __future__ import annotations

import http.server
import ipaddress
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import ProgramFailedError, SpecError
from raysweep.programs.allowed import check_programs
from raysweep.programs.listeners import listeners, local_addresses
from raysweep.programs.plan import plan_of
from raysweep.programs.runner import Program
from raysweep.programs.service import Endpoint
from raysweep.specs import SweepSpec
from raysweep.specs.code_digest import code_digest_of
from raysweep.testing import run_trial
from raysweep.testing.trials import AttemptRun

EMIT = f"{sys.executable} -m raysweep.cli emit"
SERVER = """
import http.server, os, pathlib, subprocess, sys, time

port, folder, ready_after, dies_after = int(sys.argv[1]), *map(str, sys.argv[2:5])
began = time.monotonic()
pathlib.Path(folder, "server").write_text(f"{os.getpid()} {sys.argv[5:]} {os.environ.get('SIZE', '')}")
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
pathlib.Path(folder, "child").write_text(str(child.pid))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        is_ready = time.monotonic() - began >= float(ready_after)
        self.send_response(200 if is_ready else 503)
        self.end_headers()
        if float(dies_after) and time.monotonic() - began >= float(dies_after):
            print("torch.cuda.OutOfMemoryError: CUDA out of memory", file=sys.stderr, flush=True)
            os._exit(1)
    def log_message(self, *args):
        pass

http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
ASK = f"{sys.executable} -c 'import urllib.request as u, sys; u.urlopen(sys.argv[1])'"


def spec_of(
    folder: Path,
    command: list[str],
    *,
    ready_after: float = 0.3,
    dies_after: float = 0,
    ready: str = "http://127.0.0.1:{port}/health",
    rest: tuple[str, ...] = ("{size}",),
    space: dict[str, Any] | None = None,
    **service: Any,
) -> SweepSpec:
    script = folder / "server.py"
    script.write_text(SERVER)
    server = ["{python}", str(script), "{port}", str(folder), str(ready_after), str(dies_after), *rest]
    return SweepSpec(
        name="s",
        command=command,
        program={"service": {"command": server, "ready": ready} | service, "stop": {"grace_s": 0.5}},
        param_space=space or {"lr": 1, "size": {"choice": [4, 8]}},
        metric="loss",
        mode="min",
    )


def run(spec: SweepSpec, config: dict[str, Any] | None = None, **options: Any) -> AttemptRun:
    (attempt,) = run_trial(Program(plan_of(spec)), config or {"lr": 1, "size": 8}, **options)
    return attempt


def is_alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def left(folder: Path) -> list[int]:
    """Which of the server's processes are still there."""
    pids = [int((folder / name).read_text().split()[0]) for name in ("server", "child")]
    return [pid for pid in pids if is_alive(pid)]


def test_the_program_starts_when_the_server_is_ready_and_both_have_ended_afterwards(tmp_path: Path) -> None:
    ask = f"{ASK} http://127.0.0.1:$1/health && {EMIT} loss=$#"
    attempt = run(spec_of(tmp_path, ["bash", "-c", ask, "load", "{port}", "{args}"]))
    assert attempt.end == "returned", attempt.error
    assert [row["loss"] for row in attempt.reports] == [3], (
        "--lr 1: what the server is given is not in {args}"
    )
    assert "['8']" in (tmp_path / "server").read_text()
    assert not left(tmp_path)


def test_the_server_may_have_all_the_parameters(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        ["bash", "-c", f"{EMIT} loss=$#", "load"],
        rest=("{args}",),
        environment={"SIZE": "of-{size}"},
    )
    attempt = run(spec)
    assert [row["loss"] for row in attempt.reports] == [0]
    assert "['--lr', '1'] of-8" in (tmp_path / "server").read_text(), "size is named by a variable"


def test_a_server_that_never_becomes_ready_is_a_clear_failure(tmp_path: Path) -> None:
    attempt = run(spec_of(tmp_path, ["true"], ready_after=99, rest=("{args}",), ready_timeout_s=0.6))
    assert attempt.error is not None
    message = attempt.error["message"]
    assert "/server.py was not ready within 0.6 s (program.service.ready_timeout_s)" in message
    assert "/health: status 503" in message
    assert not left(tmp_path)


def test_a_server_that_ends_before_it_is_ready_says_why(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, ["true"], rest=("{args}",), dies_after=0.01, ready_after=99)
    attempt = run(spec)
    assert attempt.error is not None
    assert "/server.py ran out of GPU memory" in attempt.error["message"]
    assert attempt.error["origin"] == "gpu_memory"
    assert not left(tmp_path)


@pytest.mark.parametrize("fails", [False, True], ids=["waits", "fails"])
def test_a_server_that_ends_under_the_program_is_why_the_attempt_failed(tmp_path: Path, fails: bool) -> None:
    """Also where the program notices first."""
    ask = f"{EMIT} loss=1; sleep 0.3; {ASK} http://127.0.0.1:$1/"
    ask += "; exit 1" if fails else "; sleep 300"
    spec = spec_of(tmp_path, ["bash", "-c", ask, "load", "{port}"], rest=("{args}",), dies_after=0.6)
    began = time.monotonic()
    attempt = run(spec)
    assert attempt.error is not None
    assert attempt.error["origin"] == "gpu_memory"
    assert time.monotonic() - began < 60
    assert not left(tmp_path)


def test_a_trial_that_is_stopped_ends_its_server(tmp_path: Path) -> None:
    script = f"{EMIT} loss=1; {EMIT} loss=2; sleep 300"
    attempt = run(spec_of(tmp_path, ["bash", "-c", script], rest=("{args}",)), stop_at=2)
    assert attempt.end == "stopped"
    assert not left(tmp_path)


def test_a_server_may_be_known_by_its_port_alone(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path, ["bash", "-c", f"{EMIT} loss=1"], rest=("{args}",), ready="tcp://127.0.0.1:{port}"
    )
    assert run(spec).end == "returned"
    closed = spec_of(tmp_path, ["true"], rest=("{args}",), ready="tcp://127.0.0.1:1", ready_timeout_s=0.2)
    attempt = run(closed)
    assert attempt.error is not None
    assert "tcp://127.0.0.1:1: Connection refused" in attempt.error["message"]


class Stranger(http.server.BaseHTTPRequestHandler):
    """Another server, which says that all is well."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """It is silent."""


@contextmanager
def stranger(host: str, port: int = 0, **options: Any) -> Iterator[int]:
    """One that listens; its port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = http.server.HTTPServer((host, port), Stranger, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.create_server((host, port), family=family, **options)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.socket.getsockname()[1]
    finally:
        server.shutdown()
        server.server_close()


def fixed(command: list[str], ready: str, ready_timeout_s: float = 20) -> SweepSpec:
    service = {"command": command, "ready": ready, "ready_timeout_s": ready_timeout_s}
    return SweepSpec(
        name="s", command=["bash", "-c", f"{EMIT} loss=1", "x", "{args}"], program={"service": service},
        param_space={"port": {"randint": [1, 9]}}, metric="loss", mode="min",
    )  # fmt: skip


def refusal(attempt: AttemptRun) -> str:
    assert attempt.error is not None
    assert attempt.reports == ()
    assert attempt.error["type"] in ("ServicePortTaken", "ProgramFailedError")
    return str(attempt.error["message"])


@pytest.mark.parametrize("ready", ["tcp://{}:{{port}}", "http://{}:{{port}}/health"])
@pytest.mark.parametrize(
    ("host", "at"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("0.0.0.0", "localhost")]
)
def test_a_port_at_which_another_server_listens_is_refused_before_the_start(
    ready: str, host: str, at: str
) -> None:
    with stranger(host) as port:
        message = refusal(run(fixed(["sleep", "20"], ready.format(at)), {"port": port}))
    assert re.search(
        rf"^program\.service\.ready: .+ \(process {os.getpid()}\) listens on port {port}", message
    )
    assert message.endswith("and would be measured: write {port}, or end it")


@pytest.mark.parametrize("ready", ["tcp://127.0.0.1:{port}", "http://127.0.0.1:{port}/health"])
def test_a_server_that_takes_the_port_before_the_service_listens_is_told_apart(ready: str) -> None:
    with stranger("127.0.0.1") as port:
        pass
    with ExitStack() as stack:
        late = threading.Timer(0.4, lambda: stack.enter_context(stranger("127.0.0.1", port)))
        late.start()
        message = refusal(run(fixed(["sleep", "20"], ready), {"port": port}))
        late.join()
    assert f"(process {os.getpid()}) and not the service, listens on port {port}" in message


def test_a_server_that_shares_the_port_is_told_apart() -> None:
    """Both take connections (SO_REUSEPORT), or connections of IPv4 and of IPv6."""
    with stranger("0.0.0.0", reuse_port=True) as port:
        at = Endpoint(f"tcp://127.0.0.1:{port}")
        at.check_is_of([os.getpid()])
        code = (
            "import socket, sys; s = socket.create_server(('', int(sys.argv[1])), reuse_port=True); input()"
        )
        command = [sys.executable, "-c", code, str(port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
            while len(listeners([ipaddress.ip_address("127.0.0.1")], port)) < 2:
                time.sleep(0.01)
            with pytest.raises(ProgramFailedError, match=rf"\(process {other.pid}\) and not the service"):
                at.check_is_of([os.getpid()])
            other.communicate(b"\n")


def test_two_trials_on_a_node_do_not_have_one_port(tmp_path: Path) -> None:
    spec = spec_of(
        tmp_path,
        ["bash", "-c", f"{EMIT} loss=1", "x", "{port}"],
        ready="http://127.0.0.1:{port}/",
        rest=("{args}",),
    )
    with stranger("127.0.0.1") as port:
        pass
    with Endpoint(f"http://127.0.0.1:{port}").claimed():  # the other trial's server listens later
        message = refusal(run(fixed(["sleep", "20"], "tcp://localhost:{port}"), {"port": port}))
    assert message == (
        f"program.service.ready: the service of another trial on this node has port {port}: write {{port}},"
        " which is a free one"
    )
    assert run(spec).end == "returned"


@pytest.mark.parametrize("way", ["exec env {}", "setsid {} & wait", "(setsid env {} &) ; sleep 60"])
def test_a_server_is_known_however_it_was_started(tmp_path: Path, way: str) -> None:
    """Replaced by another program, in a session of its own, without its parent."""
    spec = spec_of(tmp_path, ["bash", "-c", f"{EMIT} loss=1", "x", "{args}"])
    server = " ".join(f'"${{{index}}}"' for index in range(1, 8))
    assert spec.program is not None
    assert spec.program.service is not None
    command = ["bash", "-c", way.format(server), "x", *spec.program.service.command]
    service = spec.program.service.model_dump() | {"command": command}
    changed = spec.replace(program={**spec.program.model_dump(), "service": service})
    attempt = run(changed)
    assert attempt.end == "returned", attempt.error


def test_an_address_of_another_node_is_only_asked() -> None:
    assert local_addresses("192.0.2.1") == set()
    assert ipaddress.ip_address("127.0.0.1") in local_addresses("localhost")
    with Endpoint("http://192.0.2.1:1/").claimed(), Endpoint("http://192.0.2.1:1/").claimed():
        pass
    spec = fixed(["sleep", "20"], "tcp://localhost:{port}", ready_timeout_s=0.1)
    attempt = run(spec, {"port": 0.5})
    assert attempt.error is not None
    assert "tcp://localhost:0.5: Port could not be cast" in attempt.error["message"]


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ({}, "program.service.command: is required"),
        ({"command": ["a"]}, "program.service.ready: is required"),
        ({"command": "a b", "ready": "tcp://x:1"}, "write [a, b]"),
        (
            {"command": ["a"], "ready": "localhost:80"},
            "'localhost:80' is not the address of a service; write",
        ),
        ({"command": ["a"], "ready": "tcp://localhost"}, "is not the address of a service"),
        ({"command": ["a", "{nope}"], "ready": "tcp://x:1"}, "service.command[1]: '{nope}' has the unknown"),
        ({"command": ["a"], "ready": "tcp://x:{nope}"}, "service.ready: 'tcp://x:{nope}' has the unknown"),
        ({"command": ["a", "{resume}"], "ready": "tcp://x:1"}, "service.command[1]: '{resume}' has {resume}"),
        ({"command": ["a"], "ready": "tcp://x:1", "ready_timeout_s": 0}, "ready_timeout_s"),
    ],
)
def test_a_bad_service_is_one_line(service: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        SweepSpec(
            name="s",
            command=["a"],
            program={"service": service},
            param_space={"lr": 1},
            metric="l",
            mode="min",
        )
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_gang_has_no_service() -> None:
    with pytest.raises(SpecError, match=r"program\.service: cannot be combined with scaling"):
        SweepSpec(
            name="s",
            command=["a"],
            program={"service": {"command": ["b"], "ready": "tcp://x:1"}},
            scaling={"num_workers": 2},
            param_space={"lr": 1},
            metric="l",
            mode="min",
        )


def test_the_servers_program_must_be_allowed_and_there_and_its_script_is_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path, ["bash", "-c", "true", "{args}"])
    monkeypatch.setenv("RAYSWEEP_PROGRAMS", "bash")
    with pytest.raises(SpecError, match=r"program\.service\.command: '{python}' is not among the programs"):
        check_programs(spec, is_local=True)
    attempt = run(spec)
    assert attempt.error is not None
    assert "'{python}' is not among the programs" in attempt.error["message"]
    monkeypatch.setenv("RAYSWEEP_PROGRAMS", "bash,{python}")
    check_programs(spec, is_local=True)
    before = code_digest_of(spec)
    (tmp_path / "server.py").write_text(SERVER + "\n# changed\n")
    assert before != code_digest_of(spec)
    assert os.path.exists(tmp_path / "server.py")
