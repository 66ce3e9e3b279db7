"""A cluster that adds a node when one is asked for: Ray's own autoscaler, with processes for nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.util import get_node_ip_address

import raysweep as rs
from devtools.head import LocalHead
from tests.engine.conftest import Driver

PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
# What the autoscaler wants to be told of besides.
COMMANDS = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
EMPTY: dict[str, Any] = {
    **{f"{name}_commands": [] for name in COMMANDS},
    **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
    **{name: {} for name in ("file_mounts", "auth", "docker")},
    "file_mounts_sync_continuously": False,
}
# Its nodes are processes of this machine: there is nobody to log in at, and nothing to be set up.
NO_CLOUD = {
    "disable_node_updaters": True,
    "disable_launch_config_check": True,
    "worker_liveness_check": False,
    "use_node_id_as_ip": True,
}
pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHead]:
    """A head that holds no trial, and an autoscaler that may add two nodes that hold one each."""
    path = tmp_path / "autoscaling.json"
    options = ["--autoscaling-config", str(path)]
    environment = {"AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    head = LocalHead(num_cpus=0, environment=environment, options=options)
    kinds: dict[str, Any] = {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2},
    }
    gcs_address = f"{get_node_ip_address()}:{head.gcs_port}"
    config = EMPTY | {
        "cluster_name": "grows",
        "max_workers": 2,
        "upscaling_speed": 100.0,
        "idle_timeout_minutes": 60,
        # By its module: the package lacks the defaults of its name.
        "provider": {"type": "external", "module": PROVIDER, "gcs_address": gcs_address, **NO_CLOUD},
        "available_node_types": kinds,
        "head_node_type": "ray.head.default",
    }
    path.write_text(json.dumps(config))
    with head:
        for name, value in head.environment.items():
            monkeypatch.setenv(name, value)
        yield head


def test_a_sweep_waits_for_the_nodes_that_it_asks_for(
    head: LocalHead,
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    lines: Callable[[], list[list[str]]],
) -> None:
    spec = make_spec("steps", {"steps": 20, "pause": 1.0}, num_samples=6)
    _, said = drive(spec, address=head.gcs_address).finish(120)
    assert said["error"] == "InfeasibleResourcesError", said
    driver = drive(spec.replace(autoscaled=True, max_concurrent_trials=2), address=head.gcs_address)
    code, said = driver.finish(200)
    assert code == 0, (said, driver.errors)
    outcome = rs.SweepOutcome.from_json(json.dumps(said["outcome"]))
    assert outcome.counts == {"completed": 6}
    nodes = {attempt.node for trial in outcome.trials for attempt in trial.attempts}
    assert len(nodes) == 2
    assert len({line[3] for line in lines() if line[0] == "start"}) == 2
