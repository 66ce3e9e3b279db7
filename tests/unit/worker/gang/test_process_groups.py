"""What TensorFlow and Horovod are told of a gang, as far as that needs neither."""

from __future__ import annotations

import importlib.util
import os
import socket
from pathlib import Path

import pytest

import raysweep as rs
from raysweep.cluster.ray import import_probe
from raysweep.errors import SpecError
from raysweep.messages import Gang, Job, Meet, Met
from raysweep.worker.gang import horovod_group
from raysweep.worker.gang.horovod_group import HorovodGroup
from raysweep.worker.gang.process_groups import find_group
from raysweep.worker.gang.sessions import MemberSession, make_session
from raysweep.worker.gang.surroundings import is_echo, joined
from raysweep.worker.gang.tensorflow_group import _take_port
from raysweep.worker.sweep_info import SweepPlace
from tests.unit.worker.said import Said

WHO = (7, 1)


def member(tmp_path: Path, said: Said, rank: int, group: str, nodes: tuple[int, ...]) -> MemberSession:
    place = Gang(world_size=len(nodes), host="127.0.0.1", group=group, nodes=nodes)
    job = Job(trial=7, attempt=1, config={}, seed=1, rank=rank, gang=place)
    session = make_session(job, SweepPlace(sweep_id="s", storage_path=str(tmp_path), resources={}), said)
    assert isinstance(session, MemberSession)
    return session


def test_each_name_has_its_library() -> None:
    packages = {name: find_group(name).package for name in ("gloo", "nccl", "tensorflow", "horovod")}
    assert packages == {"gloo": "torch", "nccl": "torch", "tensorflow": "tensorflow", "horovod": "horovod"}


def test_a_port_is_kept_from_all_but_a_server_that_takes_it_over() -> None:
    """As gRPC's does: it says that its address may be reused."""
    taken = _take_port()
    port = taken.getsockname()[1]
    with taken, socket.socket() as other, socket.socket() as server:
        with pytest.raises(OSError, match="in use"):
            other.bind(("", port))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen()
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()


@pytest.mark.parametrize("rank", [0, 1])
def test_tensorflow_is_told_all_addresses_and_which_is_its_own(
    tmp_path: Path, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    said = Said()
    session = member(tmp_path, said, rank, "tensorflow", (0, 0))
    session.tell(Meet(*WHO, addresses=("a:1", "b:2")))
    with joined(session):
        (met,) = said.messages
        assert isinstance(met, Met)
        assert met.is_each
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("", met.port))
        assert os.environ["TF_CONFIG"] == (
            f'{{"cluster": {{"worker": ["a:1", "b:2"]}}, "task": {{"type": "worker", "index": {rank}}}}}'
        )
    assert "TF_CONFIG" not in os.environ
    with socket.socket() as other:
        other.bind(("", met.port))  # it is free again


def test_horovod_is_told_the_place_of_each_rank_on_its_node_and_across_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks on one node, one on another, none of them in order."""
    for name in HorovodGroup.names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOROVOD_GLOO_TIMEOUT_SECONDS", "7")
    session = member(tmp_path, Said(), 2, "horovod", (0, 1, 0))
    session.tell(Meet(*WHO, port=4321))
    with joined(session):
        found = {name.removeprefix("HOROVOD_"): os.environ[name] for name in HorovodGroup.names}
    assert found == {
        "CONTROLLER": "gloo",
        "CPU_OPERATIONS": "gloo",
        "GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "GLOO_RENDEZVOUS_PORT": "4321",
        "GLOO_TIMEOUT_SECONDS": "7",  # as the user has it
        "GLOO_IFACE": "lo",
        "HOSTNAME": "node0",
        "RANK": "2",
        "SIZE": "3",
        "LOCAL_RANK": "1",
        "LOCAL_SIZE": "2",
        "CROSS_RANK": "0",
        "CROSS_SIZE": "1",
    }
    assert [name for name in os.environ if name in HorovodGroup.names] == ["HOROVOD_GLOO_TIMEOUT_SECONDS"]
    first = horovod_group._Slot(Gang(world_size=3, nodes=(0, 1, 0)), 1)
    assert (first.local_rank, first.local_size, first.cross_rank, first.cross_size) == (0, 1, 1, 2)


def test_an_address_of_no_interface_leaves_the_choice_to_horovod() -> None:
    assert horovod_group._interface_to("256.0.0.1", 1) == ""


def make_error(name: str, module: str, base: type[Exception] = Exception) -> Exception:
    kind = type(name, (base,), {"__module__": module})
    error: Exception = kind("ended")
    return error


def test_what_these_libraries_raise_where_a_rank_has_gone_is_an_echo() -> None:
    errors = "tensorflow.python.framework.errors_impl"
    assert is_echo(make_error("UnavailableError", errors))
    assert is_echo(make_error("HorovodInternalError", "horovod.common.exceptions", RuntimeError))
    assert not is_echo(make_error("InvalidArgumentError", errors))
    assert not is_echo(make_error("UnavailableError", "shop"))


@pytest.mark.parametrize("backend", ["tensorflow", "horovod"])
def test_what_is_not_installed_is_refused_before_anything_starts_or_is_written(
    tmp_path: Path, backend: str
) -> None:
    if importlib.util.find_spec(backend) is not None:
        pytest.skip(f"{backend} is installed here")
    spec = rs.SweepSpec(
        name="t",
        trainable="tests.engine.gangs:places",
        param_space={"x": 1},
        metric="loss",
        mode="min",
        scaling={"num_workers": 2, "backend": backend},
        storage_path=str(tmp_path),
    )
    with pytest.raises(SpecError) as raised:
        rs.run_sweep(spec, address="local", num_cpus=2)
    assert str(raised.value) == (
        f"scaling.backend: '{backend}' needs {backend}, which is not installed;"
        f" install {backend} where the workers run, or write backend: null"
    )
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    problem = import_probe._import_group(backend)
    assert problem is not None
    assert f"install {backend} where the workers run" in problem
