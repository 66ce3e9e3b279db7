"""Nights with faults drawn from a seed have one truth: a sample with every change, ten of each orchestrator.

`make chaos` plays a month of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.orchestrators.chaos import play
from tests.orchestrators.chaos_plan import Name, draw
from tests.orchestrators.chaos_player import Result

pytestmark = [pytest.mark.servers, pytest.mark.ray]
SAMPLE = 6
"""Of seed 1, behind a loop: the driver is killed, then the storage is away."""


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a site sets, for its S3 server, is set back."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def one_truth(results: list[Result]) -> None:
    """No night has told a lie."""
    told = [f"{result.plan}: {lie}\n{result.shown[-6000:]}" for result in results for lie in result.lies]
    assert not told, "\n".join(told)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_night_behind_a_loop_has_one_truth(environment: None, tmp_path: Path) -> None:
    (result,) = play("loop", 1, [SAMPLE], tmp_path, lambda result: None)
    one_truth([result])
    planned = [event.what for event in draw("loop", 1, SAMPLE).events]
    assert result.fired == planned == ["kill_driver", "stall_storage"]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("orchestrator", ["loop", "prefect", "airflow"])
def test_ten_nights_have_one_truth(orchestrator: Name, environment: None, tmp_path: Path) -> None:
    one_truth(play(orchestrator, 1, range(10), tmp_path, lambda result: None))
