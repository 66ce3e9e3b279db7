"""The life of a cluster: from before a run, or the runs of a pipeline, to after it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from raysweep.errors import ClusterError, RaysweepError, SpecChangedError
from raysweep.jobs.client import JobsClient
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.sync import run_sync
from raysweep.provision.document import NightCluster
from raysweep.provision.keeper import is_busy
from raysweep.provision.night import Tell, bring_up, explain, tear_down
from raysweep.threads import on_thread

LOG: Final = logging.getLogger("raysweep.provision")
REMOVE_S: Final = 30.0
"""The longest removal of a cluster whose run has ended: it ends by itself too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """A cluster for one run, or for several of a pipeline."""

    cluster: NightCluster
    run_id: str = ""
    """The run that names it; empty: the run that asks."""
    is_shared: bool = False
    """True if it outlives the runs that ask for it, as another call removes it."""
    uses: list[str] = field(default_factory=list, compare=False, repr=False)
    """The runs that have asked for it."""

    @classmethod
    def of(cls, address: object) -> Night | None:
        """The night of an address; None where it is of another kind. Raises: SpecError."""
        if isinstance(address, Night):
            return address
        cluster = NightCluster.of(address)
        return cls(cluster=cluster) if cluster is not None else None


@contextmanager
def up(
    night: Night, run_id: str, *, tell: Tell | None = None, is_kept: bool = False
) -> Iterator[ClusterConnection]:
    """A run's cluster, brought up before the block and removed after it.

    It stays where the run may continue: the block was interrupted, or raised an error that a retry may help.
    Where the run is over with an error, it is removed unless another job runs on it.

    Args:
        night: The cluster.
        run_id: The run that asks.
        tell: As for `bring_up`.
        is_kept: Leave it up in any case: its keeper ends it.

    Raises:
        ClusterLostError: The cluster went away meanwhile, with how it ended.
        What `bring_up` and the block raise.
    """
    named = night.run_id or run_id
    is_kept = is_kept or night.is_shared
    night.uses.append(run_id)
    connection = run_sync(lambda: bring_up(night.cluster, named, tell=tell))
    try:
        yield connection
    except ClusterError as error:
        lost = error
        raise run_sync(lambda: explain(night.cluster, named, lost)) from None
    except RaysweepError as error:
        if not is_kept and is_over(error):
            remove_after(night.cluster, named, connection)
        raise
    if not is_kept:
        remove_after(night.cluster, named)


@contextmanager
def shared(address: object, run_id: str) -> Iterator[object]:
    """The address for all runs of a pipeline: a night's cluster serves them all, and is removed at the end.

    Args:
        address: Any address; one that is no night's cluster comes back as it is.
        run_id: The run that names the cluster: the sweep.
    """
    night = Night.of(address)
    if night is None or night.is_shared:
        yield address
        return
    one = Night(cluster=night.cluster, run_id=run_id, is_shared=True)
    try:
        yield one
    except RaysweepError as error:
        if is_over(error) and one.uses:
            remove_after(night.cluster, run_id)
        raise
    if one.uses:
        remove_after(night.cluster, run_id)


def is_over(error: BaseException) -> bool:
    """True if nothing continues on the cluster after this error: not one that a retry may help."""
    stays = ClusterError | SpecChangedError | KeyboardInterrupt
    return isinstance(error, RaysweepError) and not error.retryable and not isinstance(error, stays)


def remove_after(night: NightCluster, run_id: str, connection: ClusterConnection | None = None) -> None:
    """Remove a run's cluster at the end of the run. What fails is logged: the keeper ends the cluster too.

    Args:
        night: The cluster.
        run_id: The run that names it.
        connection: Where given, it stays while a job other than the keeper runs on it.
    """

    async def go() -> bool:
        async with asyncio.timeout(REMOVE_S):
            if connection is not None:
                async with JobsClient(connection) as client:
                    if is_busy(await client.jobs()):
                        LOG.warning("the cluster of %s stays: a job runs on it", run_id)
                        return False
            return await tear_down(night, run_id)

    try:
        if run_sync(go):
            LOG.info("the cluster of %s is removed", run_id)
    except (RaysweepError, TimeoutError) as error:
        said = str(error) or f"no answer within {REMOVE_S:.0f} s"
        LOG.warning(
            "the cluster of %s was not removed (%s); it ends %.0f s after its last job",
            run_id,
            said,
            night.idle_s,
        )


async def ended(night: NightCluster, run_id: str, error: RaysweepError) -> RaysweepError:
    """As the end of `up`, for a wait that failed elsewhere: the error to raise, the cluster removed."""
    if isinstance(error, ClusterError):
        return await explain(night, run_id, error)
    if is_over(error):
        await on_thread(lambda: remove_after(night, run_id))
    return error
