"""Servers on loopback that stand in for trackers, check what they get, and fail when they are told to."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson


class StandIn:
    """A server; where it `is_flaky`, half of the requests fail, half of those after they were carried out.

    Where it `is_away`, all fail.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.is_flaky = self.is_away = False
        self._luck = random.Random(0)
        self.headers: list[dict[str, str]] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                status, answer = outer.serve(self.path, body, dict(self.headers))
                data = orjson.dumps(answer)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def serve(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer a request."""
        with self._lock:
            self.requests += 1
            self.headers.append(headers)
            luck = self._luck.random() if self.is_flaky else 1.0
            if luck < 0.25 or self.is_away:
                return 503, {}
            parts = urlsplit(path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            answer = self.handle(parts.path, query, orjson.loads(body) if body else {})
            return (503, {}) if luck < 0.5 else answer

    def handle(self, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        """Carry a request out."""
        raise NotImplementedError

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve while this is open."""
        thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


class Receiver(StandIn):
    """Takes webhooks."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[Any] = []

    def handle(self, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        """Keep the message."""
        self.messages.append(body)
        return 200, {}


class MlflowServer(StandIn):
    """The part of MLflow's REST API that is used, with the limits of its documentation.

    As MLflow's SQL store does, it keeps one of several equal points of a metric, and refuses a parameter that
    has another value. A real server stands in this one's place in `make test-trackers`: mlflow cannot be
    installed beside Airflow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}

    def handle(self, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        """Answer as MLflow does."""
        prefix = "/api/2.0/mlflow/"
        assert path.startswith(prefix), path
        match path.removeprefix(prefix):
            case "experiments/get-by-name":
                found = self.experiments.get(query["experiment_name"])
                if found is None:
                    return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such experiment"}
                return 200, {"experiment": {"experiment_id": found}}
            case "experiments/create":
                if body["name"] in self.experiments:
                    return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": "exists"}
                self.experiments[body["name"]] = str(len(self.experiments) + 1)
                return 200, {"experiment_id": self.experiments[body["name"]]}
            case "runs/create":
                return self._create(body)
            case "runs/update":
                self.runs[body["run_id"]]["info"] |= {"status": body["status"], "end_time": body["end_time"]}
                return 200, {}
            case "runs/log-batch":
                return self._log(body)
            case "runs/search":
                return self._search(body)
        return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": path}

    def _create(self, body: Any) -> tuple[int, dict[str, Any]]:
        assert body["experiment_id"] in self.experiments.values()
        assert isinstance(body["start_time"], int)
        run_id = f"{len(self.runs) + 1:032x}"
        info = {"run_id": run_id, "run_name": body["run_name"], "status": "RUNNING"}
        tags = {tag["key"]: tag["value"] for tag in body["tags"]}
        self.runs[run_id] = {"info": info, "tags": tags, "params": {}, "metrics": set()}
        return 200, {"run": {"info": info}}

    def _log(self, body: Any) -> tuple[int, dict[str, Any]]:
        metrics, params, tags = body["metrics"], body["params"], body["tags"]
        if len(metrics) > 1000 or len(params) > 100 or len(tags) > 100 or len(orjson.dumps(body)) > 1_000_000:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "too much in one batch"}
        if len(metrics) + len(params) + len(tags) > 1000:
            return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": "more than 1000 entities"}
        run = self.runs[body["run_id"]]
        for each in params:
            if (
                len(each["value"]) > 6000
                or run["params"].setdefault(each["key"], each["value"]) != each["value"]
            ):
                return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": each["key"]}
        for each in tags:
            assert isinstance(each["value"], str)
            assert len(each["value"]) <= 5000
        run["tags"] |= {tag["key"]: tag["value"] for tag in tags}
        run["metrics"] |= {(m["key"], m["step"], m["timestamp"], m["value"]) for m in metrics}
        return 200, {}

    def _search(self, body: Any) -> tuple[int, dict[str, Any]]:
        assert 1 <= body["max_results"] <= 50000
        wanted = [part.partition(" = ") for part in body["filter"].split(" and ")]
        found = [
            run
            for run in self.runs.values()
            if all(run["tags"].get(name[6:-1]) == value.strip("'") for name, _, value in wanted)
        ]
        start = int(body.get("page_token", "0"))
        page = found[start : start + 20]
        tags = [
            {"info": run["info"], "data": {"tags": [{"key": k, "value": v} for k, v in run["tags"].items()]}}
            for run in page
        ]
        more = {"next_page_token": str(start + 20)} if start + 20 < len(found) else {}
        return 200, {"runs": tags} | more
