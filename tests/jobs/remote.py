"""A program that knows a cluster by its address only, and fails where Ray can be imported. Prints JSON.

Run by test_client_side.py, in an environment without Ray.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import raysweep as rs
from raysweep.errors import RaysweepError
from raysweep.jobs import Cluster, ClusterConnection
from raysweep.outcome import SweepProgress


def main() -> None:
    assert importlib.util.find_spec("ray") is None, "Ray is installed here"
    given = json.loads(sys.argv[1])
    cluster = Cluster(ClusterConnection(address=given["address"], token=given["token"], trust_env=False))
    found: dict[str, Any] = {"ray": cluster.version().ray}
    found["errors"] = errors(given)
    found["followed"] = followed(cluster, given)
    found["cancelled"] = cancelled(cluster, given)
    found["resumed"] = resumed(cluster, given)
    assert "ray" not in sys.modules
    print(json.dumps(found))


def spec(given: dict[str, Any], trainable: str, **fields: Any) -> rs.SweepSpec:
    space = {"log": given["log"], "x": {"uniform": [0, 1]}, **fields.pop("space", {})}
    return rs.SweepSpec(
        name="remote",
        trainable=f"tests.engine.trainables:{trainable}",
        param_space=space,
        metric="loss",
        mode="min",
        storage_path=given["storage"],
        **fields,
    )


def errors(given: dict[str, Any]) -> dict[str, str]:
    """Each way not to get in, and the error it ends with."""
    ways: dict[str, dict[str, Any]] = {
        "wrong token": {"address": given["address"], "token": "another-token"},
        "no token": {"address": given["address"], "token": ""},
        "wrong address": {"address": given["nobody"], "token": given["token"], "tries": 1},
        "self-signed": {"address": given["tls"], "token": given["token"]},
        "with its authority": {
            "address": given["tls"],
            "token": given["token"],
            "ca_bundle": given["authority"],
        },
    }
    found = {}
    for name, fields in ways.items():
        try:
            Cluster(ClusterConnection(**fields, trust_env=False)).version()
            found[name] = "ok"
        except RaysweepError as error:
            is_shown = given["token"] in str(error)
            found[name] = "shows the token" if is_shown else type(error).__name__
    return found


def followed(cluster: Cluster, given: dict[str, Any]) -> dict[str, Any]:
    """A whole sweep through `run_sweep`, then the same again."""
    seen: list[SweepProgress] = []
    wanted = spec(given, "steps", num_samples=4, space={"steps": 4, "pause": 0.5})
    outcome = rs.run_sweep(wanted, key="followed", address=cluster.connection, on_progress=seen.append)
    began = time.monotonic()
    again = rs.run_sweep(wanted, key="followed", address=cluster.connection)
    return {
        "status": outcome.status,
        "trials": len(outcome),
        "best": outcome.best is not None,
        "heartbeats": len(seen),
        "same": again == outcome,
        "again_s": time.monotonic() - began,
        "jobs": [job.job_id for job in cluster.jobs() if job.job_id.startswith(outcome.sweep_id)],
    }


def cancelled(cluster: Cluster, given: dict[str, Any]) -> dict[str, Any]:
    before = Path(given["log"]).read_text().count("\n")
    job = cluster.submit_or_attach(spec(given, "forever", num_samples=2), key="cancelled")
    wait_for_lines(given, before + 2)
    began = time.monotonic()
    asked = cluster.cancel(job, reason="changed my mind", by="the test")
    outcome = cluster.wait(job)
    again = cluster.submit_or_attach(spec(given, "forever", num_samples=2), key="cancelled")
    return {
        "asked": asked,
        "status": outcome.status,
        "took_s": time.monotonic() - began,
        "again": again.how,
    }


def resumed(cluster: Cluster, given: dict[str, Any]) -> dict[str, Any]:
    """The driver is killed in mid-sweep; the same call again continues."""
    wanted = spec(given, "steps", num_samples=2, space={"steps": 12, "pause": 0.4})
    before = Path(given["log"]).read_text().count("\n")
    job = cluster.submit_or_attach(wanted, key="resumed")
    wait_for_lines(given, before + 8)
    killing = threading.Thread(target=kill_driver, args=(job.run_id,))
    killing.start()
    try:
        cluster.wait(job)
        error = "none"
    except RaysweepError as raised:
        error = f"{type(raised).__name__} {raised.retryable}"
    killing.join()
    again = cluster.submit_or_attach(wanted, key="resumed")
    outcome = cluster.wait(again)
    log = "".join(cluster.tail(again.job_id, pause_s=0.2))
    return {
        "error": error,
        "number": again.number,
        "status": outcome.status,
        "counts": getattr(outcome, "counts", None),
        "generation": getattr(outcome, "generation", None),
        "tailed": outcome.run_id in log if hasattr(outcome, "run_id") else job.run_id in log,
    }


def kill_driver(run_id: str) -> None:
    """SIGKILL the driver of a job: on this machine, told by the id in its environment."""
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        is_driver = b"-m\0raysweep.jobs.driver" in line
        if is_driver and run_id.encode() in environment:
            os.kill(int(entry.name), signal.SIGKILL)


def wait_for_lines(given: dict[str, Any], count: int) -> None:
    deadline = time.monotonic() + 60
    while Path(given["log"]).read_text().count("\n") < count:
        assert time.monotonic() < deadline, "the trials do not begin"
        time.sleep(0.1)


if __name__ == "__main__":
    main()
