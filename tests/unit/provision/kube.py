"""A Kubernetes API server of the loopback with RayJobs, and an operator that answers as KubeRay's would.

Paths, codes and texts are those of Kubernetes 1.31; what is created is validated by the operator's own
definition (`schema.py`). Deletes are `foreground`: the object stays, with a deletion timestamp, until
`finalize` or the next looks have seen it. The head's Jobs API is that of `tests/unit/jobs/api.py`, also
behind the proxy of services.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.unit.jobs.api import Api, _Server
from tests.unit.provision.schema import problems_of

Job = dict[str, Any]
Operator = Callable[[Job], None]
"""Called at each look at a RayJob; changes its status."""

NAMESPACE = "ml"


@dataclass
class Kube:
    """What the API server holds, and what was asked of it."""

    head: Api = field(default_factory=Api)
    tokens: set[str] = field(default_factory=set)
    """Accepted tokens; empty: anyone is let in."""
    jobs: dict[str, Job] = field(default_factory=dict)
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    trouble: Callable[[str, str], str | int | None] = lambda method, path: None
    """(method, path) -> "lose" (act, then close without an answer), "drop" (close at once), a status."""
    operator: Operator = lambda job: None
    calls: list[tuple[str, str]] = field(default_factory=list)
    deletes: list[dict[str, Any]] = field(default_factory=list)
    looks_until_gone: int = 1
    ahead_s: float = 0.0
    """How far the server's clock is ahead of this machine's."""
    has_kuberay: bool = True
    address: str = ""
    lock: threading.RLock = field(default_factory=threading.RLock)
    _uids: int = 0

    def count(self, method: str, part: str = "") -> int:
        return sum(1 for was, path in self.calls if was == method and part in path)

    @property
    def alive(self) -> list[str]:
        """The names of the RayJobs that are there and not being deleted."""
        return [name for name, job in self.jobs.items() if not job["metadata"].get("deletionTimestamp")]

    def finalize(self) -> None:
        """The garbage collector has removed all that is being deleted."""
        with self.lock:
            for name in [n for n, job in self.jobs.items() if job["metadata"].get("deletionTimestamp")]:
                del self.jobs[name]

    def put(self, job: Job, **status: Any) -> Job:
        """A RayJob that is there."""
        self._uids += 1
        made = copy.deepcopy(job)
        stamps = {"uid": f"uid-{self._uids}", "creationTimestamp": "2026-11-27T00:00:00Z"}
        made["metadata"] |= stamps | {"namespace": NAMESPACE}
        made["status"] = dict(status)
        self.jobs[made["metadata"]["name"]] = made
        return made

    # --- the API

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        split = urlsplit(target)
        parts = [unquote(each) for each in split.path.strip("/").split("/")]
        asked = {name: values[0] for name, values in parse_qs(split.query).items()}
        with self.lock:
            if parts[:2] == ["api", "v1"] and parts[2] == "namespaces" and parts[4] == "secrets":
                data = self.secrets.get(parts[5])
                found = {"data": data} if data is not None else None
                return (200, found) if found else (404, _missing("secrets", parts[5]))
            if parts[:3] != ["apis", "ray.io", "v1"] or not self.has_kuberay or parts[5] != "rayjobs":
                return 404, "404 page not found"
            if parts[4] != NAMESPACE:
                return 404, {**_status(404, f'namespaces "{parts[4]}" not found'), "reason": "NotFound"}
            if len(parts) == 6:
                return self._create(json.loads(body), asked) if method == "POST" else self._list(asked)
            return self._one(method, parts[6], body)

    def _create(self, job: Job, asked: dict[str, str]) -> tuple[int, Any]:
        name = job["metadata"]["name"]
        if name in self.jobs:
            return 409, {**_status(409, f'rayjobs.ray.io "{name}" already exists'), "reason": "AlreadyExists"}
        problems = problems_of(job) if asked.get("fieldValidation") == "Strict" else []
        if problems:
            code = 400 if "strict decoding" in problems[0] else 422
            return code, _status(code, f'RayJob.ray.io "{name}" is invalid: {"; ".join(problems)}')
        made = self.put(job)
        return 201, made

    def _list(self, asked: dict[str, str]) -> tuple[int, Any]:
        label, _, value = asked["labelSelector"].partition("=")
        items = [j for j in self.jobs.values() if j["metadata"].get("labels", {}).get(label) == value]
        start, size = int(asked.get("continue", 0)), int(asked["limit"])
        more = str(start + size) if start + size < len(items) else ""
        return 200, {"items": items[start : start + size], "metadata": {"continue": more}}

    def _one(self, method: str, name: str, body: bytes) -> tuple[int, Any]:
        job = self.jobs.get(name)
        if job is None:
            return 404, _missing("rayjobs", name)
        if method == "GET":
            self._look(name, job)
            return (200, job) if name in self.jobs else (404, _missing("rayjobs", name))
        if method == "PATCH":
            job["metadata"].setdefault("annotations", {}).update(json.loads(body)["metadata"]["annotations"])
            return 200, job
        options = json.loads(body)
        self.deletes.append({"name": name, **options})
        if options["preconditions"]["uid"] != job["metadata"]["uid"]:
            return 409, _status(409, "the UID in the precondition does not match")
        assert options["propagationPolicy"] == "Foreground"
        job["metadata"].setdefault("deletionTimestamp", "2026-11-27T00:00:00Z")
        return 200, job

    def _look(self, name: str, job: Job) -> None:
        if job["metadata"].get("deletionTimestamp"):
            job["looks"] = job.get("looks", 0) + 1
            if job["looks"] > self.looks_until_gone:
                del self.jobs[name]
            return
        self.operator(job)


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def _missing(plural: str, name: str) -> dict[str, Any]:
    status = _status(404, f'{plural} "{name}" not found')
    return {**status, "reason": "NotFound", "details": {"name": name, "kind": plural}}


def healthy(kube: Kube, *, looks: int = 2, service: str = "") -> Operator:
    """An operator that needs some looks to bring a cluster up; its head is the kube's.

    `service`: the head's service by name, which only the proxy reaches; default: its real address.
    """
    seen: dict[str, int] = {}

    def operate(job: Job) -> None:
        if job["status"].get("jobDeploymentStatus") in ("Complete", "Failed"):
            return
        uid = job["metadata"]["uid"]
        seen[uid] = seen.get(uid, 0) + 1
        cluster = {"desiredWorkerReplicas": 2, "availableWorkerReplicas": min(2, seen[uid] - 1)}
        if seen[uid] <= looks:
            job["status"] = {"jobDeploymentStatus": "Initializing", "rayClusterStatus": cluster}
            return
        job["status"] |= {
            "jobDeploymentStatus": "Running",
            "jobStatus": "RUNNING",
            "rayClusterName": f"{job['metadata']['name']}-abcde",
            "dashboardURL": service or kube.head.address.removeprefix("http://"),
        }

    return operate


def failing(reason: str, message: str) -> Operator:
    """An operator whose clusters come up once, and fail."""

    def operate(job: Job) -> None:
        if not job["status"]:
            job["status"] = {"jobDeploymentStatus": "Initializing"}
            return
        job["status"] = {"jobDeploymentStatus": "Failed", "reason": reason, "message": message}

    return operate


class _Handler(BaseHTTPRequestHandler):
    kube: Kube
    protocol_version = "HTTP/1.1"

    def do_any(self) -> None:
        kube, body = self.kube, self.rfile.read(int(self.headers.get("Content-Length", 0)))
        kube.calls.append((self.command, self.path))
        trouble = kube.trouble(self.command, self.path)
        if trouble == "drop":
            self.close_connection = True
            return
        sent = self.headers.get("Authorization", "").removeprefix("Bearer ")
        status: int
        found: Any
        if isinstance(trouble, int):
            status, found = trouble, _status(trouble, "as the test wants it")
        elif kube.tokens and sent not in kube.tokens:
            status, found = 401, _status(401, "Unauthorized")
        elif "/proxy/" in self.path:
            status, found = self._proxied(body)
        else:
            status, found = kube.answer(self.command, self.path, body)
        if trouble == "lose":
            self.close_connection = True
            return
        text = found if isinstance(found, bytes) else json.dumps(found).encode()
        if isinstance(found, str):
            text = found.encode()
        head = f"HTTP/1.1 {status} X\r\nDate: {formatdate(time.time() + kube.ahead_s, usegmt=True)}\r\n"
        self.wfile.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)

    def _proxied(self, body: bytes) -> tuple[int, bytes]:
        head = self.kube.head
        if head.token and self.headers.get("X-Ray-Authorization") != f"Bearer {head.token}":
            return 401, b"Unauthorized: Missing authentication token"
        path = self.path.partition("/proxy")[2]
        head.calls.append((self.command, path))
        return head.answer(self.command, path, body)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_any

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests look at `calls`."""


@contextmanager
def serving_kube(kube: Kube) -> Iterator[Kube]:
    """The API server on a port of the loopback."""
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"kube": kube}))
    kube.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield kube
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
