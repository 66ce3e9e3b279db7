"""Where a step runs: from a block, a block's name, a connection or an address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from raysweep.errors import SpecError
from raysweep.jobs.connection import ClusterConnection
from raysweep.step import Place

if TYPE_CHECKING:
    from raysweep_prefect.blocks import RayCluster

_RAY_OWN: Final = frozenset({"auto", "local"})

ClusterLike = "RayCluster | ClusterConnection | str | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Place):
    """Where a step runs, and how another process finds the same place."""

    block: str = ""
    """The name of the block that the connection comes from."""


def find_target(cluster: RayCluster | ClusterConnection | str | None) -> Target:
    """What `cluster` means: an address has a dot or a colon, or is `auto`; other texts name a block.

    Raises: SpecError where there is no such block.
    """
    if cluster is None or cluster == "":
        return Target()
    if isinstance(cluster, ClusterConnection):
        return Target(connection=cluster)
    if not isinstance(cluster, str):
        return Target(connection=cluster.get_connection(), block=cluster.name)
    if cluster in _RAY_OWN or any(mark in cluster for mark in ".:"):
        place = Place.of(cluster)
        return Target(connection=place.connection, address=place.address)
    return Target(connection=load_cluster(cluster).get_connection(), block=cluster)


def load_cluster(name: str) -> RayCluster:
    """The block of this name. Raises: SpecError where there is none."""
    from raysweep_prefect.blocks import RayCluster

    try:
        block = RayCluster.load(name, _sync=True)  # type: ignore[call-arg]
    except ValueError as error:
        if "Unable to find block document" not in str(error):
            raise
        fix = f"save one: RayCluster(address=…, token=…).save({name!r}); or give an address"
        raise SpecError("cluster", f"there is no RayCluster block {name!r}", fix) from None
    assert isinstance(block, RayCluster)
    return block
