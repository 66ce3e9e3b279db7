"""The place where a step runs: from a block, a block's name, a connection or an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import SpecError
from raysweep.jobs.connection import ClusterConnection
from raysweep.provision.document import NightCluster
from raysweep.provision.lifetime import Night
from raysweep.step import Place

if TYPE_CHECKING:
    from raysweep_prefect.blocks import RayCluster

_NO_BLOCKS: Final = frozenset({"auto", "here", "local"})

ClusterLike = "RayCluster | ClusterConnection | str | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Place):
    """The place where a step runs, and the name by which another process finds it."""

    block: str = ""
    """The name of the block that the connection comes from."""
    given: str = ""
    """The block's name or the address: asked again, it tells a token that has changed since."""

    def renewed(self) -> Target | None:
        """The same place with the token that it has now; None where that is the same.

        Raises: SpecError where the block is gone.
        """
        now = find_target(self.given) if self.given else self
        same = now.connection is None or self.connection is None or now.connection == self.connection
        return None if same else now


def find_target(
    cluster: RayCluster | ClusterConnection | NightCluster | Mapping[str, Any] | str | None,
) -> Target:
    """The target of `cluster`: an address has a dot or a colon, or is in `_NO_BLOCKS`; others name a block.

    `rayjob:night.yaml`, or a mapping with `rayjob` in it, is a cluster that is brought up for the step.

    Raises: SpecError where there is no such block.
    """
    if cluster is None or cluster == "":
        return Target()
    if isinstance(cluster, ClusterConnection):
        return Target(connection=cluster)
    night = Night.of(cluster)
    if night is not None:
        return Target(night=night)
    if isinstance(cluster, str):
        if cluster in _NO_BLOCKS or any(mark in cluster for mark in ".:"):
            place = Place.of(cluster)
            return Target(connection=place.connection, address=place.address, given=cluster)
        return replace(_of_block(load_cluster(cluster)), block=cluster, given=cluster)
    assert not isinstance(cluster, NightCluster | Mapping)
    return _of_block(cluster)


def _of_block(block: RayCluster) -> Target:
    night = Night.of(block.address)
    connection = block.get_connection() if night is None else None
    return Target(connection=connection, night=night, block=block.name, given=block.name)


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
