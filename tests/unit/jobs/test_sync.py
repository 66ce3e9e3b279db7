"""The calls without async: in scripts, in notebooks, with Ctrl-C, and where Ray cannot be imported."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from contextvars import ContextVar
from pathlib import Path

import pytest

import raysweep as rs
from raysweep.errors import ClusterUnreachableError, JobStoppedError
from raysweep.jobs import Cluster, ClusterConnection, JobOptions
from raysweep.jobs.sync import run_sync
from tests.unit.jobs.api import Api, serving

SPEC = {
    "name": "flights",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "auc",
    "mode": "max",
}
NO_RAY = """
import sys

class NoRay:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ray":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoRay())
"""


@pytest.fixture
def spec(tmp_path: Path) -> rs.SweepSpec:
    return rs.SweepSpec.from_any(SPEC | {"storage_path": str(tmp_path / "sweeps")})


def test_the_room_is_light_until_it_is_used() -> None:
    code = "import raysweep.jobs, raysweep.run\n"
    code += "print([name for name in ('httpx', 'ray', 'obstore') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", NO_RAY + code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_call_from_a_script_and_in_an_event_loop(spec: rs.SweepSpec) -> None:
    with serving(Api()) as api:
        cluster = Cluster(api.address)
        job = cluster.submit_or_attach(spec, key="k")
        assert cluster.version().ray == "2.60.0"
        assert [each.job_id for each in cluster.jobs()] == [job.job_id]
        api.logs[job.job_id] = "one\n"

        async def notebook() -> str:
            return cluster.submit_or_attach(spec, key="k").how + cluster.info(job.job_id).status

        assert asyncio.run(notebook()) == "attachedRUNNING"
        assert cluster.stop(job.job_id)
        assert list(cluster.tail(job.job_id)) == ["one\n"]
        with pytest.raises(JobStoppedError):
            cluster.wait(job)

        async def failing() -> None:
            cluster.wait(job)

        with pytest.raises(JobStoppedError):
            asyncio.run(failing())
        assert cluster.delete(job.job_id)


@pytest.mark.parametrize("where", ["script", "notebook"])
def test_ctrl_c_leaves_the_job_running(spec: rs.SweepSpec, where: str, tmp_path: Path) -> None:
    call = "rs.run_sweep(sys.argv[2], key='k', address=sys.argv[1])"
    path = tmp_path / "spec.json"
    path.write_text(spec.to_json())
    body = {
        "script": call,
        # As in a notebook's kernel: `asyncio.run` would take the first Ctrl-C for itself.
        "notebook": f"import asyncio\n    async def cell(): {call}\n"
        "    asyncio.new_event_loop().run_until_complete(cell())",
    }[where]
    code = f"""
import raysweep as rs
from raysweep.errors import SweepInterrupted
try:
    {body}
except SweepInterrupted as error:
    print(error)
"""
    with serving(Api()) as api:
        process = subprocess.Popen(
            [sys.executable, "-c", NO_RAY + code, api.address, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Where the tests run in the background of a shell, Ctrl-C is ignored, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        deadline = time.monotonic() + 30
        # It waits once it has asked how the job is.
        while not [path for _, path in list(api.calls) if path.endswith(".1")]:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert "keeps running as job" in out, err
        assert [job["status"] for job in api.jobs.values()] == ["RUNNING"]
        assert api.count("POST", "/stop") == 0


def test_what_only_makes_sense_here_or_there_is_refused(spec: rs.SweepSpec) -> None:
    with pytest.raises(rs.SpecError, match="num_cpus"):
        rs.run_sweep(spec, address="http://head:8265", num_cpus=2)
    with pytest.raises(rs.SpecError, match="job"):
        rs.run_sweep(spec, address="local", job=JobOptions())
    with pytest.raises(rs.SpecError, match="job"):
        rs.run_training({"trainable": "m:f"}, job=JobOptions())


def test_an_unreachable_cluster_is_told_without_ray(spec: rs.SweepSpec) -> None:
    connection = ClusterConnection(address="http://127.0.0.1:9", tries=1, trust_env=False)
    with pytest.raises(ClusterUnreachableError, match=r"127\.0\.0\.1:9"):
        rs.run_sweep(spec, key="k", address=connection)


def test_inside_an_event_loop_the_context_is_the_callers() -> None:
    """Prefect knows by it on whose behalf a job is announced."""
    asking = ContextVar("asking", default="nobody")

    async def look() -> str:
        return asking.get()

    async def main() -> str:
        asking.set("a flow run")
        return run_sync(look)

    assert asyncio.run(main()) == "a flow run"
