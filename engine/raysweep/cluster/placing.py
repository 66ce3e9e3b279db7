"""The placement of an address, and its use for a while."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from raysweep.errors import ClusterUnreachableError, SpecError

if TYPE_CHECKING:
    from raysweep.cluster.placement import Placement

HERE: Final = "here"
"""The address of this machine without Ray."""


def has_ray() -> bool:
    """True if Ray is installed."""
    return importlib.util.find_spec("ray") is not None


def is_here(address: str | None) -> bool:
    """True if sweeps at this address run without Ray: by the address, or without one and without Ray."""
    return address == HERE or (address is None and not has_ray())


def is_this_machine(address: str | None) -> bool:
    """True if the workers can import what this process can."""
    return address in (None, "local", HERE)


def check_training(address: str | None) -> None:
    """A training is a run of Ray Train. Raises: SpecError where the address has no Ray."""
    if not is_here(address):
        return
    if not has_ray():
        fix = "pip install 'raysweep[ray]', or give the address of a cluster's Jobs API"
        raise SpecError("address", "a training requires Ray Train, and Ray is not installed here", fix)
    fix = "leave it out (an embedded Ray), or give that of a cluster"
    raise SpecError("address", "'here' runs without Ray, and a training is a run of Ray Train", fix)


@contextmanager
def placed(address: str | None = None, num_cpus: float | None = None) -> Iterator[Placement]:
    """Use this machine without Ray, or a Ray, as `cluster.ray.connection.connect` has it.

    Args:
        address: None, `"here"`, `"local"` (an embedded Ray), `"auto"`, or `host:port`.
        num_cpus: How many CPUs to use of this machine; default: its cores.

    Raises:
        ClusterError: The Ray cannot be used.
    """
    if is_here(address):
        from raysweep.cluster.here.placement import here

        with here(num_cpus) as placement:
            yield placement
        return
    if not has_ray():
        fix = "pip install 'raysweep[ray]', or leave the address out: sweeps then run on this machine"
        raise ClusterUnreachableError(str(address), "Ray is not installed here", fix)
    from raysweep.cluster.ray.connection import connect

    with connect(address, num_cpus) as connection:
        from raysweep.cluster.ray.placement import RayPlacement

        yield RayPlacement(connection)


def stage_of(address: str | None) -> str:
    """The step that `placed` is about to do, and the reason, in a few words."""
    if address == HERE:
        return "starting workers on this machine, without Ray"
    if is_here(address):
        return "starting workers on this machine: Ray is not installed"
    from raysweep.cluster.ray import connection

    return connection.stage_of(address)
