"""Ways to run sweeps on the head, and to look at what is left on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.jobs import ClusterConnection
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.jobs.cluster import Cluster
from tests.jobs.head import Head

HERE = "tests.engine.trainables"


@pytest.fixture
def connection(head: Head) -> ClusterConnection:
    return ClusterConnection(address=head.address, token=head.token, trust_env=False)


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """Where sweeps are stored; the head is on this machine and can write there."""
    return tmp_path / "sweeps"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file to which the trainables of `tests/engine/trainables.py` write a line at each start or step."""
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def lines(log: Path) -> Callable[[], list[list[str]]]:
    """The log's lines, each split at its spaces."""
    return lambda: [line.split() for line in log.read_text().splitlines()]


@pytest.fixture
def cluster(head: Head) -> Cluster:
    return Cluster(head)


@pytest.fixture
def make_spec(storage: Path, log: Path) -> Callable[..., rs.SweepSpec]:
    """A spec for a trainable, by its name in `tests/engine/trainables.py`; `space` adds to its space."""

    def make(trainable: str, space: dict[str, Any] | None = None, **fields: Any) -> rs.SweepSpec:
        plain: dict[str, Any] = {"name": "t", "metric": "loss", "mode": "min", "seed": 7, "search": "random"}
        plain["param_space"] = {"log": str(log), "x": {"uniform": [0, 1]}} | (space or {})
        reference = trainable if ":" in trainable else f"{HERE}:{trainable}"
        return rs.SweepSpec(trainable=reference, storage_path=str(storage), **plain | fields)

    return make


@pytest.fixture
def folder_of() -> Callable[..., SweepFolder]:
    """The folder of a spec's sweep under the key `k`."""

    def find(spec: rs.SweepSpec, key: str = "k") -> SweepFolder:
        return SweepFolder(open_store(spec.storage_path), sweep_id(spec.name, key))

    return find
