"""A node of Ray that joins late is waited for, and Ray is left as it was."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from ray._private import node, services
from ray._raylet import wait_for_persisted_port

from raysweep.raycompat.patience import patient_start


def test_a_late_node_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def late(gcs_address: str, node_id: str) -> Any:
        tries.append(node_id)
        if len(tries) < 4:
            raise RuntimeError("no such node")
        return {"node": node_id}

    monkeypatch.setattr(services, "get_node", late)  # a raylet that takes three looks to join
    with patient_start():
        assert services.get_node("here", "n") == {"node": "n"}
    assert len(tries) == 4
    assert services.get_node is late


def test_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(gcs_address: str, node_id: str) -> Any:
        raise RuntimeError("no such node")

    monkeypatch.setattr(services, "get_node", never)
    with patient_start(timeout_s=0.2), pytest.raises(RuntimeError, match="no such node"):
        services.get_node("here", "n")
    assert services.get_node is never


def test_a_raylet_is_told_its_agents_ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is not waits for their files, and aborts when they are late."""
    started: list[dict[str, Any]] = []

    def start_raylet(node_id: str, session_dir: str, other: int, **ports: Any) -> None:
        started.append(ports)

    monkeypatch.setattr(services, "start_raylet", start_raylet)
    with patient_start():
        services.start_raylet("ab12", str(tmp_path), 1, metrics_agent_port=None, runtime_env_agent_port=4321)
    (ports,) = started
    assert ports["runtime_env_agent_port"] == 4321
    assert len(set(ports.values())) == 4
    assert all(port > 1024 for port in ports.values())
    for name, port in ports.items():
        assert wait_for_persisted_port(str(tmp_path), "ab12", name, timeout_ms=10) == port


def test_ray_uses_what_is_replaced() -> None:
    """Else this does nothing."""
    assert "services.get_node(" in inspect.getsource(node.Node.__init__)
    source = inspect.getsource(node.Node.start_raylet)
    assert "services.start_raylet(" in source
    assert "metrics_agent_port=self._ray_params.metrics_agent_port" in source
