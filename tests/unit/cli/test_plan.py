"""`raysweep plan` of sweeps whose trials take different amounts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

Cli = Callable[..., Any]
SPEC: dict[str, Any] = {
    "name": "sized",
    "trainable": "examples.quick:steps",
    "param_space": {"threads": {"choice": [1, 2]}, "width": {"randint": [1, 9]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 6,
    "search": "random",
}


@pytest.fixture
def plan(cli: Cli, tmp_path: Path) -> Cli:
    def run(*flags: str, **more: Any) -> Any:
        path = tmp_path / "spec.json"
        path.write_text(json.dumps({**SPEC, "storage_path": str(tmp_path / "sweeps"), **more}))
        ran = cli("plan", path, *flags)
        assert ran.code == 0, ran.err
        return ran.out

    return run


def test_what_follows_from_the_config_is_said(plan: Cli) -> None:
    resources = {"cpu": 1, "memory": 1000, "by_config": {"cpu": "threads", "memory": "1e3 + 8 * width"}}
    said = plan(resources=resources)
    assert "each takes  at least {CPU: 1, memory: 1000}" in said
    assert "by config   cpu: threads" in said
    assert "by config   memory: 1e3 + 8 * width" in said
    assert "at once     at most " in said
    assert json.loads(plan("--json", resources=resources))["by_config"] == resources["by_config"]


def test_so_are_custom_resources(plan: Cli) -> None:
    by_config = {"cpu": "threads", "custom": {"licence": "2 * threads"}}
    said = plan(resources={"cpu": 1, "by_config": by_config})
    assert "by config   cpu: threads" in said
    assert "by config   custom.licence: 2 * threads" in said
    found = json.loads(plan("--json", resources={"cpu": 1, "by_config": by_config}))["by_config"]
    assert found == {"cpu": "threads", "custom.licence": "2 * threads"}


def test_so_is_how_many_workers_a_gang_has(plan: Cli) -> None:
    scaling = {"num_workers": 1, "backend": None, "by_config": {"num_workers": "threads"}}
    assert "by config   num_workers: threads" in plan(scaling=scaling)


def test_so_is_what_each_of_them_takes(plan: Cli) -> None:
    by_config = {"num_workers": "threads", "resources": {"cpu": "2 * threads"}}
    scaling = {"num_workers": 2, "by_config": by_config}
    said = plan(scaling=scaling)
    assert "each takes  at least {CPU: 1} + {CPU: 1}" in said
    assert "by config   num_workers: threads" in said
    assert "by config   resources.cpu: 2 * threads" in said
    found = json.loads(plan("--json", scaling=scaling))["by_config"]
    assert found == {"num_workers": "threads", "resources.cpu": "2 * threads"}


def test_an_inline_trial_needs_no_room(plan: Cli) -> None:
    large = {"cpu": 4096, "custom": {"licence": 3}}
    said = plan(resources=large, isolation="inline", max_concurrent_trials=1)
    assert "each takes  {CPU: 4096, licence: 3}" in said
    assert "at once     1 on this machine" in said


def test_nothing_is_said_where_all_are_alike(plan: Cli) -> None:
    said = plan()
    assert "each takes  {CPU: 1}" in said
    assert "by config" not in said
    assert "at most" not in said
    assert json.loads(plan("--json"))["by_config"] == {}


def test_so_is_how_many_trials_share_a_gpu(
    plan: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nvidia-smi` stands in for itself, and Ray counts one GPU."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, GPU-a, 9, 81559, H100'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("raysweep.raycompat.machine.count_gpus", lambda: 1.0)
    monkeypatch.setattr("raysweep.raycompat.machine.count_cpus", lambda: 16.0)
    said = " ".join(plan(resources={"cpu": 1, "gpu_memory": "10GiB"}).split())
    assert "each takes {CPU: 1, GPU: 0.125}" in said
    assert "at once 8 on this machine" in said
    assert (
        "shares 8 trials share each GPU (resources.gpu_memory: 10 GiB): the smallest, of this machine,"
        in said
    )
    assert json.loads(plan("--json", resources={"cpu": 1, "gpu": 1}))["shares"] == ""
    program.write_text("#!/bin/sh\nexit 9\n")
    assert "shares" not in plan(resources={"cpu": 1, "gpu_memory": "10GiB"})
