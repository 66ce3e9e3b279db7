"""The dashboard: who may ask it, what it answers, and that it writes nothing."""

from __future__ import annotations

import io
import json
import tarfile
import time
from base64 import b64decode
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.pages import live
from raysweep.pages.dashboard import Access, runs, serving
from raysweep.pages.dashboard.access import host_of, is_loopback
from raysweep.pages.document import make_document
from raysweep.runs.reading.whole_sweep import WholeReader, read_whole
from raysweep.storage.checkpoints.manifest import Manifest, encode_manifest
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.logs import log_name
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.parallel import run_folders
from raysweep.storage.objects.sealed import encode_sealed
from tests.unit.pages.sweeps import first_half, nights, second_half, store

TOKEN = "a-token-of-24-characters"


class Asked:
    """One request, and its answer."""

    def __init__(self, address: str, path: str, method: str = "GET", **headers: str) -> None:
        connection = HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        response: HTTPResponse = connection.getresponse()
        self.status, self.headers, self.body = response.status, response.headers, response.read()
        connection.close()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps, one of them with a trial's log, and one that cannot be read."""
    root = tmp_path_factory.mktemp("runs")
    folder, outcome = store(root)
    store(root, name="other", num_samples=6)
    folder.store.put(f"{folder.sweep_id}/{log_name(outcome.trials[2].trial_id, 1)}", b"hello\n")
    for name in ("sweep.json", "outcome.json"):
        folder.store.put(f"broken-0123abcd/{name}", b"{}")
    return root


@pytest.fixture(scope="module")
def address(root: Path) -> Iterator[str]:
    with serving(str(root), Access(), 0) as (address, _):
        yield address


def sweep_of(root: Path) -> str:
    return next(each.name for each in root.iterdir() if each.name.startswith("night-"))


def test_all_runs_are_listed(address: str, root: Path) -> None:
    shown = Asked(address, "/api/runs").json["shown"]
    rows = {row["id"]: row for row in shown["runs"]}
    assert set(rows) == set(run_folders(open_store(root)))
    row = rows[sweep_of(root)]
    assert (row["status"], row["ended"], row["num_trials"], row["metric"]) == ("completed", 24, 24, "auc")
    assert rows["broken-0123abcd"]["status"] == "damaged"
    assert rows["broken-0123abcd"]["problem"]
    assert (shown["left"], shown["champions"], shown["damaged"]) == (0, [], [])


def test_a_run_is_the_document_of_its_report_and_is_sent_once(address: str, root: Path) -> None:
    name = sweep_of(root)
    answer = Asked(address, f"/api/runs/{name}").json
    document = answer["shown"]["document"]
    assert document["sweep"]["id"] == name
    assert document["trials"]["count"] == 24
    again = Asked(address, f"/api/runs/{name}?known={answer['version']}")
    assert (again.status, again.body) == (204, b"")
    assert Asked(address, f"/api/runs/{name}?known=other").status == 200


def test_of_a_sweep_in_which_nothing_happens_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trials run, and only the time continues."""
    for name in ("FRESH_S", "BUSY_SHARE"):
        monkeypatch.setattr(live, name, 0.0)
    folder, _ = store(tmp_path / "a")
    copy = first_half(folder, tmp_path / "b")
    with serving(str(tmp_path / "b"), Access(), 0) as (address, _):
        path = f"/api/runs/{copy.sweep_id}"
        answer = Asked(address, path).json
        assert answer["shown"]["document"]["sweep"]["counts"]["running"] > 0
        time.sleep(1.1)
        assert Asked(address, f"{path}?known={answer['version']}").status == 204
        second_half(folder, copy)
        assert Asked(address, f"{path}?known={answer['version']}").status == 200


def test_an_ended_sweep_is_read_once_until_its_end_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FRESH_S", "BUSY_SHARE"):
        monkeypatch.setattr(live, name, 0.0)
    folder, outcome = store(tmp_path)
    reads: list[str] = []
    read = WholeReader.read
    monkeypatch.setattr(WholeReader, "read", lambda self: (reads.append("read"), read(self))[1])
    with serving(str(tmp_path), Access(), 0) as (address, _):
        path = f"/api/runs/{folder.sweep_id}"
        first = Asked(address, path).json
        assert first["shown"]["document"]["sweep"]["has_ended"]
        assert Asked(address, f"{path}?known={first['version']}").status == 204
        assert Asked(address, path).json == first
        assert len(reads) == 1
        folder.store.delete(f"{folder.sweep_id}/outcome.json")
        folder.write_outcome_if_absent(outcome.model_copy(update={"notes": ("added",)}))
        again = Asked(address, f"{path}?known={first['version']}").json
        assert again["shown"]["document"]["sweep"]["notes"] == ["added"]
        assert len(reads) == 2


def test_a_log_is_read_and_a_missing_one_is_told(address: str, root: Path) -> None:
    name = sweep_of(root)
    assert Asked(address, f"/api/runs/{name}/log?trial=2").json["shown"]["text"] == "hello\n"
    missing = Asked(address, f"/api/runs/{name}/log?trial=3")
    assert missing.status == 404
    assert "there are logs of the trials 2" in missing.json["error"]
    assert Asked(address, f"/api/runs/{name}/log?trial=x").status == 400


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/run/anything", 200),
        ("/parts/page.css", 200),
        ("/parts/..%2fpage.py", 404),
        ("/parts/../page.py", 404),
        ("/run/..%2f..%2fetc", 404),
        ("/api/runs/%2e%2e", 404),
        ("/api/runs/..%2fnight", 404),
        ("/api/runs/unknown", 404),
        ("/api/runs/broken-0123abcd", 502),
        ("/store.json", 404),
    ],
)
def test_only_these_paths_are_answered(address: str, path: str, status: int) -> None:
    found = Asked(address, path)
    assert found.status == status
    policy = found.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'" in policy
    assert "unsafe" not in policy
    assert found.headers["X-Content-Type-Options"] == "nosniff"


def test_it_writes_nothing_and_takes_no_other_method(address: str, root: Path) -> None:
    def listing() -> dict[str, tuple[int, int]]:
        found = (each for each in root.rglob("*") if each.is_file())
        return {str(each): (each.stat().st_size, each.stat().st_mtime_ns) for each in found}

    before, name = listing(), sweep_of(root)
    for path in ("/api/runs", f"/api/runs/{name}", f"/api/runs/{name}/log?trial=2", f"/run/{name}"):
        Asked(address, path)
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert Asked(address, path, method).status == 405
    assert listing() == before


def test_on_loopback_no_other_name_leads_to_it(address: str) -> None:
    port = address.rstrip("/").rpartition(":")[2]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert Asked(address, "/api/runs", Host=host).status == 200
    for host in (f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        assert Asked(address, "/api/runs", Host=host).status == 403


def test_with_a_token_every_path_needs_it(root: Path) -> None:
    with serving(str(root), Access("127.0.0.1", TOKEN), 0) as (address, _):
        for path in ("/", "/api/runs", "/parts/base.js", "/?token=wrong", f"/api/runs/{sweep_of(root)}"):
            refused = Asked(address, path)
            assert refused.status == 401
            assert b"night" not in refused.body
        assert Asked(address, "/api/runs", Authorization="Bearer wrong").status == 401
        assert Asked(address, "/api/runs", Cookie="raysweep_dashboard=wrong").status == 401
        assert Asked(address, "/api/runs", Authorization=f"Bearer {TOKEN}").status == 200
        let_in = Asked(address, f"//evil.example/?token={TOKEN}")
        assert (let_in.status, let_in.headers["Location"]) in ((303, "/evil.example/"), (303, "/"))
        cookie = let_in.headers["Set-Cookie"]
        assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
        assert Asked(address, "/api/runs", Cookie=cookie.partition(";")[0]).status == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "head", ""])
def test_outside_loopback_it_is_refused_without_a_token(host: str) -> None:
    with pytest.raises(SpecError, match=r"--host: .* there is no token; set RAYSWEEP_DASHBOARD_TOKEN"):
        Access(host)
    with pytest.raises(SpecError, match="has 5 characters; 16 are needed"):
        Access(host, "short")
    assert Access(host, TOKEN).allows({"Authorization": f"Bearer {TOKEN}"})


def test_loopback_is_told_from_what_looks_like_it() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]")))
    assert not any(map(is_loopback, ("", "localhost.x", "127.0.0.1.x", "0.0.0.0", "::", "10.0.0.1")))
    assert [host_of(each) for each in ("a:1", "[::1]:2", "a", "[::1]")] == ["a", "[::1]", "a", "[::1]"]


def test_a_port_in_use_is_one_line(address: str, root: Path) -> None:
    port = int(address.rstrip("/").rpartition(":")[2])
    with (
        pytest.raises(SpecError, match=rf"--port: 127.0.0.1:{port} cannot be bound"),
        serving(str(root), Access(), port),
    ):
        pass


def test_read_on_from_where_it_was_a_sweep_is_the_same(tmp_path: Path) -> None:
    folder, _ = store(tmp_path / "a")
    copy = first_half(folder, tmp_path / "b")
    reader = WholeReader(copy)
    half = make_document(reader.read())
    assert 0 < half["sweep"]["ended"] < 24
    second_half(folder, copy)
    whole, fresh = make_document(reader.read()), make_document(read_whole(copy))
    for name in ("trials", "params", "metrics", "curves", "timeline", "failures", "checkpoints", "top"):
        assert whole[name] == fresh[name], name
    assert whole["sweep"]["ended"] == 24


def test_a_run_is_offered_as_one_file(address: str, root: Path) -> None:
    name = sweep_of(root)
    found = Asked(address, f"/run/{name}/report.html")
    assert found.status == 200
    assert found.headers["Content-Disposition"] == f"attachment; filename*=UTF-8''{name}.html"
    policy = found.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "script-src 'sha256-" in policy
    assert f'"id":"{name}"' in found.body.decode()
    assert Asked(address, "/run/unknown/report.html").status == 404


def test_the_sweeps_of_a_name_are_beside_each_other(tmp_path: Path) -> None:
    """The newest first, each with its curve; other names and what cannot be read keep out of the way."""
    folders = nights(tmp_path, (6, 8, 10))
    store(tmp_path, name="other", num_samples=6)
    with serving(str(tmp_path), Access(), 0) as (address, _):
        shown = Asked(address, "/api/names/night").json["shown"]
        found = {night["id"]: night for night in shown["nights"]}
        assert set(found) == {folder.sweep_id for folder in folders}
        assert shown["of"] == 3
        starts = [night["started_at"] for night in shown["nights"]]
        assert starts == sorted(starts, reverse=True)
        for night in found.values():
            assert night["curve"][-1][2] == night["best"]
            assert night["ended"] == night["num_trials"]
            assert night["cpu_hours"] is not None
        assert Asked(address, "/api/names/unknown").status == 404
        assert Asked(address, "/name/night").status == 200


def test_a_checkpoint_is_downloaded_whole(tmp_path: Path) -> None:
    """As a tar file, of a trial that keeps one; a damaged one and one that lies elsewhere are refused."""
    folder, outcome = store(tmp_path / "a", num_samples=6)
    files = tmp_path / "files"
    (files / "deep").mkdir(parents=True)
    (files / "deep" / "weights.bin").write_bytes(bytes(range(256)) * 40)
    ref = CheckpointStore(folder.store, folder.sweep_id).save("00001", 0, files)
    elsewhere = f"{tmp_path}/b/{folder.sweep_id}/checkpoints/00002/000000"
    uris = {0: None, 1: ref.uri, 2: elsewhere}
    trials = [
        each.model_copy(update={"checkpoint_uri": uris[each.number]}) if each.number in uris else each
        for each in outcome.trials
    ]
    folder.store.delete(f"{folder.sweep_id}/outcome.json")
    folder.write_outcome_if_absent(outcome.model_copy(update={"trials": tuple(trials)}))
    path = f"/run/{folder.sweep_id}/checkpoint.tar?trial="
    with serving(str(tmp_path / "a"), Access(), 0) as (address, _):
        document = Asked(address, f"/api/runs/{folder.sweep_id}").json["shown"]["document"]
        assert list(b64decode(document["trials"]["kept"]["data"]))[:2] == [0, 1]
        found = Asked(address, f"{path}1")
        assert (found.status, found.headers["Content-Type"]) == (200, "application/x-tar")
        with tarfile.open(fileobj=io.BytesIO(found.body)) as archive:
            member = archive.extractfile(f"{folder.sweep_id}-00001/deep/weights.bin")
            assert member is not None
            assert member.read() == (files / "deep" / "weights.bin").read_bytes()
        for trial, status, text in ((0, 409, "has no checkpoint"), (99, 409, "has no checkpoint")):
            refused = Asked(address, f"{path}{trial}")
            assert refused.status == status
            assert text in refused.json["error"]
        assert Asked(address, f"{path}2").status in (404, 409, 502)
        assert Asked(address, f"{path}x").status == 400
        for each in (tmp_path / "a").rglob("*"):
            if each.is_file() and each.stat().st_size >= 10_000 and "checkpoints" in str(each):
                each.write_bytes(each.read_bytes()[:-1] + b"?")
        assert Asked(address, f"{path}1").status == 502
        # A refused one leaves the way free for the next.
        assert Asked(address, f"{path}0").status == 409


def test_nothing_outside_of_the_storage_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a manifest says, and whatever symbolic links lie in the folder of a run."""
    monkeypatch.setattr(runs, "FRESH_S", 0.0)
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "key").write_text("a secret")
    folder, outcome = store(tmp_path / "a", num_samples=3)
    other, _ = store(tmp_path / "a", name="other", num_samples=2)
    checkpoints = CheckpointStore(folder.store, folder.sweep_id)
    uri = outcome.trials[0].checkpoint_uri
    assert uri is not None
    trial, number = checkpoints.addresses.locate(uri)
    run = tmp_path / "a" / folder.sweep_id
    (run / log_name("00001", 1)).parent.mkdir(exist_ok=True)
    (run / log_name("00001", 1)).symlink_to(tmp_path / "private" / "key")
    (tmp_path / "a" / other.sweep_id).rename(tmp_path / "elsewhere")
    (tmp_path / "a" / other.sweep_id).symlink_to(tmp_path / "elsewhere")
    with serving(str(tmp_path / "a"), Access(), 0) as (address, _):
        for link in (str(tmp_path / "private"), "../private", ".", f"{folder.sweep_id}/sweep.json"):
            forged = Manifest(
                trial_id=trial, number=number, folder=f"{number}-x", files=(), link=link, link_bytes=1
            )
            folder.store.put(
                checkpoints.addresses.manifest_key(trial, number), encode_sealed(encode_manifest(forged))
            )
            refused = Asked(address, f"/run/{folder.sweep_id}/checkpoint.tar?trial=0")
            assert refused.status == 409
            assert "it says that it stored its checkpoint itself" in refused.json["error"]
        for path in (
            f"/api/runs/{folder.sweep_id}/log?trial=1",
            f"/api/runs/{other.sweep_id}",
            f"/run/{other.sweep_id}/report.html",
        ):
            refused = Asked(address, path)
            assert refused.status == 502
            assert "out of the storage path" in refused.json["error"]
        rows = {row["id"]: row["status"] for row in Asked(address, "/api/runs").json["shown"]["runs"]}
        assert rows[folder.sweep_id] == "completed"
        (tmp_path / "a" / "catalog" / "other.json").unlink()
        rows = {row["id"]: row["status"] for row in Asked(address, "/api/runs").json["shown"]["runs"]}
        assert (rows[folder.sweep_id], rows[other.sweep_id]) == ("completed", "damaged")
        assert b"a secret" not in Asked(address, f"/run/{folder.sweep_id}/report.html").body
