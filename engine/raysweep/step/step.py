"""One step from its request to its end: as a job of a cluster, or on a Ray of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from raysweep.errors import RaysweepError, SweepNotFoundError
from raysweep.jobs.attach import Announce, RunningJob, ended_outcome
from raysweep.jobs.connection import ClusterConnection, is_jobs_address
from raysweep.jobs.options import JobOptions
from raysweep.jobs.sync import Cluster
from raysweep.outcome import SweepOutcome
from raysweep.provision.document import NightCluster
from raysweep.provision.lifetime import Night, up
from raysweep.provision.night import Tell, connect
from raysweep.runs.ownership.reopening import told
from raysweep.runs.reading.view import Outcome, RunView
from raysweep.specs import AnyRequest, RunRequest, SweepSpec, TrainSpec
from raysweep.step.verdict import complete
from raysweep.stored import StoredSweep, stored

Address = str | ClusterConnection | NightCluster | Night | Mapping[str, Any] | None
"""The place where something runs: see `raysweep.run_sweep`."""
OnProgress = Callable[[Any], None]
"""Takes a `SweepProgress`; of a training in this process a `TrainProgress`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place where a step runs: as a job of a cluster, which outlives this process, or in this process."""

    connection: ClusterConnection | None = None
    """The cluster's Jobs API; None for a run in this process."""
    address: str | None = None
    """For a run in this process: what `ray.init` takes; None: the Ray of this process, or an embedded one."""
    night: Night | None = None
    """A cluster that is brought up for the step, which then is a job of it; see `raysweep.provision`."""

    @classmethod
    def of(cls, address: Address) -> Place:
        """The place of an address. Raises: SpecError for a URL that is none."""
        if isinstance(address, ClusterConnection):
            return cls(connection=address)
        night = Night.of(address)
        if night is not None:
            return cls(night=night)
        assert address is None or isinstance(address, str)
        if address is not None and is_jobs_address(address):
            return cls(connection=ClusterConnection.of(address))
        return cls(address=address)

    @property
    def is_job(self) -> bool:
        """True if what runs there outlives this process."""
        return self.connection is not None or self.night is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step's run, its place, and the ends that count. Safe to repeat: the same request is the same run."""

    request: AnyRequest
    place: Place = Place()
    options: JobOptions = field(default_factory=JobOptions)
    """Options of the job; of a run in this process `takeover` counts, and what `again` is made of."""
    accept_partial: bool = True
    """True if a search cut short by its deadline or a budget counts, with the best so far."""
    accept_failed: bool = False
    """True if a sweep counts however it ended, as in `complete`."""

    @property
    def view(self) -> RunView:
        """The storage's view of the run. Raises: StorageError."""
        return RunView(self.request.run.kind, self.request.spec.storage_path, self.request.run.id)

    @property
    def cluster(self) -> Cluster:
        """The cluster that it runs on as a job."""
        assert self.place.connection is not None
        return Cluster(self.place.connection)

    async def connect(self) -> ClusterConnection:
        """Connect to the cluster that it runs on as a job, for calls beside the wait.

        Raises: ClusterLostError where a cluster that was brought up for it is not up.
        """
        night = self.place.night
        if night is not None:
            return await connect(night.cluster, night.run_id or self.request.run.id)
        assert self.place.connection is not None
        return self.place.connection

    def run(
        self,
        *,
        on_progress: OnProgress | None = None,
        beside: Callable[[RunningJob | None], AbstractContextManager[OnProgress | None]] | None = None,
        announce: Announce | None = None,
        num_cpus: float | None = None,
        scheduled_at: datetime | None = None,
        tell: Tell | None = None,
    ) -> Outcome:
        """Submit or attach and wait, or run it here; how it ended.

        Args:
            on_progress: Called with the progress, as in `raysweep.run_sweep` and `raysweep.run_training`.
            beside: Instead, a context around the wait: given the job, if it is one, it gives `on_progress`.
            announce: Gets the job's handle before it is submitted, as in `submit`.
            num_cpus: Of an embedded Ray.
            scheduled_at: From when the deadline of a sweep in this process counts.
            tell: Called with a line when a cluster that is brought up has changed; default: it is logged.

        Raises:
            RaysweepError: As `raysweep.run_sweep` and `raysweep.run_training`; see `retryable`.
        """
        if self.place.night is not None:
            ended = self.ended()
            if ended is not None:
                return ended
            with up(self.place.night, self.request.run.id, tell=tell) as connection:
                step = replace(self, place=Place(connection=connection))
                return step.run(on_progress=on_progress, beside=beside, announce=announce)
        job = self.submit(announce) if self.place.is_job else None
        with beside(job) if beside is not None else nullcontext(on_progress) as take:
            if job is not None:
                outcome = self.cluster.wait(job, on_progress=take, lease_ttl_s=self.options.lease_ttl_s)
                if job.how == "finished" and isinstance(outcome, SweepOutcome):
                    outcome = told(outcome, code="", now=time.time())
                return stored(outcome)
            return stored(self._run_here(take, num_cpus, scheduled_at))

    def ended(self) -> Outcome | None:
        """The outcome, where the step has one and does not continue: no cluster is needed for it.

        Raises: SpecChangedError, StorageError.
        """
        outcome = ended_outcome(self.request, self.options)
        if isinstance(outcome, SweepOutcome):
            return StoredSweep.of(told(outcome, code="", now=time.time()))
        return outcome

    def _run_here(
        self, on_progress: OnProgress | None, num_cpus: float | None, scheduled_at: datetime | None
    ) -> Outcome:
        if self.request.run.kind == "train":
            from raysweep.cluster.placing import check_training

            check_training(self.place.address)
            from raysweep.training import run_training

            training = cast("RunRequest[TrainSpec]", self.request)
            return run_training(training, address=self.place.address, on_progress=on_progress)
        from raysweep.cluster.run import run_sweep

        return run_sweep(
            cast("RunRequest[SweepSpec]", self.request),
            address=self.place.address,
            on_progress=on_progress,
            takeover=self.options.takeover,
            num_cpus=num_cpus,
            scheduled_at=scheduled_at,
            continuing=self.options.continuing,
        )

    def put_aside(self, *, before: float | None = None) -> str:
        """Archive what is stored of a sweep, so that it begins anew; where it is now, empty for nothing.

        Args:
            before: Only one that was started before this, in UTC seconds.

        Raises: SweepHeldError where a process runs it, and as `runs.ownership.removal.put_aside`.
        """
        from raysweep.runs.folder import SweepFolder
        from raysweep.runs.ownership.removal import put_aside
        from raysweep.runs.reading.glances import glance
        from raysweep.storage.objects.opening import open_store

        spec, run_id = self.request.spec, self.request.run.id
        started_at = glance(SweepFolder(open_store(spec.storage_path), run_id)).started_at
        if before is not None and started_at is not None and started_at >= before:
            return ""
        try:
            return put_aside(spec.storage_path, run_id)
        except SweepNotFoundError:
            return ""

    def submit(self, announce: Announce | None = None) -> RunningJob:
        """See that its job is on its way.

        Args:
            announce: Called on another thread with the handle, right before the job is submitted or attached
                to: from then on it can be cancelled by name. If it raises, no job is submitted.

        Raises: as `raysweep.jobs.submit_or_attach`, and what `announce` raises.
        """
        return self.cluster.submit(self.request, options=self.options, announce=announce)

    def finish(self, end: Outcome | RaysweepError) -> Outcome:
        """The outcome, if the step succeeds by it; raises what it fails with, as `complete`."""
        return complete(end, accept_partial=self.accept_partial, accept_failed=self.accept_failed)
