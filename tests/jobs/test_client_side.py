"""The client side on a real head with token authentication; in the whole, from an environment without Ray."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep import errors
from raysweep.jobs import (
    ClusterConnection,
    JobOptions,
    JobsClient,
    RunningJob,
    Submission,
    cancel,
    submit_or_attach,
    wait,
)
from raysweep.runs.folder import SweepFolder
from tests.engine.conftest import wait_for
from tests.environments import new_environment
from tests.jobs.cluster import Cluster
from tests.jobs.head import ROOT, Head, free_ports
from tests.jobs.wires import relayed
from tests.unit.jobs.api import make_certificate

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
MakeSpec = Callable[..., rs.SweepSpec]
SECRET = "a-password-of-the-trials-1f2e3d"


@pytest.mark.servers
def test_each_way_not_to_get_in_is_its_own_error(head: Head, tmp_path: Path) -> None:
    async def version(connection: ClusterConnection) -> str:
        async with JobsClient(connection) as client:
            return (await client.version()).ray

    def ask(**fields: Any) -> str:
        return asyncio.run(version(ClusterConnection(**{"trust_env": False, "tries": 1, **fields})))

    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    certificate = make_certificate(tmp_path)
    with relayed(head.address, certificate) as tls:
        assert ask(address=tls.address, token=head.token, ca_bundle=str(certificate)).startswith("2.60")
        with pytest.raises(errors.ClusterCertificateError):
            ask(address=tls.address, token=head.token)
    with pytest.raises(errors.TokenRefusedError):
        ask(address=head.address, token="another-token")
    with pytest.raises(errors.TokenMissingError):
        ask(address=head.address, token="")
    with pytest.raises(errors.ClusterUnreachableError):
        ask(address=nobody, token=head.token)


@pytest.mark.servers
def test_a_pending_job_of_another_spec_is_refused_and_once_cancelled_in_no_way(
    cluster: Cluster,
    connection: ClusterConnection,
    make_spec: MakeSpec,
    folder_of: Callable[..., SweepFolder],
) -> None:
    cluster.ask(lambda client: client.submit(Submission(job_id="holder", entrypoint="sleep 600", num_cpus=2)))
    one, two = (make_spec("noop", space={"y": {"uniform": [0, high]}}) for high in (1, 1000))
    first = asyncio.run(submit_or_attach(one, to=connection, key="k", options=JobOptions(driver_cpus=1)))
    assert cluster.info(first.job_id).status == "PENDING"
    assert asyncio.run(submit_or_attach(one, to=connection, key="k")).how == "attached"
    with pytest.raises(errors.SpecChangedError, match=r"param_space\.y differs; .*raysweep cancel"):
        asyncio.run(submit_or_attach(two, to=connection, key="k"))
    # Ray does not stop a job that waits for a node: its driver ends as soon as it starts.
    asyncio.run(cancel(first, to=connection))
    second = asyncio.run(submit_or_attach(two, to=connection, key="k"))
    wait_for(lambda: folder_of(two).read_spec() is not None, 60)
    cluster.ask(lambda client: client.stop("holder"))
    outcome = asyncio.run(wait(second, to=connection))
    assert (second.number, outcome.status) == (2, "completed")
    with pytest.raises(errors.SpecChangedError, match="differs"):
        asyncio.run(wait(first, to=connection))


@pytest.mark.slow
def test_fifty_calls_at_once_are_one_job_and_one_outcome(
    cluster: Cluster, connection: ClusterConnection, make_spec: MakeSpec
) -> None:
    spec = make_spec("noop", num_samples=2)

    async def fifty() -> tuple[list[RunningJob], list[Any]]:
        async with JobsClient(connection) as client:
            calls = (submit_or_attach(spec, to=client, key="fifty") for _ in range(50))
            jobs = await asyncio.gather(*calls)
            # One looks while it runs: fifty would mostly measure the dashboard.
            await wait(jobs[0], to=client)
            return jobs, await asyncio.gather(*(wait(job, to=client) for job in jobs))

    jobs, outcomes = asyncio.run(fifty())
    assert all(job == jobs[0] for job in jobs)
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert outcomes[0].status == "completed"
    assert sorted(job.how for job in jobs) == ["attached"] * 49 + ["submitted"]
    known = cluster.ask(lambda client: client.jobs())
    assert [job.job_id for job in known if job.job_id.startswith(jobs[0].run_id)] == [jobs[0].job_id]


BLOCKED = """
import logging, sys

class NoRay:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ray":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoRay())
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
import os
import raysweep as rs
from raysweep.jobs import JobOptions
options = JobOptions(working_dir=sys.argv[3], env_vars={"PASSWORD": os.environ["GIVEN"]})
print(repr(options), file=sys.stderr)
outcome = rs.run_sweep(sys.argv[1], key="k", address=sys.argv[2], job=options)
assert "ray" not in sys.modules
print(outcome.to_json())
"""


@pytest.mark.servers
def test_run_sweep_at_an_address_brings_its_code_and_shows_no_secret(
    head: Head, cluster: Cluster, make_spec: MakeSpec, tmp_path: Path, storage: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    # What a trial sees of the secret is told by its length: the value itself is what must not turn up.
    source = """
        import os

        def train(config):
            hidden = [name for name in (".env", "key.pem", "outside") if os.path.exists(name)]
            return {"loss": len(os.environ["PASSWORD"]), "hidden": hidden, "data": open("data.txt").read()}
    """
    (code / "of_the_user.py").write_text(textwrap.dedent(source))
    (code / "data.txt").write_text("read by the trial")
    (code / ".env").write_text(f"PASSWORD={SECRET}")
    (code / "key.pem").write_text(SECRET)
    (tmp_path / "outside").write_text(SECRET)
    (code / "outside").symlink_to("../outside")
    spec = make_spec("of_the_user:train", num_samples=2)
    (tmp_path / "spec.json").write_text(spec.to_json())
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(tmp_path / "spec.json"), head.address, str(code)],
        env=os.environ | {"RAY_AUTH_TOKEN": head.token, "GIVEN": SECRET, "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome = rs.SweepOutcome.from_json(done.stdout)
    assert [trial.metrics["loss"] for trial in outcome.trials] == [len(SECRET)] * 2
    assert outcome.trials[0].metrics["hidden"] == []
    assert outcome.trials[0].metrics["data"] == "read by the trial"
    assert "key.pem (may hold secrets)" in done.stderr
    assert "outside (a link that leads out of the folder)" in done.stderr
    assert "DEBUG:httpcore" in done.stderr
    job = f"{outcome.sweep_id}.1"
    stored = {str(path): path.read_bytes() for path in storage.rglob("*") if path.is_file()}
    assert any("journal" in path for path in stored)
    shown = [*stored.values(), done.stdout.encode(), done.stderr.encode(), cluster.logs(job).encode()]
    shown += [repr(cluster.info(job)).encode()]
    logs = head.folder / "session_latest/logs"
    of_ray = {path.name: path.read_bytes() for path in logs.rglob("*") if path.is_file()}
    assert any(job in name for name in of_ray), sorted(of_ray)
    shown += of_ray.values()
    for secret in (SECRET, head.token):
        assert not [text for text in shown if secret.encode() in text]


@pytest.mark.slow
def test_a_bad_spec_comes_back_as_the_error_that_it_is(head: Head, make_spec: MakeSpec) -> None:
    spec = make_spec("noop", num_samples=1, resources={"cpu": 64})
    connection = ClusterConnection(address=head.address, token=head.token, trust_env=False)
    with pytest.raises(errors.InfeasibleResourcesError, match="64 CPU") as caught:
        rs.run_sweep(spec, key="k", address=connection)
    assert not caught.value.retryable


@pytest.mark.slow
def test_fifty_megabytes_go_over_the_wire_once(
    head: Head, make_spec: MakeSpec, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    for number in range(5):
        (code / f"{number}.bin").write_bytes(os.urandom(10_000_000))
    (code / ".env").write_text(SECRET)
    options = JobOptions(working_dir=code)
    spec = make_spec("steps", {"steps": 400, "pause": 0.1}, num_samples=2)
    with relayed(head.address) as relay:
        connection = ClusterConnection(address=relay.address, token=head.token, trust_env=False)
        sent = []
        for key in ("one", "two"):
            job = asyncio.run(submit_or_attach(spec, to=connection, key=key, options=options))
            assert job.how == "submitted"
            assert job.left_out == (".env (may hold secrets)",)
            sent.append(relay.sent_bytes)
            # The same bytes at another place, touched.
            shutil.copytree(code, tmp_path / f"copy-{key}")
            options = JobOptions(working_dir=tmp_path / f"copy-{key}")
        record_property("sent_bytes", sent)

        async def stop() -> None:
            async with JobsClient(connection) as client:
                for info in await client.jobs():
                    if not info.is_ended:
                        await client.stop(info.job_id)

        asyncio.run(stop())
    assert sent[0] > 50_000_000
    assert sent[1] - sent[0] < 20_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_everything_from_an_environment_without_ray(
    head: Head, cluster: Cluster, tmp_path: Path, log: Path, storage: Path
) -> None:
    python = new_environment(tmp_path / "venv")
    certificate = make_certificate(tmp_path)
    with relayed(head.address, certificate) as tls:
        given = {
            "address": head.address,
            "token": head.token,
            "tls": tls.address,
            "authority": str(certificate),
            "nobody": f"http://127.0.0.1:{free_ports(1)[0]}",
            "log": str(log),
            "storage": str(storage),
        }
        done = subprocess.run(
            [python, ROOT / "tests/jobs/remote.py", json.dumps(given)],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ray"].startswith("2.60")
    assert found["errors"] == {
        "wrong token": "TokenRefusedError",
        "no token": "TokenMissingError",
        "wrong address": "ClusterUnreachableError",
        "self-signed": "ClusterCertificateError",
        "with its authority": "ok",
    }
    followed = found["followed"]
    assert (followed["status"], followed["trials"], followed["best"]) == ("completed", 4, True)
    assert followed["heartbeats"] >= 2
    assert followed["same"]
    assert len(followed["jobs"]) == 1
    assert followed["again_s"] < 10
    assert found["cancelled"]["asked"]
    assert (found["cancelled"]["status"], found["cancelled"]["again"]) == ("cancelled", "finished")
    assert found["resumed"] | {"tailed": True} == {
        "error": "ClusterLostError True",
        "number": 2,
        "status": "completed",
        "counts": {"completed": 2},
        "generation": 2,
        "tailed": True,
    }
    assert found["resumed"]["tailed"]
    # The second driver continued from the checkpoints of the first.
    assert "resumed" in log.read_text()
    cluster.wait_until_clean()
