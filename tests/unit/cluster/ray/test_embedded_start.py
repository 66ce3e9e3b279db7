"""An embedded Ray that starts slowly, or not at the first try."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
import ray

from raysweep.cluster.ray import embedded_start
from raysweep.cluster.ray.embedded_start import start_embedded
from raysweep.errors import ClusterUnreachableError
from raysweep.raycompat.patience import LAST_S, START_S

LATE = "The current node timed out during startup.\nMore of it."
SERVER_S = "RAY_gcs_server_port_wait_time_s"


class FakeInit:
    """`ray.init`, which cannot be made late without minutes of waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: int, takes_s: float = 0.0) -> None:
        self.server_s: list[float] = []
        self.shutdowns = 0
        self._fails, self._takes_s = fails, takes_s
        monkeypatch.setattr(ray, "init", self.init)
        monkeypatch.setattr(ray, "shutdown", self.shutdown)

    def init(self, **given: Any) -> None:
        self.server_s.append(float(os.environ[SERVER_S]))
        time.sleep(self._takes_s)
        if len(self.server_s) <= self._fails:
            raise Exception(LATE)

    def shutdown(self) -> None:
        self.shutdowns += 1


def test_a_late_ray_is_tried_once_more_with_more_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started = FakeInit(monkeypatch, fails=1)
    start_embedded(2, tmp_path)
    assert started.server_s == [START_S, LAST_S]
    assert started.shutdowns == 1, "what the first try left is ended"
    assert "The current node timed out during startup." in caplog.text
    assert "More of it" not in caplog.text
    assert SERVER_S not in os.environ


def test_twice_late_says_the_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = FakeInit(monkeypatch, fails=2)
    with pytest.raises(ClusterUnreachableError, match=r"with 120 s and then 300 s .*timed out") as caught:
        start_embedded(2, tmp_path)
    assert "less busy" in str(caught.value)
    assert len(started.server_s) == 2


@pytest.mark.parametrize(("takes_s", "says"), [(0.0, False), (0.2, True)])
def test_a_slow_start_is_said(
    takes_s: float,
    says: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "raysweep")
    monkeypatch.setattr(embedded_start, "TELL_AFTER_S", 0.05)
    FakeInit(monkeypatch, fails=0, takes_s=takes_s)
    start_embedded(2, tmp_path)
    time.sleep(0.1)
    assert ("waiting for Ray to start" in caplog.text) is says
