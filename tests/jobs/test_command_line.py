"""The commands against a real cluster, as a user or an orchestrator runs them: outputs and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cli import main
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from tests.engine.conftest import ROOT, wait_for
from tests.jobs.cluster import Cluster
from tests.jobs.head import Head

pytestmark = [pytest.mark.ray, pytest.mark.servers, pytest.mark.timeout(900)]
Lines = Callable[[], list[list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(
    head: Head, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Run a command in this process, with the head's token and address."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", head.token)

    def run(*arguments: Any, address: str | None = None) -> Ran:
        capsys.readouterr()
        code = main([*map(str, arguments), "--address", address or head.address])
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def write_spec(tmp_path: Path, make_spec: Callable[..., rs.SweepSpec]) -> Callable[..., Path]:
    def write(*args: Any, **fields: Any) -> Path:
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps(make_spec(*args, **fields).to_dict()))
        return path

    return write


@pytest.fixture
def start(head: Head) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A command in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "raysweep.cli", *map(str, arguments), "--address", head.address]
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=head.environment,
                text=True,
                stdout=pipe,
                stderr=pipe,
                # In the background of a shell Ctrl-C is ignored, and children inherit that.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )
        )
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_sweep_is_left_with_ctrl_c_followed_and_cancelled(
    cluster: Cluster,
    cli: Callable[..., Ran],
    start: Callable[..., subprocess.Popen[str]],
    write_spec: Callable[..., Path],
    folder_of: Callable[..., SweepFolder],
    make_spec: Callable[..., rs.SweepSpec],
    lines: Lines,
) -> None:
    folder = folder_of(make_spec("forever"))
    following = start("sweep", write_spec("forever", num_samples=4), "--key", "k", "--json")
    wait_for(lambda: len(lines()) >= 2, 90)
    following.send_signal(signal.SIGINT)
    out, err = following.communicate(timeout=240)
    told = json.loads(out)["error"]
    assert (following.returncode, told["code"], told["exit_code"]) == (3, "detached", 3)
    assert told["next"].startswith("raysweep attach ")
    last = err.strip().splitlines()[-1]
    assert last.startswith(f"detached: {folder.sweep_id} keeps running; follow it with: raysweep attach ")
    assert f"end it with: raysweep cancel {folder.sweep_id} --address {cluster.head.address}" in last
    # It does continue.
    count = len(lines())
    assert folder.read_outcome() is None
    assert cluster.drivers()
    ran = cli("logs", folder.sweep_id)
    assert (ran.code, f"sweep {folder.sweep_id}: stored at" in ran.out) == (0, True)
    attached = start("attach", folder.sweep_id, "--json")
    ran = cli("cancel", folder.sweep_id, "--reason", "enough of it", "--json")
    assert ran.code == 0
    said = json.loads(ran.out)
    assert (said["run_id"], said["was_running"]) == (folder.sweep_id, True)
    out, err = attached.communicate(timeout=240)
    assert attached.returncode == 3, err
    outcome = SweepOutcome.from_json(out)
    assert outcome.status == "cancelled"
    assert len(lines()) >= count
    cluster.wait_until_clean()
    # The controller may have seen the request before the stop reached the job.
    again = cli("cancel", folder.sweep_id)
    assert again.out.strip().endswith(
        ("was not running: its job is STOPPED", "was not running: its job is SUCCEEDED")
    )


@pytest.mark.slow
def test_a_training_step_runs_on_the_cluster(
    cluster: Cluster, cli: Callable[..., Ran], tmp_path: Path, storage: Path
) -> None:
    spec = {
        "name": "full",
        "trainable": "examples.quick:steps",
        "config": {"steps": 2, "start": 16.0},
        "scaling": {"num_workers": 1},
        "storage_path": str(storage),
    }
    path = tmp_path / "train.yaml"
    path.write_text(json.dumps(spec))
    ran = cli("train", path, "--key", "k", "--json")
    assert ran.code == 0, ran.err
    outcome = TrainOutcome.from_json(ran.out)
    assert (outcome.status, outcome.run_id) == ("completed", sweep_id("full", "train k"))
    assert outcome.model_uri is not None
    assert Path(outcome.model_uri).is_dir()
    again = cli("train", path, "--key", "k", "--json")
    assert (again.code, TrainOutcome.from_json(again.out)) == (0, outcome)
    cluster.wait_until_clean()


def states(out: str) -> dict[str, tuple[str, str]]:
    return {
        each["name"]: (each["status"], each["detail"] + each["fix"]) for each in json.loads(out)["checks"]
    }


@pytest.mark.slow
def test_the_doctor_finds_a_good_cluster_good_and_leaves_nothing(
    cluster: Cluster, cli: Callable[..., Ran], write_spec: Callable[..., Path], storage: Path
) -> None:
    ran = cli("doctor", write_spec("noop"))
    assert ran.code == 0, ran.out
    lines = [line.split()[:2] for line in ran.out.splitlines()]
    # Where these tests are run on a Python that keeps no bytecode, it says so, too.
    assert [first for first, _ in lines if first != "slow"] == ["ok"] * 9
    assert "room for 2 trials at once" in ran.out
    assert list(storage.rglob("*.json")) == []
    assert [job for job in cluster.ask(lambda client: client.jobs()) if "doctor" in job.job_id] == []


@pytest.mark.slow
def test_the_doctor_says_what_is_wrong_and_what_to_do(
    cli: Callable[..., Ran], write_spec: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "a-file").touch()
    spec = write_spec("tests.engine.not_there:train", resources={"cpu": 64})
    ran = cli("doctor", spec, "--storage", tmp_path / "a-file" / "sweeps", "--json")
    assert ran.code == 1
    found = states(ran.out)
    assert [name for name, (status, _) in found.items() if status == "ok"] == [
        "reachable",
        "token",
        "Ray",
        "raysweep on the cluster",
    ]
    for name, text in {
        "storage here": "a-file",
        "storage on the cluster": "that the cluster's nodes can write to",
        "trainable": "--working-dir",
        "resources": "64 CPU",
    }.items():
        assert found[name][0] == "failed"
        assert text in found[name][1]
    assert found["storage is shared"][0] == "skipped"


def test_the_doctor_tells_a_wrong_token_from_a_wrong_address(
    cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, write_spec: Callable[..., Path]
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "not-the-token-of-this-cluster")
    ran = cli("doctor", write_spec("noop"), "--json")
    assert ran.code == 1
    found = states(ran.out)
    assert (found["reachable"][0], found["token"][0]) == ("ok", "failed")
    assert found["resources"][0] == "skipped"
    assert "not-the-token" not in ran.out + ran.err
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    ran = cli("doctor", "--json", address="http://127.0.0.1:9")
    assert ran.code == 1
    assert states(ran.out)["reachable"][0] == "failed"


@pytest.mark.slow
def test_a_plan_counts_the_cluster_and_starts_nothing(
    cluster: Cluster, cli: Callable[..., Ran], write_spec: Callable[..., Path], storage: Path
) -> None:
    before = len(cluster.ask(lambda client: client.jobs()))
    ran = cli("plan", write_spec("noop", num_samples=7, resources={"cpu": 0.5}), "--key", "k", "--json")
    assert ran.code == 0, ran.err
    plan = json.loads(ran.out)
    assert (plan["trials"], plan["at_once"], plan["state"]) == (7, 4, "new")
    assert (plan["sweep_id"], plan["resources"]) == (sweep_id("t", "k"), [{"CPU": 0.5}])
    assert len(cluster.ask(lambda client: client.jobs())) == before
    assert not storage.exists()
    too_much = cli("plan", write_spec("noop", resources={"cpu": 64}))
    assert too_much.code == 2
    assert "64 CPU" in too_much.err
