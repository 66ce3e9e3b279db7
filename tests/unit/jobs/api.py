"""A Jobs API of the loopback: Ray's paths, codes and texts, jobs that only ever have a status.

It stands in for a cluster where a test needs an answer to be lost, slow or wrong at a certain moment; what
real clusters answer is tried in tests/jobs. Texts are those of ray 2.60.
"""

from __future__ import annotations

import io
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Trouble = Callable[[str, str], str | int | None]
"""(method, path) -> "lose" (act, then close without an answer), "drop" (close at once), a status, or None."""


@dataclass
class Api:
    """What the API knows, and what happened to it."""

    token: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    trouble: Trouble = lambda method, path: None
    logs: dict[str, str] = field(default_factory=dict)
    submit_delay_s: float = 0.0
    address: str = ""
    ray_version: str = "2.60.0"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, method: str, part: str) -> int:
        return sum(1 for was, path in self.calls if was == method and part in path)

    def end(
        self, job_id: str, status: str, *, code: int | None = None, log: str = "", kind: str = ""
    ) -> None:
        self.jobs[job_id] |= {"status": status, "driver_exit_code": code, "error_type": kind}
        self.logs[job_id] = log

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/api/version":
            return 200, json.dumps(
                {"version": "4", "ray_version": self.ray_version, "session_name": "s"}
            ).encode()
        if path.startswith("/api/packages/gcs/"):
            return self._package(method, path.rpartition("/")[2], body)
        if path == "/api/jobs/" and method == "GET":
            return 200, json.dumps(list(self.jobs.values())).encode()
        if path == "/api/jobs/":
            return self._submit(json.loads(body))
        job_id, _, verb = path.removeprefix("/api/jobs/").partition("/")
        if job_id not in self.jobs:
            return 404, f"Job {job_id} does not exist".encode()
        if verb == "stop":
            was_running = self.jobs[job_id]["status"] in ("PENDING", "RUNNING")
            if was_running:
                self.jobs[job_id]["status"] = "STOPPED"
            return 200, json.dumps({"stopped": was_running}).encode()
        if verb == "logs":
            return 200, json.dumps({"logs": self.logs.get(job_id, "")}).encode()
        if method == "DELETE":
            del self.jobs[job_id]
            return 200, json.dumps({"deleted": True}).encode()
        return 200, json.dumps(self.jobs[job_id]).encode()

    def _package(self, method: str, name: str, body: bytes) -> tuple[int, bytes]:
        if method == "PUT":
            self.packages[name] = body
        elif name not in self.packages:
            return 404, f"Package gcs://{name} does not exist".encode()
        return 200, b""

    def _submit(self, given: dict[str, Any]) -> tuple[int, bytes]:
        time.sleep(self.submit_delay_s)
        job_id = given["submission_id"]
        with self.lock:
            if job_id in self.jobs:
                text = (
                    "Traceback (most recent call last):\n  File x\nRuntimeError: Request failed with status "
                )
                text += f"code 500: ValueError: Job with submission_id {job_id} already exists. Please.\n."
                return 500, text.encode()
            self.jobs[job_id] = {"status": "RUNNING", "message": "Job is currently running.", **given}
        return 200, json.dumps({"job_id": job_id, "submission_id": job_id}).encode()


class _Handler(BaseHTTPRequestHandler):
    api: Api
    protocol_version = "HTTP/1.1"

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.api.calls.append((self.command, self.path))
        trouble = self.api.trouble(self.command, self.path)
        if trouble == "drop":
            self.close_connection = True
            return
        sent = self.headers.get("Authorization", "")
        if isinstance(trouble, int):
            status, text = trouble, b"as the test wants it"
        elif self.api.token and not sent:
            status, text = 401, b"Unauthorized: Missing authentication token"
        elif self.api.token and sent != f"Bearer {self.api.token}":
            # Worse than Ray: it sends back what it was given.
            status, text = 403, f"Forbidden: Invalid authentication token {sent}".encode()
        else:
            status, text = self.api.answer(self.command, self.path, body)
        if trouble == "lose":
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        # One write: two would wait for the client's delayed acknowledgement between them.
        self.wfile, sink = io.BytesIO(), self.wfile
        self.end_headers()
        head, self.wfile = self.wfile.getvalue(), sink
        self.wfile.write(head + text)

    do_GET = do_POST = do_PUT = do_DELETE = do_any

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests look at `calls`."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that refuse the certificate, or go away, are what the tests are about."""


@contextmanager
def serving(
    api: Api, *, certificate: Path | None = None, client_authority: Path | None = None
) -> Iterator[Api]:
    """The API on a port of the loopback, with TLS where a PEM file with certificate and key is given."""
    handler = type("Handler", (_Handler,), {"api": api})
    server = _Server(("127.0.0.1", 0), handler)
    scheme = "http"
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        if client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(client_authority)
        # The handshake belongs into the thread of the connection.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https"
    api.address = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def make_certificate(folder: Path, name: str = "server") -> Path:
    """A self-signed certificate for 127.0.0.1 with its key, in one PEM file."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.crt"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path
