"""The jobs of a flow run: noted at the flow run itself, for the hooks, which know nothing else.

A note is a flow-run input `raysweep-job-<attempt>-<run>-<number>`. It names the job and, where there is one,
the block by which another process reaches the cluster. There is no secret in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from uuid import UUID

import orjson
from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectAlreadyExists, PrefectHTTPStatusError

from raysweep.jobs.attach import RunningJob
from raysweep.jobs.connection import ClusterConnection
from raysweep_prefect.clusters import load_cluster

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

    from raysweep_prefect.identity import Asker

PREFIX: Final = "raysweep-job"
_CONFLICT: Final = 409
_MOST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedJob:
    """A job, and how to reach its cluster."""

    job: RunningJob
    block: str = ""
    """The RayCluster block; empty where an address was given."""

    def connection(self) -> ClusterConnection:
        """The connection to its cluster. Raises: SpecError where the block is gone."""
        return (
            load_cluster(self.block).get_connection()
            if self.block
            else ClusterConnection.of(self.job.address)
        )


def note_job(asker: Asker, job: RunningJob, block: str) -> None:
    """Note that this attempt of the flow run waits for this job."""
    name = blake2b(job.run_id.encode(), digest_size=5).hexdigest()
    key = f"{PREFIX}-{asker.attempt}-{name}-{job.number}"
    value = orjson.dumps({"job": job.to_dict(), "block": block}).decode()
    with get_client(sync_client=True) as client:
        try:
            client.create_flow_run_input(flow_run_id=asker.owner_id, key=key, value=value)
        except ObjectAlreadyExists:
            return  # a retry of the task, attached to the same job
        except PrefectHTTPStatusError as error:
            if error.response.status_code != _CONFLICT:
                raise


def noted_jobs(client: SyncPrefectClient, owner_id: UUID, attempt: int) -> list[NotedJob]:
    """The jobs that this attempt waited for: of each sweep or training the newest."""
    found: dict[str, str] = {}
    while True:  # the server gives no more than so many at once
        inputs = client.filter_flow_run_input(
            flow_run_id=owner_id, key_prefix=f"{PREFIX}-{attempt}-", limit=_MOST, exclude_keys=set(found)
        )
        found |= {each.key: each.value for each in inputs}
        if len(inputs) < _MOST:
            return _newest(orjson.loads(value) for value in found.values())


def _newest(records: Iterable[dict[str, object]]) -> list[NotedJob]:
    found: dict[str, NotedJob] = {}
    for record in records:
        fields = record["job"]
        assert isinstance(fields, dict)
        job = RunningJob.from_dict(fields)
        known = found.get(job.run_id)
        if known is None or known.job.number < job.number:
            found[job.run_id] = NotedJob(job=job, block=str(record.get("block") or ""))
    return list(found.values())
