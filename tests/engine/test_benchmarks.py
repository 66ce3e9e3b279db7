"""The benchmarks run, at the smallest size: what is asserted is that they measure, never how fast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import logs, noop, reports
from benchmarks.registry import BENCHMARKS
from raysweep.cluster.ray.connection import RayConnection

pytestmark = pytest.mark.ray


def check(contender: dict[str, Any], unit: str, rounds: int) -> None:
    assert contender["settings"]
    for figure in ("wall", "warm"):
        for name in ("s", f"ms_per_{unit}", f"{unit}s_per_s"):
            assert len(contender[figure][name]["rounds"]) == rounds
            assert contender[figure][name]["median"] > 0
    assert contender["warm"]["s"]["median"] <= contender["wall"]["s"]["median"]


@pytest.mark.slow
def test_noop_measures_raysweep_and_an_actor_pool(ray_cluster: RayConnection) -> None:
    shown = noop.run_100(1, trials=4, with_tune=False)
    assert list(shown["contenders"]) == ["raysweep", "actor_pool"]
    for contender in shown["contenders"].values():
        assert contender["trials_per_round"] == 4
        check(contender, "trial", rounds=1)
    ratio = shown["ratios"]["raysweep / actor_pool"]
    assert set(ratio) == {"wall", "warm"}
    assert len(ratio["wall"]["rounds"]) == 1
    json.dumps(shown)


@pytest.mark.slow
def test_logs_are_measured_beside_none(ray_cluster: RayConnection) -> None:
    shown = logs.run(1, trials=2)
    assert list(shown["contenders"]) == ["raysweep", "without_logs"]
    for contender in shown["contenders"].values():
        check(contender, "trial", rounds=1)
    assert [goal["at_most"] for goal in shown["targets"]] == [1.05, 1.05]


@pytest.mark.slow
def test_every_report_is_counted(ray_cluster: RayConnection) -> None:
    sample = reports.own(50).run()
    assert sample.units == 2 * 50


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name, each in BENCHMARKS.items() if each.needs_ray or each.is_long]
)
@pytest.mark.timeout(700)
def test_each_benchmark_runs_at_a_tiny_size(name: str, tmp_path: Path) -> None:
    """In a process and on a Ray of its own, as `python -m benchmarks` runs it: 10 to 20 s each."""
    file = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.child", name, "1", str(file), "tiny"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(file.read_text())
    assert found["what"]
    assert found.get("contenders") or found.get("targets")
