"""The cluster that is brought up for one task, and removed once nothing continues on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from raysweep.errors import RaysweepError
from raysweep.jobs.sync import run_sync
from raysweep.provision import NightCluster, bring_up
from raysweep.provision.lifetime import ended, remove_after
from raysweep.runs.reading.view import Outcome
from raysweep_airflow import documents
from raysweep_airflow.hooks import Access


def night_of(address: Any, context: Mapping[str, Any]) -> NightCluster | None:
    """The cluster that an address asks for, or None; its manifest is beside the DAG."""
    night = NightCluster.of(address)
    if night is None:
        return None
    return night.replace(rayjob=str(documents.find(night.manifest, context, "address.rayjob")))


def brought_up(night: NightCluster, run_id: str, tell: Callable[[str], None]) -> Access:
    """Bring it up, or adopt the one that an earlier try has brought up."""
    cluster = run_sync(lambda: bring_up(night, run_id, tell=tell))
    return Access(cluster=cluster, dashboard_url=cluster.address)


def after(night: NightCluster, run_id: str, result: Outcome | RaysweepError) -> Outcome | RaysweepError:
    """Remove the cluster where nothing continues on it; the result, or how the cluster was lost."""
    if isinstance(result, RaysweepError):
        error = result
        return run_sync(lambda: ended(night, run_id, error))
    remove_after(night, run_id)
    return result
