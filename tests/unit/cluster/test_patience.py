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


def test_ray_looks_for_its_node_by_that_name() -> None:
    """Else this does nothing."""
    assert "services.get_node(" in inspect.getsource(node.Node.__init__)
