"""What object stores answer to a conditional put that meets another: `it exists` is not `try again`."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from raysweep.errors import FencedError, RaysweepError, StorageUnavailableError
from raysweep.storage.journal.objects import ObjectJournal
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.remote import RemoteStore

CONFLICT = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>ConditionalRequestConflict</Code><Message>The '
    b"conditional request cannot succeed due to a conflicting operation.</Message></Error>"
)
EMPTY = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as create-only puts need; moto knows no 409."""

    objects: ClassVar[dict[str, bytes]] = {}
    conflicts: ClassVar[list[bytes | None]] = []
    """For each of the next puts: the body that another request puts there first, or None: it fails."""

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.conflicts:
            other = self.conflicts.pop(0)
            if other is not None:
                self.objects[self.path] = other
            self._answer(409, CONFLICT)
        elif self.path in self.objects and self.headers["If-None-Match"] == "*":
            self._answer(412)
        else:
            self.objects[self.path] = data
            self._answer(200)

    def do_HEAD(self) -> None:
        self._answer(200 if self.path in self.objects else 404)

    def do_GET(self) -> None:
        if "list-type=2" in self.path:
            self._answer(200, EMPTY)
        elif self.path in self.objects:
            self._answer(200, self.objects[self.path])
        else:
            self._answer(404)

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        length = len(self.objects.get(self.path, b"")) if self.command == "HEAD" else len(body)
        self.send_header("Content-Length", str(length))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sun, 01 Jan 2023 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not on the console."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteStore]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    Bucket.objects.clear()
    Bucket.conflicts.clear()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    yield RemoteStore("s3://bucket/sweeps")
    server.shutdown()
    server.server_close()


def test_a_conflict_with_a_request_that_failed_is_worth_another_try(store: RemoteStore) -> None:
    Bucket.conflicts.append(None)
    with pytest.raises(StorageUnavailableError, match="another request was under way") as caught:
        store.put_if_absent("key", b"mine")
    assert caught.value.retryable
    assert store.put_if_absent("key", b"mine")
    assert store.get("key") == b"mine"


def test_a_conflict_with_a_request_that_won_means_that_it_exists(store: RemoteStore) -> None:
    Bucket.conflicts.append(b"theirs")
    assert not store.put_if_absent("key", b"mine")
    assert not store.put_if_absent("key", b"mine"), "412"
    assert store.get("key") == b"theirs"


def test_a_conflict_fences_no_writer(store: RemoteStore) -> None:
    """It did: a segment that could not be put was taken for another controller's."""
    errors: list[RaysweepError] = []
    Bucket.conflicts += [None, None]
    with JournalWriter(ObjectJournal(store, "s/journal"), 1, 1, errors.append, sweep_id="s") as writer:
        writer.write(b"1")
        writer.flush(20)
    assert errors == []
    assert [path for path in Bucket.objects if path.endswith("/s/journal/000000000001.jsonl")]
    Bucket.conflicts.append(b"another controller's")
    writer = JournalWriter(ObjectJournal(store, "s/journal"), 1, 2, errors.append, sweep_id="s")
    writer.write(b"2")
    with pytest.raises(FencedError):
        writer.flush(20)
