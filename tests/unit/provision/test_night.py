"""A cluster for a run, on an API server that validates by KubeRay's definition: one cluster, no orphan."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from raysweep.errors import (
    ClusterAuthError,
    ClusterLostError,
    ClusterRequestError,
    ClusterServerError,
    ClusterStartError,
    ClusterUnreachableError,
    JobFailedError,
    SpecError,
    SweepInterrupted,
)
from raysweep.provision import NightCluster, bring_up, find_leaked, tear_down
from raysweep.provision.lifetime import Night, up
from raysweep.provision.manifest import name_of
from raysweep.provision.night import connect
from tests.unit.provision.conftest import write_config
from tests.unit.provision.kube import Kube, failing, healthy
from tests.unit.provision.running import put

RUN = "flights-0123456789"
NAME = name_of(RUN)


def go_up(night: NightCluster, run_id: str = RUN) -> str:
    return asyncio.run(bring_up(night, run_id, tell=lambda line: None)).address


# --- created


def test_a_cluster_is_created_and_reached(kube: Kube, night: NightCluster) -> None:
    lines: list[str] = []
    connection = asyncio.run(bring_up(night, RUN, tell=lines.append))
    assert connection.address == kube.head.address
    assert kube.alive == [NAME]
    assert kube.count("POST") == 1
    assert lines[0] == f"rayjob ml/{NAME}: created"
    assert lines[-1] == f"rayjob ml/{NAME}: ready"
    assert f"rayjob ml/{NAME}: Initializing, 1 of 2 workers" in lines


def test_kubernetes_itself_ends_what_is_created(kube: Kube, night: NightCluster) -> None:
    """Without raysweep: the keeper ends an idle cluster, a deadline ends one that never starts."""
    go_up(night)
    spec = kube.jobs[NAME]["spec"]
    assert spec["entrypoint"] == "python -m raysweep.provision.keeper --idle-s 900"
    assert spec["shutdownAfterJobFinishes"] is True
    assert spec["activeDeadlineSeconds"] == 24 * 3600
    assert spec["ttlSecondsAfterFinished"] == 60
    assert "backoffLimit" not in spec


def test_ten_calls_at_once_create_one_cluster(kube: Kube, night: NightCluster) -> None:
    with ThreadPoolExecutor(10) as pool:
        addresses = set(pool.map(lambda _: go_up(night), range(10)))
    assert addresses == {kube.head.address}
    assert kube.alive == [NAME]
    assert {job["metadata"]["uid"] for job in kube.jobs.values()} == {"uid-1"}


def test_a_create_whose_answer_is_lost_creates_no_second(kube: Kube, night: NightCluster) -> None:
    lost: list[str] = []

    def trouble(method: str, path: str) -> str | None:
        if method == "POST" and not lost:
            lost.append(path)
            return "lose"
        return None

    kube.trouble = trouble
    go_up(night)
    assert kube.alive == [NAME]
    assert kube._uids == 1


def test_a_field_that_the_operator_does_not_know_is_refused_by_its_name(
    kube: Kube, night: NightCluster
) -> None:
    from pathlib import Path

    path = Path(night.manifest)
    path.write_text(path.read_text().replace('"rayStartParams"', '"rayStartParam"'))
    with pytest.raises(SpecError, match=r"rayStartParam") as caught:
        go_up(night)
    assert caught.value.field == "rayjob"
    assert kube.jobs == {}


# --- adopted


def test_a_try_after_a_killed_one_adopts_the_cluster(kube: Kube, night: NightCluster) -> None:
    uid = put(kube, night)
    lines: list[str] = []
    asyncio.run(bring_up(night, RUN, tell=lines.append))
    assert lines[0] == f"rayjob ml/{NAME}: adopted"
    assert kube.count("POST") == 0
    assert kube.jobs[NAME]["metadata"]["uid"] == uid


def test_one_that_an_earlier_try_left_ended_is_replaced(kube: Kube, night: NightCluster) -> None:
    old = put(kube, night, jobDeploymentStatus="Failed", reason="DeadlineExceeded")
    go_up(night)
    assert kube.alive == [NAME]
    assert kube.jobs[NAME]["metadata"]["uid"] != old


def test_one_that_is_being_deleted_is_waited_out(kube: Kube, night: NightCluster) -> None:
    old = put(kube, night)
    kube.jobs[NAME]["metadata"]["deletionTimestamp"] = "2026-11-27T00:00:00Z"
    kube.looks_until_gone = 3
    go_up(night)
    assert kube.jobs[NAME]["metadata"]["uid"] != old


def test_a_rayjob_of_someone_else_is_not_touched(kube: Kube, night: NightCluster) -> None:
    put(kube, night)
    del kube.jobs[NAME]["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    with pytest.raises(SpecError, match="raysweep did not create it"):
        go_up(night)
    assert asyncio.run(tear_down(night, RUN)) is False
    assert kube.deletes == []


def test_one_of_another_manifest_is_adopted_and_said(
    kube: Kube, night: NightCluster, caplog: pytest.LogCaptureFixture
) -> None:
    put(kube, night)
    kube.jobs[NAME]["metadata"]["annotations"]["raysweep/manifest"] = "other"
    go_up(night)
    assert "was brought up from another manifest" in caplog.text


# --- failed


def test_a_cluster_that_fails_is_deleted_and_says_why(kube: Kube, night: NightCluster) -> None:
    kube.operator = failing("DeadlineExceeded", "The RayJob has passed the activeDeadlineSeconds")
    with pytest.raises(ClusterStartError) as caught:
        go_up(night)
    text = str(caught.value)
    assert f"rayjob ml/{NAME}" in text
    assert "Failed, DeadlineExceeded: The RayJob has passed" in text
    assert "raise activeDeadlineSeconds" in text
    assert caught.value.retryable
    assert kube.alive == []


def test_an_image_without_raysweep_is_no_reason_to_try_again(kube: Kube, night: NightCluster) -> None:
    kube.operator = failing("AppFailed", "No module named raysweep")
    with pytest.raises(SpecError, match="No module named raysweep") as caught:
        go_up(night)
    assert not caught.value.retryable
    assert "must hold raysweep" in caught.value.fix
    assert kube.alive == []


def test_a_cluster_that_is_not_ready_in_time_is_deleted(kube: Kube, night: NightCluster) -> None:
    conditions = [{"type": "HeadPodReady", "status": "False", "message": "Insufficient nvidia.com/gpu"}]
    kube.operator = lambda job: job["status"].update(
        jobDeploymentStatus="Initializing", rayClusterStatus={"conditions": conditions}
    )
    with pytest.raises(ClusterStartError, match=r"Insufficient nvidia\.com/gpu"):
        go_up(night.replace(ready_s=1))
    assert kube.alive == []
    assert len(kube.deletes) == 1


# --- deleted


def test_it_is_deleted_after_the_run_with_all_that_belongs_to_it(kube: Kube, night: NightCluster) -> None:
    with up(Night(cluster=night), RUN) as connection:
        assert connection.address == kube.head.address
        assert kube.alive == [NAME]
    assert kube.alive == []
    (delete,) = kube.deletes
    assert delete["propagationPolicy"] == "Foreground"
    assert delete["preconditions"] == {"uid": "uid-1"}


@pytest.mark.parametrize(
    "error",
    [SweepInterrupted("s"), KeyboardInterrupt(), ClusterServerError("http://x", "503"), ZeroDivisionError()],
    ids=["interrupted", "ctrl-c", "retryable", "callback"],
)
def test_it_stays_where_the_run_may_continue(kube: Kube, night: NightCluster, error: BaseException) -> None:
    with pytest.raises(type(error)), up(Night(cluster=night), RUN):
        raise error
    assert kube.alive == [NAME]


def test_it_is_deleted_after_an_error_that_a_retry_would_repeat(kube: Kube, night: NightCluster) -> None:
    with pytest.raises(JobFailedError), up(Night(cluster=night), RUN):
        raise JobFailedError("j", "p")
    assert kube.alive == []


def test_it_stays_where_another_job_runs_on_it(kube: Kube, night: NightCluster) -> None:
    """As that of another caller with the same key, whose own options are right."""
    kube.head.jobs["a"] = {"submission_id": "a", "status": "RUNNING", "entrypoint": "python train.py"}
    with pytest.raises(SpecError), up(Night(cluster=night), RUN):
        raise SpecError("working_dir", "no folder")
    assert kube.alive == [NAME]


def test_an_outcome_is_not_lost_where_the_delete_fails(
    kube: Kube, night: NightCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with up(Night(cluster=night), RUN):
        kube.trouble = lambda method, path: 500
    assert "was not removed" in caplog.text
    assert "it ends 900 s after its last job" in caplog.text


def test_a_cluster_of_the_same_name_that_came_since_is_not_deleted(kube: Kube, night: NightCluster) -> None:
    go_up(night)
    kube.trouble = swap_before_delete(kube, night)
    assert asyncio.run(tear_down(night, RUN)) is False
    assert kube.alive == [NAME]


def swap_before_delete(kube: Kube, night: NightCluster) -> Callable[[str, str], None]:
    def trouble(method: str, path: str) -> None:
        if method == "DELETE":
            put(kube, night)

    return trouble


# --- lost


def lose(night: NightCluster, event: Callable[[], None]) -> None:
    """A run whose cluster stops to answer after an event."""
    with up(Night(cluster=night), RUN):
        event()
        raise ClusterUnreachableError("http://head", "does not answer")


def test_a_cluster_that_went_away_says_how_it_ended(kube: Kube, night: NightCluster) -> None:
    def deadline() -> None:
        kube.jobs[NAME]["status"] = {"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}

    with pytest.raises(ClusterLostError) as caught:
        lose(night, deadline)
    assert "ended: Failed, DeadlineExceeded" in str(caught.value)
    assert caught.value.retryable


def test_a_cluster_that_someone_deleted_is_said_to_be_gone(kube: Kube, night: NightCluster) -> None:
    with pytest.raises(ClusterLostError, match="is gone; run again"):
        lose(night, kube.jobs.clear)
    with pytest.raises(ClusterLostError, match="is gone"):
        asyncio.run(connect(night, RUN))


# --- leaked


def test_a_cluster_of_a_killed_driver_is_found_and_deleted_by_the_next_run(
    kube: Kube, night: NightCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed while the cluster came up: nothing renews its lease."""
    put(kube, night, "other-0123456789", at=time.time() - 901, jobDeploymentStatus="Initializing")
    go_up(night)
    assert kube.alive == [NAME]
    assert f"{name_of('other-0123456789')} was left over" in caplog.text


def test_what_is_not_left_over_stays(kube: Kube, night: NightCluster) -> None:
    """One that another run waits for, and one that a sweep runs on with no one to follow it."""
    put(kube, night, "waiting-1", at=time.time() - 800, jobDeploymentStatus="Initializing")
    running = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "dashboardURL": "head:8265"}
    put(kube, night, "detached-1", at=time.time() - 9999, **running)
    go_up(night)
    assert sorted(kube.alive) == sorted([NAME, name_of("waiting-1"), name_of("detached-1")])


def test_a_wait_renews_the_lease(kube: Kube, night: NightCluster) -> None:
    """By the server's clock, whatever this machine's says."""
    kube.ahead_s = 5000
    uid = put(kube, night, at=time.time() + 5000 - 600)
    go_up(night)
    assert kube.jobs[NAME]["metadata"]["uid"] == uid
    renewed = float(kube.jobs[NAME]["metadata"]["annotations"]["raysweep/renewed-at"])
    assert abs(renewed - time.time() - 5000) < 30


def test_leaked_clusters_are_listed_with_the_reason(kube: Kube, night: NightCluster) -> None:
    put(kube, night, "a-1", at=time.time() - 2000, jobDeploymentStatus="Complete")
    put(kube, night, "b-1", jobDeploymentStatus="Initializing")
    found = {each.run_id: (each.phase, each.why) for each in asyncio.run(find_leaked(night))}
    assert found == {"a-1": ("ended", "it has ended"), "b-1": ("coming", "")}


def test_long_lists_are_read_whole(kube: Kube, night: NightCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page; a list that is too old to be continued (410) is read anew."""
    monkeypatch.setattr("raysweep.provision.api.PAGE", 2)
    for number in range(5):
        put(kube, night, f"run-{number}")
    gone: list[str] = []

    def trouble(method: str, path: str) -> int | None:
        if "continue=4" in path and not gone:
            gone.append(path)
            return 410
        return None

    kube.trouble = trouble
    assert len(asyncio.run(find_leaked(night))) == 5
    assert gone


# --- trouble with the API server


def test_an_expired_token_is_one_clear_line(kube: Kube, night: NightCluster) -> None:
    kube.tokens = {"another"}
    with pytest.raises(ClusterAuthError) as caught:
        go_up(night)
    text = str(caught.value)
    assert "Kubernetes refused the token (401): it is wrong or expired; log in" in text
    assert "\n" not in text
    assert not caught.value.retryable


def test_a_forbidden_verb_names_the_role(kube: Kube, night: NightCluster) -> None:
    kube.trouble = lambda method, path: 403 if method == "POST" else None
    with pytest.raises(ClusterAuthError, match=r"create rayjobs in namespace 'ml' \(403\).*night-rbac"):
        go_up(night)


def test_a_server_without_kuberay_says_so(kube: Kube, night: NightCluster) -> None:
    kube.has_kuberay = False
    with pytest.raises(ClusterRequestError, match="install KubeRay"):
        go_up(night)


@pytest.mark.parametrize("trouble", [500, 503, 429, "drop"])
def test_trouble_that_passes_is_borne(kube: Kube, night: NightCluster, trouble: str | int) -> None:
    calls: list[str] = []

    def sometimes(method: str, path: str) -> str | int | None:
        calls.append(path)
        return trouble if len(calls) % 3 else None

    kube.trouble = sometimes
    go_up(night)
    assert kube.alive == [NAME]
    assert kube._uids == 1


def test_a_server_that_is_away_for_a_while_is_waited_for(
    kube: Kube, night: NightCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than the tries of one request."""
    until = time.monotonic() + 1.0
    kube.trouble = lambda method, path: 503 if time.monotonic() < until else None
    go_up(night)
    assert kube.alive == [NAME]


# --- how the head is reached


def test_the_head_is_reached_through_the_api_server(kube: Kube, night: NightCluster) -> None:
    """From outside: the API server's token in the usual header, Ray's in its own."""
    from pathlib import Path

    import yaml

    document = yaml.safe_load(Path(night.manifest).read_text())
    document["spec"]["authOptions"] = {"mode": "token"}
    Path(night.manifest).write_text(yaml.safe_dump(document))
    kube.tokens, kube.head.token = {"t"}, "of-ray"
    kube.secrets[f"{NAME}-abcde"] = {"auth_token": "b2YtcmF5"}
    kube.operator = healthy(kube, service="x-head-svc.ml.svc.cluster.local:8265")
    address = go_up(night.replace(reach="auto"))
    assert address == f"{kube.address}/api/v1/namespaces/ml/services/http:x-head-svc:8265/proxy"
    assert kube.head.count("GET", "/api/jobs/") == 1


def test_a_head_that_is_out_of_reach_names_the_proxy(
    kube: Kube, night: NightCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    kube.operator = healthy(kube, service="127.0.0.1:1")
    with pytest.raises(ClusterUnreachableError, match="give reach: proxy"):
        go_up(night)


def test_a_rotated_token_of_a_service_account_is_read_again(
    kube: Kube, night: NightCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from raysweep.provision import night as module
    from raysweep.provision.kubeconfig import KubeAccess, TokenSource

    file = tmp_path / "token"
    file.write_text("first")
    kube.tokens = {"first"}
    access = KubeAccess(server=kube.address, namespace="ml", is_pod=True, token=TokenSource(file=str(file)))
    monkeypatch.setattr(module, "find_access", lambda *_: access)
    go_up(night)
    kube.tokens = {"second"}
    file.write_text("second")
    assert asyncio.run(tear_down(night, RUN)) is True


def test_a_context_that_is_not_there_is_named(kube: Kube, night: NightCluster, tmp_path: Any) -> None:
    write_config(tmp_path / "kubeconfig", kube.address)
    with pytest.raises(SpecError, match=r"has no context 'prod'; it has here"):
        go_up(night.replace(context="prod"))
