"""The progress page: who may see it, and what it says in each case."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from tests.airflow import pages  # first: it sees to AIRFLOW_HOME

# isort: split
from airflow.api_fastapi.core_api.security import get_user
from fastapi import HTTPException
from starlette.testclient import TestClient

from raysweep.errors import StorageUnavailableError
from raysweep.outcome import TrainOutcome
from raysweep.pages import live
from raysweep.pages.live import answer
from raysweep.runs.training import RunFolder
from raysweep.specs.identity import RunId, sweep_id
from raysweep.storage.objects.opening import open_store
from raysweep_airflow.page import app as room
from raysweep_airflow.page.place import Place
from raysweep_airflow.page.plugin import HREF, RaysweepPlugin
from raysweep_airflow.page.readers import Readers
from raysweep_airflow.page.task import TaskView
from tests.airflow.sites import PAGE, SWEEP_ID, URL, Night, place, site, task

REPORT = URL.replace("sweep.json", "report.html")
PARTS = (*live.SCRIPTS, "page.css", "airflow.js")


@pytest.fixture(scope="module")
def night() -> Night:
    return pages.night()


# --- what it says


def document_of(root: Path, state: str = "deferred") -> dict[str, Any]:
    """What the page draws, as JSON brings it."""
    data = json.loads(answer(room.view_of(task(state, place=place(root)), Readers())).body)
    assert data["view"] == "sweep"
    found: dict[str, Any] = data["document"]
    return found


def test_what_breaks_a_constraint_is_marked_and_is_no_best(tmp_path: Path) -> None:
    never, some = (pages.night(num_samples=12, constraints=[f"auc > {bound}"]) for bound in (9, 0.7))
    pages.store(tmp_path / "a", *never)
    data = document_of(tmp_path / "a")
    assert data["best"] is None
    assert data["certainty"][0].startswith("No trial satisfies auc > 9; the nearest is trial ")
    assert {tuple(trial["violated"]) for trial in data["top"]} == {("auc > 9",)}
    pages.store(tmp_path / "b", *some)
    data = document_of(tmp_path / "b")
    assert data["best"]["score"] > 0.7
    kept = [bool(trial["violated"]) for trial in data["top"]]
    assert kept == sorted(kept)
    assert set(kept) == {True, False}


def test_of_several_metrics_the_front_is_named(tmp_path: Path) -> None:
    fields = {"metric": ["auc", "loss"], "mode": ["max", "min"], "scheduler": "fifo", "search": "random"}
    spec, simulated = pages.night(num_samples=12, **fields)
    for part, root in ((1.0, tmp_path / "a"), (0.6, tmp_path / "b")):
        pages.store(root, spec, simulated, part=part)
        data = document_of(root)
        assert data["sweep"]["others"] == {"loss": "min"}
        assert data["pareto"][0] == data["best"]["number"]


def test_a_running_sweep(night: Night, tmp_path: Path) -> None:
    pages.store(tmp_path, *night, part=0.6)
    data = room.view_of(task(place=place(tmp_path)), Readers())
    assert (data["view"], data["job"]["id"]) == ("sweep", f"{SWEEP_ID}.1")
    assert 3.0 <= data["poll_s"] < 15.0, "more where reading it takes long"
    document = document_of(tmp_path)
    sweep = document["sweep"]
    assert (sweep["status"], sweep["is_running"]) == ("running", True)
    assert document["best"]["config"][0][0] == "learning_rate"
    assert ["net.kind", "wide"] in document["best"]["config"]
    assert json.loads(document["best"]["config_json"])["net"]["kind"] == "wide"
    assert len(document["running"]) == sweep["slots"] == 4
    assert {each["number"] for each in document["running"]} <= set(range(document["trials"]["count"]))
    assert sweep["uri"] == f"{tmp_path}/{SWEEP_ID}"


def test_a_sweep_that_ended_is_asked_for_no_more(night: Night, tmp_path: Path) -> None:
    pages.store(tmp_path, *night)
    readers = Readers()
    data = room.view_of(task("success", place=place(tmp_path)), readers)
    sweep = data["document"]["sweep"]
    assert (sweep["status"], sweep["has_ended"], data["poll_s"]) == ("completed", True, None)
    assert "Every trial has ended" in data["document"]["verdict"]
    # The task has not noticed yet: it may also be tried again.
    assert room.view_of(task("deferred", place=place(tmp_path)), readers)["poll_s"] == 15.0


def test_a_failed_task_shows_its_error(tmp_path: Path) -> None:
    def bad(config: dict[str, Any], iteration: int) -> dict[str, float]:
        raise ValueError("no such column")

    pages.store(tmp_path, *pages.night(curve=bad))
    data = document_of(tmp_path, "failed")
    assert data["sweep"]["status"] == "failed"
    assert data["error"]["line"] == "ValueError: no such column"
    assert data["failures"][0]["line"] == "ValueError: no such column"


def test_a_sweep_that_nobody_runs(night: Night, tmp_path: Path) -> None:
    pages.store(tmp_path, *night, part=0.5, is_held=False)
    sweep = document_of(tmp_path, "up_for_retry")["sweep"]
    assert (sweep["status"], sweep["is_running"]) == ("interrupted", False)


def test_a_journal_that_cannot_be_read_leaves_what_the_heartbeat_says(night: Night, tmp_path: Path) -> None:
    folder = pages.store(tmp_path, *night, part=0.6)
    whole = document_of(tmp_path)
    for path in (tmp_path / SWEEP_ID / "journal").iterdir():
        path.write_bytes(path.read_bytes().replace(b"TrialStarted", b"TrialStartet"))
    data = document_of(tmp_path)
    assert (data["sweep"]["status"], data["top"], data["trials"]["count"]) == ("running", [], 0)
    assert "the journal cannot be read" in data["sweep"]["notes"][-1]
    assert folder.read_progress() is not None
    for name in ("score", "config"):
        assert data["best"][name] == whole["best"][name]


def test_a_training(tmp_path: Path) -> None:
    folder = RunFolder(open_store(tmp_path), "full-1")
    view = place(tmp_path, kind="train", run_id="full-1")
    assert room.view_of(task(place=view), Readers())["title"] == "The training is starting"
    folder.write_outcome(
        TrainOutcome(
            run_id="full-1", name="full", status="completed", started_at=1.0, ended_at=61.0,
            metrics={"auc": 0.74, "bad": float("nan")}, config={"lr": 0.1}, model_uri="s3://b/model",
        )
    )  # fmt: skip
    data = room.view_of(task("success", place=view), Readers())
    shown = data["document"]
    assert (data["view"], shown["status"], data["poll_s"]) == ("train", "completed", None)
    assert shown["metrics"] == [["auc", "0.74"], ["bad", "nan"]]
    assert shown["model_uri"] == "s3://b/model"


@pytest.mark.parametrize(
    ("found", "title"),
    [
        (task("queued"), "Not started yet"),
        (task("", operator="BashOperator"), "Not started yet"),
        (task("running"), "The sweep is about to start"),
        (task("failed"), "No sweep was started"),
        (task("upstream_failed"), "No sweep was started"),
        (task("skipped", operator="TrainOperator"), "No sweep was started"),
        (task("running", operator="BashOperator"), "Not a sweep task"),
        (task("success", operator="@task"), "Not a sweep task"),
    ],
)
def test_without_a_sweep(found: TaskView, title: str) -> None:
    data = room.view_of(found, Readers())
    assert (data["view"], data["title"]) == ("message", title)
    assert (data["poll_s"] is None) == found.is_finished or title == "Not a sweep task"


def test_a_folder_that_the_api_server_does_not_see(tmp_path: Path) -> None:
    gone = place(tmp_path / "elsewhere")
    starting = room.view_of(task(place=gone), Readers())
    assert (starting["title"], starting["poll_s"]) == ("The sweep is starting", 5.0)
    ended = room.view_of(task("success", place=gone), Readers())
    assert ended["title"] == "The sweep cannot be found from here"
    assert "network file system" in ended["text"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_storage_that_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # An object store without credentials answers after minutes of retries; what it raises then is this.
    def refuse(place: Place, readers: Readers) -> None:
        raise StorageUnavailableError("s3://b/x", "access denied", "check the credentials")

    monkeypatch.setattr(room, "_read", lambda task, place, readers: refuse(place, readers))
    data = room.view_of(task(place=place(tmp_path)), Readers())
    assert data["title"] == "The storage cannot be read from the api-server"
    assert "access denied" in data["detail"]
    bad = room.view_of(task(place=place(tmp_path, storage_path="ftp://host/x")), Readers())
    assert bad["tone"] == "problem"


# --- where a sweep lies


KEPT = {
    "address": "http://ray:8265", "kind": "sweep", "run_id": sweep_id("s", "d/t/r"), "key": "d/t/r",
    "storage_path": "s3://b/x", "job_id": sweep_id("s", "d/t/r") + ".2", "number": 2, "how": "submitted",
    "left_out": [], "job_url": "http://j",
}  # fmt: skip


def test_the_place_is_what_the_operators_keep() -> None:
    found = Place.of_job(KEPT)
    assert found is not None
    assert (found.uri, found.job_url) == (f"s3://b/x/{KEPT['run_id']}", "http://j")
    assert (found.job_id, found.job_number) == (KEPT["job_id"], 2)
    trained = RunId(kind="train", name="r", key="k").id
    result = {
        "kind": "train",
        "run_id": trained,
        "uri": f"/data/{trained}",
        "key": "k",
        "status": "completed",
    }
    assert Place.of_result(result) == Place(kind="train", run_id=trained, storage_path="/data", key="k")
    for bad in (None, {"uri": "/data/r-1"}, {"kind": "sweep"}, {"kind": "sweep", "uri": "nothing"}):
        assert Place.of_result(bad) is None


@pytest.mark.parametrize(
    "bad",
    [
        None, 3, [], {}, KEPT | {"storage_path": ""}, KEPT | {"run_id": 7}, KEPT | {"key": ["x"]},
        KEPT | {"run_id": sweep_id("s", "another run")}, KEPT | {"key": "another run"},
        KEPT | {"kind": "train"},
        KEPT | {"run_id": "../" + str(KEPT["run_id"])}, KEPT | {"run_id": "a/b-" + str(KEPT["run_id"])[-10:]},
        KEPT | {"storage_path": "/sweeps/../etc"}, KEPT | {"storage_path": "etc"},
        KEPT | {"storage_path": "s3://b/../c"}, KEPT | {"storage_path": "/a\nb"},
        KEPT | {"job_id": "other-0123456789.2"}, KEPT | {"job_id": str(KEPT["run_id"]) + ".x"},
        KEPT | {"job_id": str(KEPT["job_id"]) + "/stop"},
    ],
)  # fmt: skip
def test_what_the_state_store_says_is_no_path_before_it_is_checked(bad: Any) -> None:
    """Airflow's API lets people edit it, and the api-server would read it with its own credentials."""
    assert Place.of_job(bad) is None


@pytest.mark.parametrize(
    ("text", "index"),
    [("{MAP_INDEX}", -1), ("-1", -1), ("0", 0), ("12", 12), ("1e3", -1), ("", -1), ("9" * 30, -1), ("²", -1)],
)
def test_map_index(text: str, index: int) -> None:
    assert room.parse_map_index(text) == index


def test_few_readers_are_kept(tmp_path: Path) -> None:
    now = [0.0]
    readers = Readers(max_readers=2, idle_s=100.0, clock=lambda: now[0])
    first = readers.of(place(tmp_path, run_id="a-1"))
    assert readers.of(place(tmp_path, run_id="a-1")) is first
    for name in ("b-1", "c-1", "d-1"):
        readers.of(place(tmp_path, run_id=name))
    assert len(readers) == 2
    assert readers.of(place(tmp_path, run_id="a-1")) is not first
    now[0] = 101.0
    readers.of(place(tmp_path, run_id="d-1"))
    assert len(readers) == 1


# --- the application


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    with TestClient(site(monkeypatch, lambda *ids: task("queued"))) as client:
        yield client


def test_everything_comes_with_a_strict_policy(client: TestClient) -> None:
    for path in (PAGE, URL, *(f"/raysweep/static/{name}" for name in PARTS)):
        found = client.get(path)
        assert found.status_code == 200, path
        policy = found.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert found.headers["cache-control"] == "no-store"
    assert client.get(URL).json()["shown"]["title"] == "Not started yet"


def test_what_the_page_has_is_not_sent_again(client: TestClient) -> None:
    version = client.get(URL).json()["version"]
    again = client.get(f"{URL}&known={version}")
    assert (again.status_code, again.content) == (204, b"")
    assert client.get(f"{URL}&known=other").status_code == 200


def test_the_report_is_made_when_it_is_asked_for(
    night: Night, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of a sweep that runs; without a sweep the page says why there is none."""
    pages.store(tmp_path / "a", *night, part=0.5)
    now = [task(place=place(tmp_path / "a"))]
    with TestClient(site(monkeypatch, lambda *ids: now[0])) as client:
        found = client.get(REPORT)
        assert found.status_code == 200
        assert f"{SWEEP_ID}.html" in found.headers["content-disposition"]
        assert "unsafe" not in found.headers["content-security-policy"]
        assert "script-src 'sha256-" in found.headers["content-security-policy"]
        assert json.loads(re.findall(r'id="data">(.*?)</script>', found.text)[0])["sweep"]["id"] == SWEEP_ID
        for shown, text in (
            (task("queued"), "no sweep to report on"),
            (task(place=place(tmp_path, kind="train", run_id="full-1")), "no sweep to report on"),
            (task(place=place(tmp_path / "elsewhere")), "Nothing of the sweep is stored"),
        ):
            now[0] = shown
            refused = client.get(REPORT, headers={"accept": "text/html"})
            assert refused.status_code == 409
            assert text in refused.text


@pytest.mark.parametrize(
    "path", ["docs", "redoc", "openapi.json", "", "static/page.html", "static/..%2fapp.py", "static/app.py"]
)
def test_nothing_else_is_there(client: TestClient, path: str) -> None:
    assert client.get(f"/raysweep/{path}").status_code == 404


def test_the_ids_arrive_as_airflow_writes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    app = site(monkeypatch, lambda *ids: seen.append(ids))
    run = "manual__2026-11-21T22:00:00+01:00"
    href = "/" + HREF.replace("{DAG_ID}", "n%20ä").replace(
        "{RUN_ID}", run.replace("+", "%2B").replace(":", "%3A")
    )
    with TestClient(app) as client:
        for index in ("{MAP_INDEX}", "3"):
            path = href.replace("{TASK_ID}", "group.sweep").replace("{MAP_INDEX}", index)
            assert client.get(path).status_code == 200
            data = client.get(path.replace("/sweep?", "/sweep.json?")).json()["shown"]
            assert data["title"] == "There is no such task instance"
    assert seen == [("n ä", run, "group.sweep", -1), ("n ä", run, "group.sweep", 3)]
    assert client.get(URL.replace("task_id=sweep", "")).status_code == 422


def test_the_permission_is_asked_for_the_dag_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second dag_id in the query must not be what the permission is checked for."""
    asked: list[Any] = []

    class Manager:
        """Airflow's auth manager: it says who may see which DAG. Here nobody but for `open`."""

        def is_authorized_dag(self, *, details: Any, access_entity: Any, **_: Any) -> bool:
            asked.append((details.id, access_entity.value))
            return bool(details.id == "open")

    from airflow.api_fastapi.core_api import security
    from airflow.models.dag import DagModel

    monkeypatch.setattr(security, "get_auth_manager", Manager)
    monkeypatch.setattr(DagModel, "get_team_name", lambda dag_id: None)
    app = site(monkeypatch, lambda *ids: task("queued"))
    sub: Any = app.routes[-1]
    del sub.app.dependency_overrides[room.may_read], sub.app.dependency_overrides[room.may_read_xcom]
    with TestClient(app) as client:
        shut = client.get(URL.replace("/nightly/", "/shut/") + "&dag_id=open")
        assert shut.status_code == 403
        assert client.get(URL.replace("/nightly/", "/open/") + "&dag_id=shut").status_code == 200
        page = client.get(PAGE.replace("/nightly/", "/shut/"), headers={"accept": "text/html"})
        assert page.status_code == 403
        assert "may not see this DAG" in page.text
    assert {entity for _, entity in asked} == {"TASK_INSTANCE", "XCOM"}
    assert {dag for dag, _ in asked} == {"shut", "open"}


def test_without_a_login(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise HTTPException(401, "Not authenticated")

    app = site(monkeypatch, lambda *ids: pytest.fail("nobody may ask"))
    sub: Any = app.routes[-1]
    sub.app.dependency_overrides = {get_user: refuse}
    with TestClient(app) as client:
        for path in (PAGE, URL, REPORT, "/raysweep/static/airflow.js"):
            assert client.get(path).status_code == 401, path
        page = client.get(PAGE, headers={"accept": "text/html"}).text
        assert re.search(r'href="/api/v2/auth/login\?next=http[^"<>]*"', page)


def test_a_storage_that_hangs_holds_up_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import threading

    is_over = threading.Event()
    monkeypatch.setattr(room, "PATIENCE_S", 0.3)
    monkeypatch.setattr(room, "_read", lambda task, place, readers: is_over.wait(20))
    before = threading.active_count()
    try:
        with TestClient(site(monkeypatch, lambda *ids: task(place=place(tmp_path)))) as client:
            for _ in range(room.READS_AT_ONCE + 3):
                assert client.get(URL).json()["shown"]["title"] == "The storage is slow"
            assert threading.active_count() <= before + room.READS_AT_ONCE + 3
    finally:
        is_over.set()


def test_the_plugin_is_found_by_its_entry_point() -> None:
    from importlib.metadata import entry_points

    (found,) = [each for each in entry_points(group="airflow.plugins") if each.name == "raysweep"]
    assert found.load() is RaysweepPlugin
    (mounted,) = RaysweepPlugin().fastapi_apps
    assert mounted["url_prefix"] == "/raysweep"
    assert RaysweepPlugin.external_views[0]["destination"] == "task_instance"


def test_the_page_needs_nothing_from_outside() -> None:
    folder = files("raysweep_airflow.page") / "static"
    texts = {name: (folder / name).read_text() for name in ("page.html", "airflow.js")}
    shared = files("raysweep.pages") / "static"
    texts |= {name: (shared / name).read_text() for name in PARTS if name != "airflow.js"}
    for name, text in texts.items():
        assert not re.findall(r"https?://[^\s\"'`]+", text), name
        assert "url(" not in text, name
        assert "innerHTML" not in text, name
        assert "insertAdjacentHTML" not in text, name
        assert not re.search(r"\beval\b", text), name
    assert "style=" not in texts["page.html"]
    assert set(re.findall(r"static/([a-z]+[.][a-z]+)", texts["page.html"])) == set(PARTS)
