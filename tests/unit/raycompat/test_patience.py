"""A node of Ray that joins late is waited for, and Ray is left as it was."""

from __future__ import annotations

import inspect
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from ray._private import node, services

from raysweep.raycompat.patience import _free_ports, _unassigned_ports, patient_start
from tests.unit.raycompat.moved import since


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


@since(2, 54)
def test_a_raylet_is_told_its_agents_ports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that is not waits for their files, and aborts when they are late."""
    from ray._raylet import wait_for_persisted_port

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


KERNEL = Path("/proc/sys/net/ipv4/ip_local_port_range")


@pytest.mark.skipif(not KERNEL.exists(), reason="Linux says which ports the kernel assigns")
def test_the_ports_of_agents_are_not_those_that_the_kernel_assigns() -> None:
    """An agent binds its port seconds later: a raylet whose agent finds it taken ends, with its workers."""
    assert _unassigned_ports(), "this machine leaves none"
    first, last = map(int, KERNEL.read_text().split())
    chosen = _free_ports(8)
    assert len(set(chosen)) == 8
    assert not any(first <= port <= last for port in chosen)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("32768\t60999\n", range(20000, 32768)),
        ("15000 40000", range(40001, 65536)),
        ("1024 65535", range(0)),
        ("no numbers", range(0)),
    ],
)
def test_the_larger_side_of_the_kernels_range_is_used(tmp_path: Path, setting: str, expected: range) -> None:
    (tmp_path / "range").write_text(setting)
    assert list(_unassigned_ports(tmp_path / "range")) == list(expected)
    assert not _unassigned_ports(tmp_path / "none")


def test_a_port_on_which_a_process_listens_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        taken, free = (stack.enter_context(socket.socket()) for _ in range(2))
        taken.bind(("", 0))
        taken.listen()
        free.bind(("", 0))
        ports = sorted(probe.getsockname()[1] for probe in (taken, free))
        free.close()
        monkeypatch.setattr("raysweep.raycompat.patience._unassigned_ports", lambda: ports)
        chosen = _free_ports(2)
        assert taken.getsockname()[1] not in chosen
        assert len(set(chosen)) == 2, "the kernel assigns the other one"


def test_ray_uses_what_is_replaced() -> None:
    """Else this does nothing."""
    assert "services.get_node(" in inspect.getsource(node.Node.__init__)
    source = inspect.getsource(node.Node.start_raylet)
    assert "services.start_raylet(" in source
    assert "metrics_agent_port=self._ray_params.metrics_agent_port" in source
