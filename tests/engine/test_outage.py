"""The storage goes away in the middle of a sweep: it waits, completes, and runs nothing again."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

import raysweep as rs
from raysweep.cluster import controller as controller_room
from raysweep.cluster import run as run_room
from raysweep.cluster.control import heartbeat
from raysweep.cluster.server import LinkServer
from raysweep.errors import StorageUnavailableError, SweepDamagedError
from raysweep.outcome import SweepProgress
from raysweep.runs.folder import SweepFolder
from raysweep.storage.checkpoints.store import restore_uri
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.wrapped import Operation, WrappedStore
from raysweep.verify import verify_sweep
from tests.engine import trainables
from tests.engine.conftest import INLINE, wait_for
from tests.proxy import Proxy
from tests.unit.conftest import s3_url as s3_url  # a fixture

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
Lines = Callable[[], list[list[str]]]
T = TypeVar("T")


@pytest.fixture
def proxy(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    proxy = Proxy((endpoint.hostname or "", endpoint.port or 0))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    yield proxy
    proxy.close()


@pytest.mark.parametrize("seconds", [4.0, pytest.param(30.0, marks=[pytest.mark.slow, pytest.mark.faults])])
def test_a_sweep_outlasts_an_outage_of_its_object_store(
    seconds: float,
    proxy: Proxy,
    ray_cluster: object,
    make_spec: Callable[..., rs.SweepSpec],
    lines: Lines,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Real S3 requests, real workers; every step stores a checkpoint, so workers meet the outage too."""

    def train(config: dict[str, Any]) -> None:
        # The shared Ray was started without these; a cluster's nodes have them from the beginning.
        os.environ.update(config["env"])
        trainables.steps(config)

    env = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    spec = make_spec(train, {"steps": 6, "pause": 0.3, "env": env}, num_samples=2)
    spec = spec.replace(storage_path=f"s3://bucket/{secrets.token_hex(8)}")

    def take_away() -> None:
        wait_for(lambda: sum(line[0] == "step" for line in lines()) >= 4)
        proxy.cut()
        time.sleep(seconds)
        proxy.restore()

    thread = threading.Thread(target=take_away, daemon=True)
    thread.start()
    outcome = rs.run_sweep(spec, key="k")
    thread.join()
    assert "storage does not answer" in caplog.text, "the controller did not meet the outage"
    assert "nothing was lost" in caplog.text
    assert outcome.counts == {"completed": 2}
    assert outcome.generation == 1
    assert [(trial.reports, len(trial.attempts)) for trial in outcome.trials] == [(6, 1), (6, 1)]
    assert Counter(line[1] for line in lines() if line[0] == "start") == {"0": 1, "1": 1}
    folder = SweepFolder(open_store(spec.storage_path), outcome.sweep_id)
    report = verify_sweep(folder)
    assert report.is_sound, report.damage
    for trial in outcome.trials:
        assert trial.checkpoint_uri is not None
        restore_uri(trial.checkpoint_uri, tmp_path / trial.trial_id)
        assert (tmp_path / trial.trial_id / "at.json").read_text() == '{"step": 6}'


class Away(WrappedStore):
    """After the third segment, nothing can be appended to the journal for a while."""

    seconds = 3.0

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.appended = self.failed = 0
        self.until = 0.0

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        if operation == "put" and "/journal/" in key:
            self.appended += 1
            if self.appended == 4:
                self.until = time.monotonic() + self.seconds
            if time.monotonic() < self.until:
                self.failed += 1
                raise StorageUnavailableError(key, "is away")
        return call()


REPORTS = 20_000


@pytest.mark.slow
def test_a_flood_of_reports_in_an_outage_waits_with_the_workers(
    make_spec: Callable[..., rs.SweepSpec], ray_cluster: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller takes in what its bound allows, stays alive, and gets the rest afterwards, in order."""
    limit_bytes = 300_000
    stores: list[Away] = []
    writers: list[Watched] = []
    held: list[bool] = []
    shown: list[float] = []

    class Watched(JournalWriter):
        most = biggest = 0

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options, max_pending_bytes=limit_bytes)
            writers.append(self)

        def write(self, record: bytes) -> None:
            super().write(record)
            self.most = max(self.most, self.pending_bytes)
            self.biggest = max(self.biggest, len(record))

    def open_away(path: str) -> Away:
        stores.append(Away(open_store(path)))
        return stores[-1]

    def hold_back(server: LinkServer, is_held: bool) -> None:
        held.append(is_held)
        plain(server, is_held)

    # The bound of a real controller would take minutes to fill; the storage is this process's alone.
    plain = LinkServer.hold_back
    monkeypatch.setattr(LinkServer, "hold_back", hold_back)
    monkeypatch.setattr(controller_room, "JournalWriter", Watched)
    monkeypatch.setattr(run_room, "open_store", open_away)

    def flood(config: dict[str, Any]) -> None:
        for n in range(REPORTS):
            rs.report({"loss": 1.0 / (1 + n), "text": "x" * 100})

    def show(progress: SweepProgress) -> None:
        if stores and time.monotonic() < stores[0].until:
            shown.append(time.monotonic())

    outcome = rs.run_sweep(make_spec(flood, num_samples=2), key="k", on_progress=show)
    (store,), (writer,) = stores, writers
    assert store.failed > 0
    assert outcome.counts == {"completed": 2}
    assert [trial.reports for trial in outcome.trials] == [REPORTS, REPORTS]
    assert [trial.metrics["training_iteration"] for trial in outcome.trials] == [REPORTS, REPORTS]
    # A frame that was on its way is taken whole, from each of two workers.
    assert writer.most <= limit_bytes + 2 * writer.biggest
    assert held[:2] == [True, False]
    assert not held[-1]
    assert len(shown) >= 2, "the controller did not move while the storage was away"


@pytest.mark.parametrize("looks_s", [0.0, 1000.0])
def test_a_folder_that_goes_away_is_no_success(
    looks_s: float,
    ray_cluster: object,
    make_spec: Callable[..., rs.SweepSpec],
    lines: Lines,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen while trials run, or at the latest when they have; put back, the sweep continues from it."""
    monkeypatch.setattr(heartbeat, "LOOK_S", looks_s)
    away, moved = storage.with_name("away"), threading.Event()

    def train(config: dict[str, Any]) -> dict[str, float]:
        if rs.get_context().number == 2 and not moved.is_set():
            storage.rename(away)
            moved.set()
            time.sleep(0.0 if looks_s else 20.0)
        return {"loss": config["x"]}

    spec = make_spec(train, num_samples=4, **INLINE)
    with pytest.raises(SweepDamagedError, match="deleted, moved or unmounted while the sweep ran"):
        rs.run_sweep(spec, key="k")
    shutil.rmtree(storage)
    away.rename(storage)
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.counts == {"completed": 4}
    assert verify_sweep(SweepFolder(open_store(str(storage)), outcome.sweep_id)).is_sound


@pytest.mark.parametrize(("looks_s", "parts"), [(0.0, ["journal"]), (1000.0, ["checkpoints"])])
def test_parts_that_go_away_are_no_success(
    looks_s: float,
    parts: list[str],
    ray_cluster: object,
    make_spec: Callable[..., rs.SweepSpec],
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cleanup by age, or half of an `rm -r`: no outcome promises what is not there."""
    monkeypatch.setattr(heartbeat, "LOOK_S", looks_s)

    def train(config: dict[str, Any]) -> None:
        with rs.new_checkpoint() as folder:
            (folder / "weights").write_text(str(config["x"]))
            rs.report({"loss": rs.get_context().number}, checkpoint=folder)
        if rs.get_context().number == 1:
            (sweep,) = storage.glob("*-*")
            for part in parts:
                shutil.rmtree(sweep / part)
            time.sleep(0.0 if looks_s else 20.0)

    spec = make_spec(train, num_samples=2, **INLINE)
    with pytest.raises(SweepDamagedError, match=f"{parts[0]}/.*(is gone|no such checkpoint)"):
        rs.run_sweep(spec, key="k")
    assert not list(storage.glob("*/outcome.json"))
