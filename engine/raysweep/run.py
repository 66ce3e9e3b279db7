"""`run_sweep` and `run_training`: on a Ray of this process, or as a job of a cluster, which needs no Ray."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from raysweep.documents.wall_clock import check_scheduled_at, resolve_deadline
from raysweep.errors import SpecError, SweepInterrupted
from raysweep.jobs.connection import is_jobs_address
from raysweep.outcome import SweepProgress, TrainOutcome
from raysweep.outcome.showing.formatting import is_notebook
from raysweep.specs import RunRequest, SweepSpec, TrainSpec
from raysweep.stored import StoredSweep

if TYPE_CHECKING:
    from raysweep.jobs.options import JobOptions
    from raysweep.live import LiveTable
    from raysweep.specs.continuing import Extension
    from raysweep.step import Step
    from raysweep.step.step import Address
    from raysweep.training import TrainProgress

log = logging.getLogger("raysweep")
_TERMINAL_BY_NAME: Final = frozenset({"FORCE_COLOR", "TTY_COMPATIBLE"})
"""Variables by which a user has rich take its output for a terminal."""


def run_sweep(
    spec: SweepSpec | Mapping[str, Any] | str | os.PathLike[str],
    *,
    key: str | None = None,
    address: Address = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    takeover: bool = False,
    num_cpus: float | None = None,
    scheduled_at: datetime | None = None,
    resume_cancelled: bool = False,
    retry: Literal["failed"] | Sequence[int] | None = None,
    extend: Extension | Mapping[str, Any] | None = None,
    restart: bool = False,
    job: JobOptions | None = None,
    progress: bool | None = None,
) -> StoredSweep:
    """Run a sweep to its end and return its outcome; with the same key, resume it or return what it gave.

    Args:
        spec: A `SweepSpec`, a mapping, or the path of a YAML or JSON file.
        key: Names the run. The same name and key is the same sweep: finished, its outcome comes back at once;
            unfinished, it continues; running elsewhere, it is followed. Default: the spec itself is the key.
        address: None: the Ray this process is connected to, else an embedded one. `"auto"` or `"host:port"`:
            that cluster. `"http(s)://host:8265"`, or a `ClusterConnection`: a job of that cluster, which runs
            on when this process goes away; here, no Ray is needed. `"rayjob:night.yaml"`, a mapping with
            `rayjob` in it, or a `raysweep.provision.NightCluster`: a job of a cluster that is brought up
            before on Kubernetes and removed after.
        on_progress: Called about twice a second, in the thread that runs the sweep; for a job, with each of
            its heartbeats.
        takeover: Take the sweep from a controller that seems to live; that one ends with `FencedError`.
        num_cpus: How many CPUs an embedded Ray offers; default: the machine's cores. Ignored, with a warning,
            where another run of this process has started it.
        scheduled_at: When this run was scheduled, with its offset from UTC (an orchestrator's logical date):
            a deadline such as `06:00 Europe/Berlin` is the next one after it. The first start of a sweep
            decides; default: when that is.
        resume_cancelled: Continue with a sweep that was cancelled; else its outcome comes back.
        retry: Of a sweep that has completed or failed, run the failed trials again ("failed"), or some of
            them by number: from their checkpoints, with a new budget of failures. What was cut continues too.
        extend: Let trials of a completed sweep go further from their checkpoints: `{"top": 3, "max_t": 81}`,
            or `{"trials": [4, 7], "max_t": 81}`. A sweep that has not completed does so once it has.
        restart: Put what is stored under this key aside, whole, and begin anew.
        job: What a job brings along and where its driver runs; only with the address of a Jobs API.
        progress: None: how it goes and how it ended is shown on a terminal (a live table) and in a notebook
            (plain lines), unless `on_progress` is given. True: everywhere. False: nothing is shown.

    Returns:
        The outcome; `outcome.status` says how it ended, `outcome.best` holds the best trial. Of a sweep that
        failed before any trial had a score, `outcome.best` raises SweepFailedError with the first error.

    Raises:
        SpecError: Something in the spec cannot work; names the field and the fix. Nothing was written.
        SpecChangedError: The key belongs to a sweep with another spec.
        SweepHeldError: It is to restart, and another process runs it.
        SweepInterrupted: Ctrl-C or SIGTERM: run the same again to continue. A job continues without.
        FencedError: Another controller took the sweep over.
        StorageError, ClusterError: As they say; most are worth a retry, see `retryable`.
        JobStoppedError, JobFailedError: Only of a job: a person stopped it, or it failed for good.
    """
    asked = SweepSpec.from_any(spec)
    check_scheduled_at(scheduled_at)
    if is_job_place(address):
        asked = _resolved(asked, scheduled_at)
        if num_cpus is not None:
            fix = "leave it out with the address of a cluster"
            raise SpecError("num_cpus", "is for an embedded Ray", fix)
    try:
        step = _step(asked, key, address, job)
        if key is None:
            _tell_of_sibling(step)
        given: dict[str, Any] = {"takeover": takeover or None, "retry": retry, "extend": extend}
        given["resume_cancelled"] = resume_cancelled or None
        options = step.options.replace(**{name: value for name, value in given.items() if value is not None})
        step = replace(step, options=options)
        if restart:
            step.put_aside()
        wants_table = bool(progress) if on_progress is not None else progress
        if asked.isolation == "inline" and progress is None:
            wants_table = False  # the terminal is the trial's, or a debugger's
        return _run_and_show(step, on_progress, wants_table, num_cpus, scheduled_at)
    # Of a script that does not catch it, Python shows the line that waited, and not the engine below.
    except SweepInterrupted as error:
        raise error.with_traceback(None) from None
    except KeyboardInterrupt:  # before there was anything to interrupt
        raise SweepInterrupted(asked.name, so_far="before it began") from None


def is_job_place(address: Address) -> bool:
    """True if what runs there is a job of a cluster. Raises: SpecError for a cluster that cannot be."""
    if address is None or is_jobs_address(address):
        return address is not None
    from raysweep.provision.lifetime import Night  # needs much that an embedded Ray does not

    return Night.of(address) is not None


def _tell_of_sibling(step: Step) -> None:
    from raysweep.runs.reading.naming.siblings import unfinished_sibling

    if isinstance(step.request.spec, SweepSpec):
        sibling = unfinished_sibling(RunRequest(spec=step.request.spec, run=step.request.run))
        if sibling:
            log.warning("%s", sibling)


def _run_and_show(
    step: Step,
    on_progress: Callable[[SweepProgress], None] | None,
    wants_table: bool | None,
    num_cpus: float | None,
    scheduled_at: datetime | None,
) -> StoredSweep:
    with _showing(step.request.run.name, wants_table) as table:
        outcome = step.run(
            on_progress=_both(table, on_progress), num_cpus=num_cpus, scheduled_at=scheduled_at
        )
    assert isinstance(outcome, StoredSweep)
    if table is not None:
        table.conclude(outcome)
    if outcome.nothing_ran:
        log.warning("%s: %s", outcome.sweep_id, outcome.nothing_ran)
    return outcome


def _showing(name: str, wants_table: bool | None) -> AbstractContextManager[LiveTable | None]:
    # To import rich takes a tenth of a second: not where nothing is shown.
    if wants_table is False or (wants_table is None and not _may_be_seen()):
        return nullcontext()
    from raysweep.live import showing

    return showing(name, wants_table)


def _may_be_seen() -> bool:
    """True if standard output may be a terminal, as rich has it, or a notebook's."""
    try:
        is_terminal = sys.stdout.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        is_terminal = False
    return is_terminal or is_notebook() or not _TERMINAL_BY_NAME.isdisjoint(os.environ)


def _both(table: LiveTable | None, on_progress: Callable[[SweepProgress], None] | None) -> Any:
    if table is None or on_progress is None:
        return table or on_progress

    def show(progress: SweepProgress) -> None:
        table(progress)
        on_progress(progress)

    return show


def _resolved(spec: SweepSpec, scheduled_at: datetime | None) -> SweepSpec:
    """For a job, whose driver does not know when it was scheduled: the deadline as the moment it means."""
    if scheduled_at is None or not isinstance(spec.stop.deadline, str):
        return spec
    deadline = resolve_deadline(spec.stop.deadline, scheduled_at.timestamp())
    return spec.replace(stop=spec.stop.replace(deadline=deadline))


def run_training(
    spec: TrainSpec | Mapping[str, Any] | str | os.PathLike[str],
    *,
    key: str | None = None,
    address: Address = None,
    on_progress: Callable[[TrainProgress], None] | Callable[[SweepProgress], None] | None = None,
    job: JobOptions | None = None,
) -> TrainOutcome:
    """Train one config on Ray Train workers, and return how it ended.

    With the same name and key: a run that ended well is returned at once, without Ray; one that crashed or
    failed continues from its newest checkpoint; one that a live process runs is followed to its end.

    Args:
        spec: A TrainSpec, a mapping, or the path of a YAML or JSON file.
        key: What makes this run the same run: a date, an orchestrator's run id. Default: the spec itself is
            the key.
        address: Default: the Ray that this process is connected to, else an embedded one that ends with the
            call. `"auto"` or `"host:port"` connect. `"http(s)://host:8265"`, or a `ClusterConnection`: a job
            of that cluster. `"rayjob:night.yaml"`: a job of a cluster that is brought up for it.
        on_progress: Called after each report, from another thread; for a job, with a `SweepProgress` at each
            of its heartbeats.
        job: What a job brings along and where its driver runs; only with the address of a Jobs API.

    Raises:
        SpecError: The spec, or a subclass of it for a trainable that cannot be imported, a storage path that
            cannot be written, workers that no node can hold (InfeasibleResourcesError), or a spec that is not
            the one the run was started with (SpecChangedError).
        TrainingFailedError: The trainable raised, or its workers died, more than `failure.max_failures`
            times. Its text ends with the exception's last line and where the run is stored; a call with the
            same key tries again. Of a job: JobFailedError.
        SweepInterrupted: Ctrl-C; a call with the same key continues.
    """
    outcome = _step(TrainSpec.from_any(spec), key, address, job).run(on_progress=on_progress)
    assert isinstance(outcome, TrainOutcome)
    return outcome


def _step(
    spec: SweepSpec | TrainSpec,
    key: str | None,
    address: Address,
    job: JobOptions | None,
) -> Step:
    # Imported here: who only imports raysweep needs none of it.
    from raysweep.jobs.options import JobOptions
    from raysweep.step import Place, Step

    place = Place.of(address)
    if job is not None and not place.is_job:
        fix = "give address='http://host:8265', or leave job out"
        raise SpecError("job", "is for a cluster's Jobs API", fix)
    return Step(request=RunRequest.of(spec, key), place=place, options=job or JobOptions())
