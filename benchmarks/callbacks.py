"""callbacks: trials that return one number, with all trackers on and with none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from benchmarks.measure import Json, compare, ratio, target
from benchmarks.noop import SPACE, TRAINABLE, WARM


def run(rounds: int, *, trials: int = 1000) -> Json:
    """The journal is read by another process: what it costs the trials is what is measured."""
    from benchmarks import contenders

    with _server() as url:
        callbacks = [
            "tensorboard",
            {"mlflow": {"tracking_uri": url}},
            {"webhook": {"url": url, "on": ["failed", "stalled", "deadline", "ended"]}},
            {"otel": {"endpoint": url}},
            "prometheus",
        ]
        without = contenders.raysweep(TRAINABLE, SPACE, trials)
        with_all = contenders.raysweep(TRAINABLE, SPACE, trials, callbacks=callbacks)
        shown, samples = compare([without, replace(with_all, name="with_callbacks")], rounds, "trial")
    figure = ratio(samples["with_callbacks"], samples["raysweep"], "warm")
    targets = [target("trials per second with all trackers, of those without", figure, at_least=0.95)]
    note = (
        f"{WARM} After the last trial's end the sweep waits for the trackers: that is in wall alone."
        " controller_cpu_ms: CPU time a trial of the process that runs the sweep, without the callbacks' own."
    )
    what = (
        f"{trials} trials that return one number; TensorBoard, a webhook, Prometheus through Ray, and MLflow"
        " and OpenTelemetry (a server that accepts)"
    )
    return {"what": what, "note": note, **shown, "targets": targets}


@contextmanager
def _server() -> Iterator[str]:
    """The address of a server in a process of its own: elsewhere it would take nothing of this machine."""
    command = [sys.executable, "-m", "benchmarks.callbacks"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


class _Accepts(BaseHTTPRequestHandler):
    """Answers as MLflow does, and keeps nothing."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """Head and body are two packets: without it each answer takes 40 ms."""

    def do_GET(self) -> None:
        self._answer({"experiment": {"experiment_id": "1"}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer({"run": {"info": {"run_id": "1"}}, "runs": []})

    def _answer(self, body: Json) -> None:
        data = orjson.dumps(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    os.nice(19)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _Accepts)
    print(listening.server_port, flush=True)
    listening.serve_forever()
