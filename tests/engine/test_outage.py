"""The storage goes away in the middle of a flood of reports: they wait, and all of them arrive."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

import raysweep as rs
from raysweep.cluster import controller as controller_room
from raysweep.cluster import run as run_room
from raysweep.cluster.server import LinkServer
from raysweep.errors import StorageUnavailableError
from raysweep.storage.store import open_store
from raysweep.storage.wrapped import Operation, WrappedStore
from raysweep.storage.writer import JournalWriter
from tests.unit.storage.conftest import s3_url as s3_url  # a fixture

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
Lines = Callable[[], list[list[str]]]
T = TypeVar("T")


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

    def show(progress: rs.SweepProgress) -> None:
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
