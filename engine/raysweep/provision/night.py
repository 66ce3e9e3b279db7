"""Bring a run's cluster up, connect to it, and remove it: one RayJob per run, however often it is asked for.

Crash windows, of a caller that dies (or whose answers are lost) at any point:

- before the RayJob is created: there is nothing.
- after it, before the cluster is ready: the next try finds it by its name and waits on. With no next try the
  lease in its annotations is not renewed: the next run of this namespace, or `raysweep clusters --remove`,
  deletes it; `activeDeadlineSeconds` ends it where there is none of these.
- while the sweep runs: the sweep continues, and the next try adopts the cluster. With no next try the keeper
  ends once the sweep has ended, and KubeRay deletes the cluster.
- after the outcome, before the delete: the keeper ends, as above.

A delete names the uid that was seen: it never hits a cluster that another try has brought up since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from pydantic import SecretStr

from raysweep.errors import (
    ClusterAuthError,
    ClusterError,
    ClusterLostError,
    ClusterStartError,
    ClusterUnreachableError,
    RaysweepError,
    SpecError,
)
from raysweep.jobs.client import JobsClient
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.patience import UNREACHABLE_S, Patience
from raysweep.jobs.sync import run_sync
from raysweep.provision.api import KubeApi
from raysweep.provision.document import NightCluster
from raysweep.provision.kubeconfig import KubeAccess, find_access
from raysweep.provision.manifest import (
    MANIFEST_ANNOTATION,
    RENEWED_ANNOTATION,
    RUN_ANNOTATION,
    digest_of_manifest,
    name_of,
    namespace_of,
    read_manifest,
    render,
)
from raysweep.provision.states import (
    fix_of,
    how_far,
    is_ours,
    lease_left_s,
    phase_of,
    why_ended,
    why_leaked,
)

LOG: Final = logging.getLogger("raysweep.provision")
PAUSE_S: Final = 2.0
"""Between two looks at a cluster that is not ready."""
RENEW_SHARE: Final = 0.75
"""The lease is renewed once no more than this share of it is left."""
TOKEN_ENTRY: Final = "auth_token"
"""Of the secret that KubeRay makes for `authOptions`."""
_LASTING: Final = frozenset({"AppFailed", "ValidationFailed"})
"""Reasons that the next try would meet again."""

Tell = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaked:
    """A cluster that raysweep brought up, as `find_leaked` finds it."""

    name: str
    uid: str
    run_id: str
    phase: str
    why: str
    """The reason why it is left over; empty where it is not."""


@asynccontextmanager
async def _open(night: NightCluster) -> AsyncIterator[tuple[KubeApi, dict[str, Any]]]:
    document = read_manifest(night.manifest)
    access = await asyncio.to_thread(find_access, night.kubeconfig, night.context)
    async with KubeApi(access, namespace_of(document, night, access.namespace)) as api:
        yield api, document


async def bring_up(night: NightCluster, run_id: str, *, tell: Tell | None = None) -> ClusterConnection:
    """See that a run's cluster is up, and return how to reach it: creates it, or adopts what is there.

    Safe to repeat, from anywhere: fifty calls at once create one cluster.

    Args:
        night: What the user says of the cluster.
        run_id: The run that it is for.
        tell: Called with a line for people when something has changed; default: it is logged.

    Raises:
        SpecError: The manifest or the kubeconfig cannot be used, or the cluster would fail again.
        ClusterStartError: It did not come up within `ready_s`, or ended; it has been deleted.
        ClusterError: The API server does not answer or refuses; see `retryable`.
    """
    async with _open(night) as (api, document):
        await _remove_leaked(api, keep=name_of(run_id))
        bringing = _Bringing(api, document, night, run_id, tell or (lambda line: LOG.info("%s", line)))
        job = await bringing.run()
        connection = await _connection(api, night, job, run_id)
        await _check_reached(connection, api.access, night)
        return connection


class _Bringing:
    """One call of `bring_up`: looks, acts on what it sees, looks again."""

    def __init__(
        self, api: KubeApi, document: dict[str, Any], night: NightCluster, run_id: str, tell: Tell
    ) -> None:
        self._api, self._document, self._night = api, document, night
        self._run_id, self._tell = run_id, tell
        self._name = name_of(run_id)
        self._shown = f"rayjob {api.namespace}/{self._name}"
        self._followed: set[str] = set()
        """The uids of those that have been seen alive."""
        self._said = ""

    async def run(self) -> dict[str, Any]:
        """The RayJob, once its cluster is ready."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._night.ready_s
        patience = Patience(UNREACHABLE_S)
        job: dict[str, Any] | None = None
        while True:
            try:
                job = await self._api.get_job(self._name)
                if await self._is_ready(job):
                    assert job is not None
                    return job
                patience.renew()
            except ClusterStartError:
                raise
            except ClusterError as error:
                patience.spend(error)
            if loop.time() > deadline:
                raise await self._too_slow(job)
            await asyncio.sleep(PAUSE_S)

    async def _is_ready(self, job: dict[str, Any] | None) -> bool:
        """Act on what is seen; whether the cluster is ready."""
        phase = phase_of(job)
        if job is None:
            await self._create()
            return False
        if not is_ours(job):
            fix = "delete it, or use another key"
            raise SpecError("rayjob", f"{self._shown} exists, and raysweep did not create it", fix)
        uid = str(job["metadata"].get("uid", ""))
        if phase == "ended":
            await self._end(job, uid)
            return False
        if phase == "leaving":
            self._say(f"{self._shown}: waiting for an earlier cluster to be gone")
            return False
        if uid not in self._followed:
            self._followed.add(uid)
            self._note_adopted(job)
        if phase == "ready":
            self._say(f"{self._shown}: ready")
            return True
        await self._renew(job)
        self._say(f"{self._shown}: {how_far(job)}")
        return False

    async def _create(self) -> None:
        made = render(
            self._document,
            self._night,
            run_id=self._run_id,
            namespace=self._api.namespace,
            now=self._api.now(),
        )
        created = await self._api.create_job(made)
        if created is not None:
            self._followed.add(str(created["metadata"].get("uid", "")))
            self._say(f"{self._shown}: created")

    async def _end(self, job: dict[str, Any], uid: str) -> None:
        """Replace one that an earlier try has left; raise for one that failed while this call followed it."""
        await self._api.delete_job(self._name, uid)
        has_failed = (job.get("status") or {}).get("jobDeploymentStatus") == "Failed"
        if uid not in self._followed or not has_failed:
            self._say(f"{self._shown}: an earlier one ended ({why_ended(job)}): it is replaced")
            return
        reason = (job.get("status") or {}).get("reason")
        if reason in _LASTING:
            raise SpecError("rayjob", f"{self._shown} ended: {why_ended(job)}", fix_of(job))
        raise ClusterStartError(self._shown, f"did not come up: {why_ended(job)}", fix_of(job))

    def _note_adopted(self, job: dict[str, Any]) -> None:
        self._say(f"{self._shown}: adopted")
        was = (job["metadata"].get("annotations") or {}).get(MANIFEST_ANNOTATION)
        if was != digest_of_manifest(self._document):
            LOG.warning("%s was brought up from another manifest, and stays as it is", self._shown)

    async def _renew(self, job: dict[str, Any]) -> None:
        now = self._api.now()
        if lease_left_s(job, now) <= RENEW_SHARE * self._night.idle_s:
            await self._api.annotate_job(self._name, {RENEWED_ANNOTATION: f"{now:.0f}"})

    async def _too_slow(self, job: dict[str, Any] | None) -> ClusterError:
        seen = how_far(job) if job is not None else "it could not be seen"
        if job is not None and phase_of(job) == "coming":
            await self._api.delete_job(self._name, str(job["metadata"].get("uid", "")))
        fix = "see whether the cluster has room for its pods and can pull its images, or raise ready_s"
        problem = f"was not ready within {self._night.ready_s:.0f} s ({seen}), and was deleted"
        return ClusterStartError(self._shown, problem, fix)

    def _say(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._tell(line)


async def connect(night: NightCluster, run_id: str) -> ClusterConnection:
    """Connect to a run's cluster that is up; brings up nothing.

    Raises: ClusterLostError where it is not up, with how it ended. ClusterError, SpecError.
    """
    async with _open(night) as (api, _):
        job = await api.get_job(name_of(run_id))
        if phase_of(job) != "ready":
            raise _lost(api, run_id, job)
        assert job is not None
        return await _connection(api, night, job, run_id)


async def tear_down(night: NightCluster, run_id: str) -> bool:
    """Delete a run's cluster with all that belongs to it; whether there was one."""
    async with _open(night) as (api, _):
        job = await api.get_job(name_of(run_id))
        if job is None or not is_ours(job) or phase_of(job) == "leaving":
            return False
        return await api.delete_job(name_of(run_id), str(job["metadata"].get("uid", "")))


async def find_leaked(night: NightCluster) -> list[Leaked]:
    """All clusters of the namespace that raysweep brought up, and which of them are left over."""
    async with _open(night) as (api, _):
        return [_as_leaked(api, job) for job in await api.own_jobs()]


async def remove(night: NightCluster, leaked: Leaked) -> bool:
    """Delete one of them; whether it was still there."""
    async with _open(night) as (api, _):
        return await api.delete_job(leaked.name, leaked.uid)


def _as_leaked(api: KubeApi, job: dict[str, Any]) -> Leaked:
    metadata = job["metadata"]
    return Leaked(
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        run_id=str((metadata.get("annotations") or {}).get(RUN_ANNOTATION, "")),
        phase=phase_of(job),
        why=why_leaked(job, api.now()),
    )


async def _remove_leaked(api: KubeApi, *, keep: str) -> None:
    """Delete what earlier runs of this namespace have left over. The run does not depend on it."""
    try:
        for each in [_as_leaked(api, job) for job in await api.own_jobs()]:
            if each.why and each.name != keep and await api.delete_job(each.name, each.uid):
                LOG.warning("rayjob %s/%s was left over, %s: deleted", api.namespace, each.name, each.why)
    except ClusterError as error:
        LOG.warning("clusters that are left over could not be looked for: %s", error)


# --- how a cluster is reached


async def _connection(
    api: KubeApi, night: NightCluster, job: dict[str, Any], run_id: str
) -> ClusterConnection:
    token = await _ray_token(api, job)
    # Like "x-head-svc.ml.svc.cluster.local:8265".
    head = str(job["status"]["dashboardURL"]).removeprefix("http://").rstrip("/")
    renew = _Renew(night, run_id)
    if night.reach == "service" or (night.reach == "auto" and api.access.is_pod):
        return ClusterConnection(address=f"http://{head}", token=token, trust_env=False, renew=renew)
    host, _, port = head.partition(":")
    service = quote(f"http:{host.partition('.')[0]}:{port or '8265'}", safe=":")
    access = api.access
    kube = await asyncio.to_thread(access.token.read)
    # The API server takes the usual header for itself; Ray looks at its own, too.
    ray = {"X-Ray-Authorization": SecretStr(f"Bearer {token.get_secret_value()}")} if token else {}
    return ClusterConnection(
        address=f"{access.server}/api/v1/namespaces/{quote(api.namespace)}/services/{service}/proxy",
        token=kube or SecretStr(""),
        verify=access.verify,
        ca_bundle=access.ca_file,
        client_cert=access.cert_file,
        client_key=access.key_file,
        proxy=SecretStr(access.proxy) if access.proxy else None,
        trust_env=access.proxy is None,
        headers=ray,
        renew=renew,
    )


@dataclass(frozen=True, slots=True)
class _Renew:
    """Reads the connection of a run's cluster again, as its secrets may have changed."""

    night: NightCluster
    run_id: str

    def __call__(self) -> ClusterConnection:
        return run_sync(lambda: connect(self.night, self.run_id))


async def _ray_token(api: KubeApi, job: dict[str, Any]) -> SecretStr | None:
    """Ray's token, from the secret that KubeRay keeps; without `authOptions` that of the environment."""
    options = (job["spec"].get("rayClusterSpec") or {}).get("authOptions") or {}
    if options.get("mode") != "token":
        return None
    name = options.get("secretName") or job["status"].get("rayClusterName")
    return await api.secret(str(name), TOKEN_ENTRY)


async def _check_reached(connection: ClusterConnection, access: KubeAccess, night: NightCluster) -> None:
    """See that the Jobs API answers where it is looked for."""
    try:
        async with JobsClient(connection) as client:
            await client.jobs()
    except ClusterUnreachableError as error:
        fix = "give reach: proxy, which goes through Kubernetes' API server" if night.reach != "proxy" else ""
        raise ClusterUnreachableError(connection.address, error.problem, fix or error.fix) from None
    except ClusterAuthError as error:
        if not connection.address.startswith(access.server):
            raise
        fix = "bind a Role with services/proxy, as in deploy/night-rbac.yaml"
        raise ClusterAuthError(connection.address, error.problem, fix) from None


def _lost(api: KubeApi, run_id: str, job: dict[str, Any] | None) -> ClusterLostError:
    shown = f"rayjob {api.namespace}/{name_of(run_id)}"
    phase = phase_of(job)
    if job is not None and phase == "ended":
        return ClusterLostError(shown, f"ended: {why_ended(job)}", f"{fix_of(job)}; run again to resume")
    seen = {"absent": "is gone", "leaving": "is being deleted"}.get(phase)
    seen = seen or f"is not up any more: {how_far(job or {})}"
    return ClusterLostError(shown, seen, "run again with the same key: it resumes on a new cluster")


async def explain(night: NightCluster, run_id: str, error: ClusterError) -> ClusterError:
    """The error of a cluster that went away: what Kubernetes says of it, where it says anything."""
    try:
        async with _open(night) as (api, _):
            job = await api.get_job(name_of(run_id))
            return _lost(api, run_id, job) if phase_of(job) != "ready" else error
    except RaysweepError:
        return error
