"""Blocks: a Ray cluster with its credentials, and a sweep as a job of one.

    RayCluster(address="https://ray.example.com", token=token).save("prod")
    SweepJob(spec="flights.yaml", cluster=RayCluster.load("prod")).save("flights")

    run = SweepJob.load("flights").trigger()
    run.wait_for_completion()
    outcome = run.fetch_result()

Every call has an async twin (`atrigger`, `await_for_completion`, …); in async code the plain name is that.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from prefect._internal.compatibility.async_dispatch import async_dispatch
from prefect.blocks.abstract import CredentialsBlock, JobBlock, JobRun
from prefect.types import SecretDict
from pydantic import Field, SecretStr, field_validator

from raysweep.errors import RaysweepError
from raysweep.jobs.attach import RunningJob, ended_outcome, submit
from raysweep.jobs.client import JobsClient
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.follow import cancel, wait
from raysweep.jobs.notes import ProgressLines
from raysweep.jobs.options import JobOptions
from raysweep.jobs.sync import run_sync
from raysweep.outcome import SweepOutcome
from raysweep.provision import NightCluster, bring_up
from raysweep.provision.lifetime import ended, remove_after
from raysweep.specs import RunRequest, SweepSpec
from raysweep.stored import StoredSweep
from raysweep.threads import on_thread
from raysweep_prefect.identity import default_key
from raysweep_prefect.parameters import JobSettings

NOWHERE = "http://nowhere.invalid"
DOCS = "https://docs.ray.io/en/latest/ray-security/token-auth.html"


class RayCluster(CredentialsBlock):
    """A Ray cluster: the address of its Jobs API, and how to get in. Secrets are stored encrypted."""

    _block_type_name: ClassVar[str] = "Ray Cluster"
    _block_type_slug: ClassVar[str] = "raysweep-cluster"
    _documentation_url: ClassVar[Any] = DOCS

    address: str = Field(
        description="Of the dashboard: http://head:8265 or https://…; a path before /api is kept. Or "
        "rayjob:night.yaml: a cluster brought up on Kubernetes for each run, by a manifest on the worker."
    )
    token: SecretStr | None = Field(
        default=None,
        description="The cluster's RAY_AUTH_TOKEN; default: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or "
        "~/.ray/auth_token of the worker.",
    )
    verify: bool = Field(
        default=True, description="Check the server's certificate. Off only for test servers."
    )
    ca_bundle: str | None = Field(
        default=None,
        description="A PEM file on the worker, with the authorities trusted in place of the usual ones.",
    )
    client_cert: str | None = Field(
        default=None,
        description="A PEM file on the worker with its certificate, where the server asks for one.",
    )
    client_key: str | None = Field(default=None, description="Its key, where it is not in the same file.")
    proxy: SecretStr | None = Field(
        default=None, description="The URL of a proxy; default: HTTPS_PROXY and NO_PROXY of the worker."
    )
    trust_env: bool = Field(
        default=True, description="Take proxies, and SSL_CERT_FILE, from the environment."
    )
    headers: SecretDict | None = Field(
        default=None, description="Further headers of each request, for what stands before the cluster."
    )

    @property
    def name(self) -> str:
        """Under which it was saved; empty where it was not."""
        return self._block_document_name or ""

    def get_connection(self) -> ClusterConnection:
        """The connection that raysweep's own functions take. Raises SpecError for what cannot be."""
        headers = self.headers.get_secret_value() if self.headers is not None else {}
        return ClusterConnection(
            address=self.address,
            token=self.token,
            verify=self.verify,
            ca_bundle=self.ca_bundle,
            client_cert=self.client_cert,
            client_key=self.client_key,
            proxy=self.proxy,
            trust_env=self.trust_env,
            headers={name: SecretStr(str(value)) for name, value in headers.items()},
        )

    def get_client(self) -> JobsClient:
        """An async client of the Jobs API: use it in `async with`."""
        return JobsClient(self.get_connection())


class SweepJobRun(JobRun[StoredSweep]):
    """A sweep on a cluster. Any process can take it up again: the same spec and key attach to it."""

    def __init__(
        self,
        job: RunningJob,
        connection: ClusterConnection,
        settings: JobSettings,
        night: NightCluster | None = None,
    ) -> None:
        self.job = job
        self._night = night
        self._connection = connection
        self._settings = settings
        self._outcome: StoredSweep | None = None

    async def await_for_completion(self) -> StoredSweep:
        """Wait until the sweep has ended, whichever way.

        Raises:
            RaysweepError: There will be no outcome, or not from this job; `retryable` says whether to trigger
                it again.
        """
        try:
            outcome = await wait(
                self.job,
                to=self._connection,
                on_progress=ProgressLines(self.logger.info, every_s=0.0),
                lease_ttl_s=self._settings.lease_ttl_s,
            )
        except RaysweepError as error:
            if self._night is None:
                raise
            raise await ended(self._night, self.job.run_id, error) from None
        assert isinstance(outcome, SweepOutcome)
        if self._night is not None and self._outcome is None:
            await on_thread(partial(remove_after, self._night, self.job.run_id))
        self._outcome = StoredSweep.of(outcome)
        return self._outcome

    @async_dispatch(await_for_completion)
    def wait_for_completion(self) -> StoredSweep:  # type: ignore[override]
        """As `await_for_completion`."""
        return run_sync(self.await_for_completion)

    async def afetch_result(self) -> StoredSweep:
        """The outcome; waits for it if necessary.

        Raises:
            SweepFailedError: The sweep ended without a result that may be used.
            RaysweepError: As `await_for_completion`.
        """
        outcome = self._outcome or await self.await_for_completion()
        return outcome.raise_for_status()

    @async_dispatch(afetch_result)
    def fetch_result(self) -> StoredSweep:  # type: ignore[override]
        """As `afetch_result`."""
        return run_sync(self.afetch_result)

    async def acancel(self, reason: str = "") -> bool:
        """Cancel the sweep; whether it was running. Never hits a later job of the same sweep."""
        return await cancel(self.job, to=self._connection, reason=reason, by="a Prefect block")

    @async_dispatch(acancel)
    def cancel(self, reason: str = "") -> bool:
        """As `acancel`."""
        return run_sync(partial(self.acancel, reason))


class SweepJob(JobBlock[StoredSweep]):
    """A sweep on a Ray cluster, ready to be triggered."""

    _block_type_name: ClassVar[str] = "Sweep Job"
    _block_type_slug: ClassVar[str] = "raysweep-job"

    spec: dict[str, Any] | str = Field(
        description="The sweep's spec: its fields, or the path of a YAML or JSON file on the worker."
    )
    cluster: RayCluster = Field(description="The cluster that it runs on.")
    key: str | None = Field(
        default=None,
        description="Names the run: the same key is the same sweep. Default: the flow run that triggers it, "
        "elsewhere the spec itself.",
    )
    job: JobSettings = Field(
        default_factory=JobSettings, description="The code of the job, and the place of its driver."
    )

    @field_validator("spec")
    @classmethod
    def _check(cls, given: dict[str, Any] | str) -> dict[str, Any] | str:
        if isinstance(given, dict):
            try:
                SweepSpec.from_any(given)
            except RaysweepError as error:
                raise ValueError(str(error)) from None
        return given

    async def atrigger(self) -> SweepJobRun:
        """See that the sweep is on its way: submits it, or attaches to the job that runs it.

        Raises: SpecError, SpecChangedError, JobStoppedError, ClusterError, StorageError.
        """
        spec, options = SweepSpec.from_any(self.spec), JobOptions.of(self.job)
        request = RunRequest.of(spec, self.key or default_key("sweep"))
        night = NightCluster.of(self.cluster.address)
        if night is None:
            connection = self.cluster.get_connection()
        elif await on_thread(partial(ended_outcome, request, options)) is not None:
            night, connection = None, ClusterConnection(address=NOWHERE)  # not asked: the outcome is there
        else:
            connection = await bring_up(night, request.run.id, tell=self.logger.info)
        job = await submit(request, to=connection, options=options)
        self.logger.info("sweep %s: %s job %s", job.run_id, job.how, job.job_id or "(none)")
        return SweepJobRun(job, connection, self.job, night)

    @async_dispatch(atrigger)
    def trigger(self) -> SweepJobRun:  # type: ignore[override]
        """As `atrigger`."""
        return run_sync(self.atrigger)
