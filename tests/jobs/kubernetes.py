"""As much of a Kubernetes API as the autoscaler of a RayCluster asks for, with an operator that makes pods.

It knows one RayCluster, the head's pod, and for each replica of a worker group a pod that never comes up:
what is tried is what the autoscaler asks for. Paths and forms are those of ray 2.60's `node_provider.py`.
"""

from __future__ import annotations

import copy
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMESPACE = "default"
HEAD_POD = "the-head"


class Kubernetes:
    """What it holds, and what was asked of it."""

    def __init__(self, cluster: dict[str, Any]) -> None:
        self.cluster = copy.deepcopy(cluster)
        self.cluster["metadata"] |= {"namespace": NAMESPACE, "resourceVersion": "1", "uid": "u"}
        self.patches: list[dict[str, Any]] = []
        self.port = 0
        self._lock = threading.Lock()

    def replicas(self, group: int = 0) -> int:
        """How many pods of a worker group are asked for."""
        with self._lock:
            return int(self.cluster["spec"]["workerGroupSpecs"][group]["replicas"])

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """The resource that is asked for, changed before by a JSON patch; None for one that is not there."""
        resource = path.partition("?")[0].partition(f"/namespaces/{NAMESPACE}/")[2]
        with self._lock:
            if resource == f"rayclusters/{self.cluster['metadata']['name']}":
                if method == "PATCH":
                    self._change(json.loads(body))
                return self.cluster
            if resource == f"pods/{HEAD_POD}":
                return self._pod(HEAD_POD, "head", "headgroup", is_running=True)
            listed = {"metadata": {"resourceVersion": "1"}, "items": self._pods()}
            return listed if resource == "pods" else None

    def _change(self, patch: list[dict[str, Any]]) -> None:
        for operation in patch:
            self.patches.append(operation)
            *parents, last = operation["path"].strip("/").split("/")
            at: Any = self.cluster
            for name in parents:
                at = at[int(name)] if isinstance(at, list) else at[name]
            at[last] = operation["value"]

    def _pods(self) -> list[dict[str, Any]]:
        pods = [self._pod(HEAD_POD, "head", "headgroup", is_running=True)]
        for group in self.cluster["spec"]["workerGroupSpecs"]:
            name = group["groupName"]
            pods += [self._pod(f"{name}-{n}", "worker", name) for n in range(group["replicas"])]
        return pods

    def _pod(self, name: str, kind: str, group: str, *, is_running: bool = False) -> dict[str, Any]:
        labels = {
            "ray.io/cluster": self.cluster["metadata"]["name"],
            "ray.io/node-type": kind,
            "ray.io/group": group,
        }
        running = {"containerStatuses": [{"state": {"running": {}}}], "podIP": "127.0.0.1"}
        return {
            "metadata": {"name": name, "labels": labels, "resourceVersion": "1"},
            "status": running if is_running else {},
        }


@contextmanager
def serving(cluster: dict[str, Any], certificate: Path) -> Iterator[Kubernetes]:
    """Serve it over TLS on the loopback."""
    kubernetes = Kubernetes(cluster)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            found = kubernetes.answer(self.command, self.path, self.rfile.read(size))
            data = json.dumps(found).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_PATCH = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    kubernetes.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield kubernetes
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
