"""The dashboard's server beside clients that are slow, silent, many, or write HTTP in an odd way."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from raysweep.pages.dashboard import Access, connections, serving
from raysweep.storage.checkpoints.store import CheckpointStore
from tests.sampling import first_of
from tests.unit.pages.sweeps import store

TOKEN = "a-token-of-24-characters"
KNOWN = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of a dashboard with a token, of no runs."""
    with serving(str(tmp_path_factory.mktemp("none")), Access(token=TOKEN), 0) as (address, _):
        yield port_of(address)


def port_of(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def ask(port: int, text: str | bytes, *, quiet_s: float = 0.2) -> bytes:
    """All that a connection answers until it is closed, or silent for so long."""
    with connect(port) as client:
        client.sendall(text.encode() if isinstance(text, str) else text)
        return read_all(client, quiet_s)


def read_all(client: socket.socket, quiet_s: float) -> bytes:
    got = b""
    while True:
        client.settimeout(quiet_s if got else 10)
        try:
            piece = client.recv(65536)
        except (TimeoutError, ConnectionResetError):
            return got
        if not piece:
            return got
        got += piece


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def is_closed_within(client: socket.socket, seconds: float) -> bool:
    client.settimeout(seconds)
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


# --- odd HTTP


@pytest.mark.parametrize(
    "headers",
    [
        f"Authorization: Bearer {TOKEN}",
        f"authorization: Bearer {TOKEN}",
        f"AUTHORIZATION: bearer {TOKEN}",
        f"cookie: raysweep_dashboard={TOKEN}",
        f'COOKIE: a[b]=1; x={{"k": 1}}; raysweep_dashboard={TOKEN}',
        f'Cookie: tz=Europe/Berlin; prefs="a b; raysweep_dashboard={TOKEN}',
    ],
)
def test_the_token_is_found_whatever_the_case_of_headers(port: int, headers: str) -> None:
    assert (
        status(ask(port, f"GET /api/runs HTTP/1.1\r\nhost: x\r\n{headers}\r\nConnection: close\r\n\r\n"))
        == 200
    )


@pytest.mark.parametrize(
    "text",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + TOKEN.encode() + b"\r\n\r\n",
        b"GET /?token=%ff%fe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /?token=%ED%A0%80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET //[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_not_the_token_is_refused(port: int, text: bytes) -> None:
    assert status(ask(port, text)) == 401


@pytest.mark.parametrize("way", ["length", "chunked"])
def test_a_body_is_not_the_next_request(port: int, way: str) -> None:
    inner = f"GET /api/runs HTTP/1.1\r\n{KNOWN}\r\n"
    if way == "length":
        body, header = inner, f"Content-Length: {len(inner)}"
    else:
        body, header = f"{len(inner):x}\r\n{inner}\r\n0\r\n\r\n", "Transfer-Encoding: chunked"
    for method, path in (("GET", "/parts/page.css"), ("POST", "/api/runs")):
        got = ask(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n{header}\r\n\r\n{body}")
        assert got.count(b"HTTP/1.1 ") == 1
        assert status(got) == 401


def test_two_requests_on_one_connection_are_answered_in_order(port: int) -> None:
    first, second = (f"GET {path} HTTP/1.1\r\n{KNOWN}\r\n" for path in ("/parts/none.js", "/api/runs"))
    got = ask(port, first + second)
    assert [status(b"HTTP/1.1 " + each) for each in got.split(b"HTTP/1.1 ")[1:]] == [404, 200]


@pytest.mark.parametrize(
    "text",
    [
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        "nonsense\r\n\r\n",
    ],
)
def test_a_request_that_is_not_http_is_refused_and_its_connection_closed(port: int, text: str) -> None:
    with connect(port) as client:
        client.sendall(text.encode())
        assert status(read_all(client, 5)) == 400


@pytest.mark.parametrize("more", ["a" * 400_000, " HTTP/1.1\r\n" + "X: 1234567890\r\n" * 30_000])
def test_a_head_without_an_end_is_not_collected(port: int, more: str) -> None:
    with connect(port) as client:
        with suppress(ConnectionError):
            client.sendall(f"GET /{more}".encode())
        got = read_all(client, 5)
        assert not got or status(got) == 400


# --- slow and silent clients


@pytest.mark.parametrize(
    "said",
    [
        "",
        "GET /api/ru",
        "GET /api/runs HTTP/1.1\r\nHost: localhost\r\n",
        # A whole request whose body does not come, and the next one that does not come either.
        "GET /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n1",
        "GET /x HTTP/1.1\r\nHost: localhost\r\n\r\nGET /api/ru",
    ],
)
def test_a_client_that_leaves_a_request_unfinished_is_sent_away(
    said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that sends a letter now and then."""
    monkeypatch.setattr(connections, "IDLE_S", 0.4)
    with serving(str(tmp_path), Access(), 0) as (address, server), connect(port_of(address)) as client:
        client.sendall(said.encode())
        if said.startswith("GET /x"):
            assert status(client.recv(65536)) == 404
        began = time.monotonic()
        while not is_closed_within(client, 0.1):
            assert time.monotonic() - began < 5
            if said:
                client.sendall(b"a")
        assert time.monotonic() - began > 0.2
        assert not server.server_state.connections


def test_a_client_that_takes_nothing_is_sent_away_and_its_download_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    folder, outcome = store(tmp_path / "a", num_samples=2)
    files = tmp_path / "files"
    files.mkdir()
    (files / "weights.bin").write_bytes(bytes(40_000_000))
    ref = CheckpointStore(folder.store, folder.sweep_id).save("00001", 0, files)
    trials = (outcome.trials[0], outcome.trials[1].model_copy(update={"checkpoint_uri": ref.uri}))
    folder.store.delete(f"{folder.sweep_id}/outcome.json")
    folder.write_outcome_if_absent(outcome.model_copy(update={"trials": trials}))
    request = f"GET /run/{folder.sweep_id}/checkpoint.tar?trial=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(str(tmp_path / "a"), Access(), 0) as (address, server), connect(port_of(address)) as client:
        client.sendall(request.encode())
        assert client.recv(10, socket.MSG_WAITALL).startswith(b"HTTP/1.1 2")
        assert status(ask(port_of(address), request)) == 409  # one at a time
        until = time.monotonic() + 5
        while server.server_state.connections or server.server_state.tasks:
            assert time.monotonic() < until
            time.sleep(0.05)
        with connect(port_of(address)) as second:
            second.sendall(request.encode())
            assert second.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"


@pytest.mark.parametrize("count", first_of((300, 1000)))
def test_idle_connections_do_not_keep_the_owner_waiting(port: int, count: int) -> None:
    """The newest connection always finds room; those that have waited longest are closed."""
    request = f"GET /api/runs HTTP/1.1\r\n{KNOWN}Connection: close\r\n\r\n"
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(port)) for _ in range(count)]
        for each in idle[::2]:
            each.sendall(b"GET / HTTP/1.1\r\nHost: ")
        began = time.monotonic()
        assert status(ask(port, request)) == 200
        assert time.monotonic() - began < 1.0
        is_open = [not is_closed_within(each, 0.01) for each in idle[: count - connections.MAX_CONNECTIONS]]
        assert not any(is_open)
        assert not is_closed_within(idle[-1], 0.01)
