"""Blocks, hooks and identity, as far as no server is needed for them."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import httpx
import pytest
from prefect import task
from prefect.context import TaskRunContext
from prefect.exceptions import TerminationSignal
from prefect.plugins import load_prefect_collections
from prefect.states import Cancelled, Crashed, exception_to_crashed_state
from pydantic import SecretStr, ValidationError

import raysweep as rs
import raysweep_prefect
from raysweep.errors import SpecError, TokenRefusedError
from raysweep.jobs.attach import RunningJob
from raysweep.jobs.connection import ClusterConnection
from raysweep.runs.reading.reader import SweepReader
from raysweep.specs import RunRequest
from raysweep.specs.continuing import Continue
from raysweep.step import Step
from raysweep_prefect import RayCluster, SweepJob, identity
from raysweep_prefect.clusters import find_target
from raysweep_prefect.flows import nightly_sweep, rollback_champion, sweep_many, train_best
from raysweep_prefect.following import Follower, is_ended_by_user
from raysweep_prefect.hooks import is_aborted, stop_sweeps, stop_sweeps_if_aborted
from raysweep_prefect.identity import Asker, _owner_of, default_key
from raysweep_prefect.records import _newest, noted_jobs
from raysweep_prefect.steps import _run
from raysweep_prefect.tasks import KEPT_TRIALS, is_retryable, small, sweep
from tests.unit.verify.stored import store_sweep

SPEC: dict[str, Any] = {
    "name": "s",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "metric": "loss",
    "mode": "min",
}
SECRET = "not-for-every-eye"


def cluster(**fields: Any) -> RayCluster:
    return RayCluster(address="http://head:8265", **{"token": SecretStr(SECRET), **fields})


@pytest.mark.parametrize("flow", [nightly_sweep, sweep_many, train_best, rollback_champion])
def test_the_types_of_a_flows_parameters_are_no_strings(flow: Any) -> None:
    """Prefect 3.4 does not resolve them: the flow would end before its first step."""
    assert [name for name, type_ in flow.fn.__annotations__.items() if isinstance(type_, str)] == []


# --- blocks


def test_prefect_finds_the_blocks_by_the_entry_point() -> None:
    found = load_prefect_collections()["raysweep"]
    assert not isinstance(found, Exception), found
    assert found.RayCluster is RayCluster
    assert {"RayCluster", "SweepJob"} <= set(dir(raysweep_prefect))


def test_a_cluster_shows_no_secret_and_makes_a_connection(tmp_path: Any) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    block = cluster(
        ca_bundle=str(bundle), headers={"x-gate": SECRET}, proxy=SecretStr(f"http://u:{SECRET}@p")
    )
    for shown in (repr(block), str(block), block.model_dump_json(), str(block.model_dump())):
        assert SECRET not in shown
    connection = block.get_connection()
    assert connection.token is not None
    assert connection.token.get_secret_value() == SECRET
    assert connection.headers["x-gate"].get_secret_value() == SECRET
    assert connection.ca_bundle == str(bundle)
    assert connection.verify
    assert SECRET not in repr(connection)


def test_a_job_with_a_bad_spec_is_refused_when_it_is_made() -> None:
    SweepJob(spec=SPEC, cluster=cluster())
    SweepJob(spec="flights.yaml", cluster=cluster())
    with pytest.raises(ValidationError, match="mode"):
        SweepJob(spec=SPEC | {"mode": "smallest"}, cluster=cluster())


# --- where a step runs


@pytest.mark.parametrize("given", [None, ""])
def test_nothing_is_an_embedded_ray(given: Any) -> None:
    target = find_target(given)
    assert (target.is_job, target.address) == (False, None)


@pytest.mark.parametrize("given", ["auto", "here", "local", "10.0.0.1:6379", "head:6379"])
def test_addresses_of_ray_are_for_this_process(given: str) -> None:
    target = find_target(given)
    assert (target.is_job, target.address) == (False, given)


@pytest.mark.parametrize(
    "given", ["http://head:8265", ClusterConnection(address="http://head:8265", token=SecretStr("t"))]
)
def test_addresses_of_the_jobs_api_are_jobs(given: Any) -> None:
    target = find_target(given)
    assert target.connection is not None
    assert (target.is_job, target.connection.address, target.block) == (True, "http://head:8265", "")


def test_a_block_is_a_job() -> None:
    assert find_target(cluster()).is_job


def test_a_token_that_was_changed_in_the_block_is_taken_up_without_a_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = ["of-the-evening"]
    monkeypatch.setattr("raysweep_prefect.clusters.load_cluster", lambda _: cluster(token=tokens[-1]))
    used: list[str] = []

    def run(step: Step, **_: Any) -> str:
        used.append(step.place.connection.token.get_secret_value())  # type: ignore[union-attr]
        if used[-1] != "of-the-morning":
            raise TokenRefusedError("http://head:8265", "does not accept the token", "give another")
        return "done"

    monkeypatch.setattr(Step, "run", run)
    step = Step(request=RunRequest.of(rs.SweepSpec(**SPEC), "k"), place=find_target("ray"))
    logger = logging.getLogger("tests")
    with pytest.raises(TokenRefusedError):
        _run(step, logger)
    tokens.append("of-the-morning")
    assert _run(step, logger) == "done"
    assert used == ["of-the-evening"] * 2 + ["of-the-morning"]
    # A block that was given as such is loaded again by its name.
    given = cluster(token="of-the-evening")
    given._block_document_name = "ray"
    assert find_target(given).renewed() == find_target("ray")


@pytest.mark.parametrize(("deployed", "owner"), [((), 0), ((0,), 0), ((1,), 1), ((0, 1), 1), ((2,), 2)])
def test_the_owner_is_the_nearest_run_of_a_deployment_or_the_root(
    deployed: tuple[int, ...], owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flow run 0 started 1, which started 2; each by a task of its own, whose id is that of its parent."""
    runs = [
        SimpleNamespace(
            id=n, deployment_id="d" if n in deployed else None, parent_task_run_id=n - 1 if n else None
        )
        for n in range(3)
    ]
    client = SimpleNamespace(
        read_task_run=lambda n: SimpleNamespace(flow_run_id=n), read_flow_run=lambda n: runs[n]
    )
    monkeypatch.setattr("raysweep_prefect.identity.get_client", lambda **_: nullcontext(client))
    assert _owner_of(cast(Any, runs[2])).id == owner


# --- hooks


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyboardInterrupt(), True),
        (SystemExit(1), True),
        (TerminationSignal(signal=15), False),
        (asyncio.CancelledError(), False),
        (httpx.ConnectError("gone"), False),
        (RuntimeError("lease of the concurrency limit"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_a_person_or_the_flow_itself_aborts(error: BaseException, expected: bool) -> None:
    async def state() -> Any:
        return await exception_to_crashed_state(error)

    assert is_aborted(asyncio.run(state())) is expected


@pytest.mark.slow
def test_an_orphan_goes_on_without_anybody_who_reads_its_log(tmp_path: Path) -> None:
    """Its worker was killed: Prefect's console handler would end it as if a person had aborted the flow."""
    program = """
import logging, sys, time
from prefect.logging.configuration import setup_logging
from raysweep_prefect.output import outlive_readers
setup_logging()
logger = logging.getLogger("prefect.engine")
if sys.argv[1:]:
    outlive_readers()
sys.stdin.readline()  # now the reader is gone
try:
    for _ in range(3):
        logger.warning("a line")
    print("another", flush=True)
except BaseException as error:
    from raysweep_prefect.output import is_broken_pipe
    open(sys.argv[-1] if sys.argv[1:] else "died", "w").write(f"{error!r} {is_broken_pipe(error)}")
else:
    open(sys.argv[-1], "w").write("lived")
"""
    for arguments, name, said in (([], "died", "SystemExit(1) True"), (["lived"], "lived", "lived")):
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for pipe in (process.stdout, process.stderr, process.stdin):
            assert pipe is not None
            pipe.close()
        process.wait(60)
        assert (tmp_path / name).read_text() == said


@pytest.mark.parametrize(
    "message",
    ["Flow run process exited with non-zero status code -9.", "Process exited with status code: 137", ""],
)
def test_a_lost_process_is_no_abortion(message: str) -> None:
    assert not is_aborted(Crashed(message=message))


def test_every_flow_has_the_hooks() -> None:
    for flow in (raysweep_prefect.nightly_sweep, raysweep_prefect.sweep_many, raysweep_prefect.train_best):
        assert flow.on_cancellation_hooks == [stop_sweeps]
        assert flow.on_crashed_hooks == [stop_sweeps_if_aborted]


def record(run_id: str, number: int) -> dict[str, Any]:
    job = RunningJob(
        address="http://head:8265",
        kind="sweep",
        run_id=run_id,
        key="k",
        storage_path="/s",
        job_id=f"{run_id}.{number}",
        number=number,
        how="submitted",
    )
    return {"job": job.to_dict(), "block": "ray"}


def test_of_each_run_the_newest_job_is_meant() -> None:
    found = _newest([record("a", 1), record("b", 1), record("a", 3), record("a", 2)])
    assert {noted.job.job_id for noted in found} == {"a.3", "b.1"}


class Notes:
    """The server's part: it gives no more than 200 inputs at once, and not those that are named."""

    def __init__(self, number: int) -> None:
        self.rows = {f"raysweep-job-1-{n}": record(f"s{n}", 1) for n in range(number)}
        self.asked = 0

    def filter_flow_run_input(
        self, *, flow_run_id: Any, key_prefix: str, limit: int, exclude_keys: set[str]
    ) -> list[Any]:
        self.asked += 1
        left = [key for key in self.rows if key.startswith(key_prefix) and key not in exclude_keys]
        return [SimpleNamespace(key=key, value=json.dumps(self.rows[key])) for key in left[: min(limit, 200)]]


@pytest.mark.parametrize("number", [0, 1, 200, 201, 650])
def test_all_jobs_of_a_flow_run_are_found(number: int) -> None:
    notes = Notes(number)
    found = noted_jobs(cast(Any, notes), uuid4(), 1)
    assert {noted.job.run_id for noted in found} == {f"s{n}" for n in range(number)}
    assert notes.asked == number // 200 + 1


@pytest.mark.parametrize(
    ("state", "attempt", "expected"),
    [
        ("CANCELLING", 2, True),
        ("CANCELLED", 2, True),
        ("FAILED", 2, True),
        ("COMPLETED", 2, True),
        ("CRASHED", 2, False),
        ("RUNNING", 2, False),
        ("CANCELLED", 1, False),
    ],
)
def test_who_waits_minds_only_an_end_of_its_own_attempt(state: str, attempt: int, expected: bool) -> None:
    from prefect.client.schemas.objects import FlowRun

    now = FlowRun.model_validate({"flow_id": "0" * 32, "run_count": 2, "state": {"type": state}})
    assert is_ended_by_user(now, attempt) is expected


# --- tasks


def test_outside_of_a_flow_there_is_no_key() -> None:
    assert default_key("sweep") is None


def test_a_step_without_a_key_is_named_by_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks of one flow are two sweeps; in a task of the user's own a step is named by its kind."""
    monkeypatch.setattr(identity, "owner_id", lambda: "owner")  # the server's part
    own: Any = task(lambda: None, name="mine")
    names = {
        sweep: "owner:sweep",
        sweep.with_options(name="east"): "owner:east",
        sweep.with_options(name="west", retries=0): "owner:west",
        own: "owner:sweep",
    }
    for each, expected in names.items():
        with TaskRunContext.model_construct(task=each):
            assert default_key("sweep") == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (rs.errors.ClusterLostError("http://head:8265", "is gone"), True),
        (rs.errors.StorageUnavailableError("s3://b", "does not answer"), True),
        (rs.SpecError("mode", "is wrong"), False),
        (rs.errors.JobStoppedError("s.1"), False),
        (RuntimeError("not ours"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_retried_is_what_may_pass(error: Exception, expected: bool) -> None:
    from prefect.states import Failed

    assert is_retryable(None, None, Failed(data=error)) is expected  # type: ignore[arg-type]


def test_what_is_wanted_of_a_sweep_that_is_there_reaches_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A patch, as what the step is given is all that the parameters do."""
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = stored.folder.read_outcome()
    steps: list[Step] = []

    def run_step(step: Step) -> Any:
        steps.append(step)
        return outcome

    monkeypatch.setattr("raysweep_prefect.tasks.run_step", run_step)
    document = stored.asked.spec.to_dict()
    sweep.fn(document, "k", resume_cancelled=True, retry="failed", extend={"top": 3, "max_t": 81})
    again = steps[-1].options.continuing
    assert (again.resume_cancelled, again.retry) == (True, "failed")
    assert again.extend is not None
    assert (again.extend.top, again.extend.max_t) == (3, 81.0)
    sweep.fn(document, "k")
    assert steps[-1].options.continuing == Continue()
    assert stored.folder.read_outcome() == outcome
    sweep.fn(document, "k", restart=True)
    assert stored.folder.read_outcome() is None
    assert stored.folder.store.list_folders(f"aside/{stored.folder.sweep_id}") == ("001",)


@pytest.mark.parametrize("wanted", [{"resume_cancelled": True}, {"retry": "failed"}, {"restart": True}])
def test_a_night_asks_its_sweep_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]
) -> None:
    """A patch, as what the sweep's task is given is all that the parameters do."""
    outcome = store_sweep(tmp_path, is_ended=True).folder.read_outcome()
    asked: list[dict[str, Any]] = []

    class Sweep:
        def with_options(self, **_: Any) -> Any:
            return lambda *_, **given: asked.append(given) or outcome

    monkeypatch.setattr("raysweep_prefect.flows.sweep", Sweep())
    nightly_sweep.fn(SPEC, key="k", cluster="auto", **wanted)
    usual = {"resume_cancelled": False, "retry": None, "restart": False}
    assert {name: asked[0][name] for name in usual} == usual | wanted


def test_a_result_keeps_the_best_trials_only() -> None:
    trials = tuple(
        rs.TrialOutcome(trial_id=f"{n:05d}", number=n, state="completed", score=float(n), config={"x": n})
        for n in range(1000)
    )
    whole = rs.SweepOutcome(
        sweep_id="s",
        name="s",
        status="completed",
        metric="loss",
        mode="min",
        best=trials[0],
        trials=trials,
        counts={"completed": 1000},
        started_at=0,
        ended_at=1,
    )
    kept = small(whole)
    assert [trial.number for trial in kept.trials] == list(range(KEPT_TRIALS))
    assert kept.counts == {"completed": 1000}
    assert len(kept.to_json()) < 16_384


def test_a_stop_that_failed_is_tried_again_and_one_that_did_not_is_not() -> None:
    """A person has ended the flow run; the task notices, and the storage is away at that moment."""
    stopped: list[str] = []

    def stop(reason: str) -> None:
        stopped.append(reason)
        if len(stopped) == 1:
            raise OSError("the storage is away")

    ended = SimpleNamespace(run_count=1, state=Cancelled(), state_name="Cancelled", name="owl")
    server: Any = SimpleNamespace(read_flow_run=lambda _: ended)
    asker = Asker(owner_id=uuid4(), attempt=1, flow_run_id=uuid4(), task_run_id=None)
    logger = logging.getLogger("tests")
    follower = Follower(asker, name="s", run_id="s-1", reader=None, uri="/s", logger=logger, stop=stop)
    with pytest.raises(OSError, match="away"):
        follower._look(server)
    follower._look(server)
    follower._look(server)
    assert stopped == ["flow run 'owl' was set to Cancelled"] * 2


def test_data_sets_that_would_be_one_sweep_are_refused_before_the_first_runs() -> None:
    """Of the names only ASCII letters and digits are in an id; all of a long one are."""
    for labels in (("east!", "east"), ("\u6771", "\u897f")):
        with pytest.raises(SpecError, match=r"^data_sets: spec: .* would have the same id"):
            sweep_many.fn({key: {} for key in labels}, spec=SPEC)


# --- what Prefect's pages show


def test_the_last_report_is_of_the_end_however_short_after_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader keeps a status for a second; a sweep that ends in that second is not interrupted."""
    # An event would start a server of Prefect's, and is not what this is about.
    monkeypatch.setattr("raysweep_prefect.following.emit", lambda *_, **__: None)
    whole = store_sweep(tmp_path / "a", is_ended=False)
    ended = (store_sweep(tmp_path / "b", is_ended=True).path / "outcome.json").read_bytes()
    run_id = whole.folder.sweep_id
    reader = SweepReader(whole.folder.store.url, run_id, fresh_s=3600.0)
    asker = Asker(owner_id=uuid4(), attempt=1, flow_run_id=uuid4(), task_run_id=None)
    logger = logging.getLogger("tests")
    follower = Follower(asker, name="s", run_id=run_id, reader=reader, uri="/s", logger=logger)
    shown: dict[str, str] = {}
    ids = {"report": uuid4()}

    def keep(artifact: Any) -> Any:
        shown[artifact.key.rpartition("-")[2]] = str(artifact.data)
        return SimpleNamespace(id=ids.setdefault(artifact.key.rpartition("-")[2], uuid4()))

    def change(artifact_id: UUID, artifact: Any) -> None:
        shown[next(kind for kind, known in ids.items() if known == artifact_id)] = str(artifact.data)

    client: Any = SimpleNamespace(create_artifact=keep, update_artifact=change)
    follower._show(client, is_last=False)
    assert "completed" not in shown["report"].partition("\n")[0]
    (whole.path / "outcome.json").write_bytes(ended)
    follower._show(client, is_last=True)
    assert shown["report"].partition("\n")[0].endswith(": completed")


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"spec": SPEC, "key": None}, "sweep s"),
        ({"spec": rs.SweepSpec(**SPEC), "key": None}, "sweep s"),
        ({"spec": "conf/flights.yaml", "key": None}, "sweep flights"),
        ({"spec": SPEC, "key": "2026-03-01"}, "sweep 2026-03-01"),
        ({"spec": SPEC}, "sweep s"),
    ],
)
def test_a_task_run_is_named_by_its_key_or_its_spec(
    parameters: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefect.runtime.task_run.parameters", parameters, raising=False)
    given: Any = sweep.task_run_name
    assert given() == name
