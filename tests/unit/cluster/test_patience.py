"""A node of Ray that joins late is waited for, and Ray is left as it was."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from ray._private import node, services

from raysweep.cluster.patience import patient_start


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


def test_a_raylet_is_told_its_agents_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not waits for their files, and aborts when they are late."""
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(services, "start_raylet", lambda *args, **options: started.append(options))
    with patient_start():
        services.start_raylet("ip", metrics_agent_port=None, runtime_env_agent_port=4321, other=1)
    (options,) = started
    assert (options.pop("runtime_env_agent_port"), options.pop("other")) == (4321, 1)
    assert options.keys() == {"metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port"}
    assert len(set(options.values())) == 3
    assert all(port > 1024 for port in options.values())


def test_ray_uses_what_is_replaced() -> None:
    """Else this does nothing."""
    assert "services.get_node(" in inspect.getsource(node.Node.__init__)
    source = inspect.getsource(node.Node.start_raylet)
    assert "services.start_raylet(" in source
    assert "metrics_agent_port=self._ray_params.metrics_agent_port" in source
