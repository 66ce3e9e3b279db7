"""A storage that takes its time: trials do not stand in line behind what nobody waits for."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import pytest

import raysweep as rs
from raysweep.cluster import run as run_room
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.wrapped import Operation, WrappedStore

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
LATENCY_S = 0.1
CHECKPOINTS = 60
T = TypeVar("T")


class Slow(WrappedStore):
    """Each request of the controller takes a while; those of the workers do not."""

    deleted = 0

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        time.sleep(LATENCY_S)
        self.deleted += operation == "delete"
        return call()


@pytest.mark.slow
def test_a_waiting_report_does_not_stand_in_line_behind_deletions(
    make_spec: Callable[..., rs.SweepSpec],
    ray_cluster: object,
    lines: Callable[[], list[list[str]]],
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[..., None],
) -> None:
    stores: list[Slow] = []

    def open_slow(path: str) -> Slow:
        stores.append(Slow(open_store(path)))
        return stores[-1]

    def train(config: dict[str, Any]) -> None:
        """One makes checkpoints, most of them soon needless; the other waits for its reports."""
        if config["x"] == "waits":
            time.sleep(2.0)
            for step in range(20):
                began = time.perf_counter()
                rs.report({"loss": 1.0, "step": step}, wait=True)
                with open(config["log"], "a") as file:
                    file.write(f"waited {time.perf_counter() - began}\n")
            return
        for step in range(CHECKPOINTS):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "at.json").write_text(json.dumps({"step": step}))
                rs.report({"loss": 1.0 + step, "step": step}, checkpoint=folder)
            time.sleep(0.06)

    # Latency of the controller's own requests: the workers open the storage themselves.
    monkeypatch.setattr(run_room, "open_store", open_slow)
    spec = make_spec(train, {"x": {"grid_search": ["saves", "waits"]}})
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.counts == {"completed": 2}
    waited = [float(line[1]) for line in lines() if line[0] == "waited"]
    record_property("waited_s", [round(seconds, 2) for seconds in waited])
    assert 2 <= sum(store.deleted for store in stores) < CHECKPOINTS, "many go together"
    assert len(list(storage.glob("t-*/checkpoints/*/*.json"))) == 2, "the best and the last"
    # Two puts, and what a busy machine adds; behind all deletions it would be thirty.
    assert median(waited) < 6 * LATENCY_S
    assert max(waited) < 15 * LATENCY_S
