"""Trackers of a sweep whose controller is killed twice, while their servers are away."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.delivery.feed import Feed
from raysweep.hooks.events import TrialEnd
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import Driver, wait_for
from tests.unit.delivery.contract import Stored, points_of
from tests.unit.delivery.otlp import Collector
from tests.unit.delivery.servers import MlflowServer, Receiver, StandIn
from tests.unit.delivery.stored import by_mlflow, by_otel, in_tensorboard

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture
def servers() -> Iterator[tuple[MlflowServer, Collector, Receiver]]:
    """MLflow, a collector of OpenTelemetry, and the receiver of a webhook."""
    with ExitStack() as stack:
        found = MlflowServer(), Collector(), Receiver()
        for server in found:
            stack.enter_context(server.running())
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("away_s", [5.0, 60.0])
def test_what_each_has_equals_the_journal_after_two_kills_and_an_outage(
    away_s: float,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    lines: Callable[[], list[list[str]]],
    servers: tuple[MlflowServer, Collector, Receiver],
    tmp_path: Path,
) -> None:
    mlflow, collector, receiver = servers
    callbacks: list[Any] = [
        {"tensorboard": {"logdir": str(tmp_path / "runs")}},
        {"mlflow": {"tracking_uri": mlflow.url}},
        {"otel": {"endpoint": collector.url}},
        {"webhook": {"url": receiver.url, "on": ["ended"]}},
    ]
    spec = make_spec("steps", {"pause": 0.1, "steps": 6}, num_samples=10, callbacks=callbacks)
    back_at = 0.0
    for steps in (8, 25):
        driver = drive(spec, address=address)
        wait_for(lambda: _steps(lines()) >= steps or driver.process.poll() is not None)  # noqa: B023
        os.kill(driver.pid, signal.SIGKILL)
        driver.process.wait()
        if not back_at:
            set_away(servers, is_away=True)
            back_at = time.monotonic() + away_s
    driver = drive(spec, address=address)
    time.sleep(max(0.0, back_at - time.monotonic()))
    set_away(servers, is_away=False)
    outcome = driver.outcome()
    assert outcome.generation == 3
    assert outcome.counts == {"completed": 10}
    assert not [note for note in outcome.notes if "callback" in note]

    folder = SweepFolder(open_store(spec.storage_path), outcome.sweep_id)
    items = Feed(folder).read(1_000_000)
    expected, ends = points_of(items), [item.event for item in items if isinstance(item.event, TrialEnd)]
    assert len(expected) >= 60, "six reports of ten trials"
    found: dict[str, Stored] = {
        "tensorboard": in_tensorboard(tmp_path / "runs" / outcome.sweep_id),
        "mlflow": by_mlflow(mlflow),
        "otel": by_otel(collector),
    }
    for name, stored in found.items():
        assert sorted(stored.points) == expected, name
        assert stored.states in ({}, {end.trial_id: end.state for end in ends}), name
    assert len({message["id"] for message in receiver.messages}) == 1, "one end, however often it was sent"


def _steps(lines: list[list[str]]) -> int:
    return sum(line[0] == "step" for line in lines)


def set_away(servers: tuple[StandIn, ...], *, is_away: bool) -> None:
    """Whether the servers answer every request with 503."""
    for server in servers:
        server.is_away = is_away
