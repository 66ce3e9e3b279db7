"""Runs, follows, cancels and reads logs of sweeps and training runs on a cluster, through its Jobs API.

Ctrl-C of a command that follows a run leaves the run alive and prints how to follow it again.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import typer

from raysweep.cli.bars import progress_bar
from raysweep.cli.consoles import make_console, print_json
from raysweep.cli.exit_codes import DONE, Detached
from raysweep.cli.job_messages import JobHow
from raysweep.errors import SpecError, SweepInterrupted, SweepNotFoundError
from raysweep.jobs.attach import RunningJob, ended_outcome
from raysweep.jobs.sync import Cluster
from raysweep.jobs.wire import JobInfo
from raysweep.live import LiveTable, logged_to
from raysweep.outcome import SweepOutcome, SweepProgress, TrainOutcome
from raysweep.provision.lifetime import Night, up
from raysweep.runs.catalog import stem_of
from raysweep.runs.ownership.reopening import told
from raysweep.runs.reading.naming.references import LATEST, key_has, split_night
from raysweep.specs import AnyRequest
from raysweep.specs.identity import slug


def run(
    request: AnyRequest, address: str | Night, job: JobHow, *, is_json: bool
) -> SweepOutcome | TrainOutcome | None:
    """Submit or attach, and wait for the outcome; None with `--detach`.

    Where the address is that of a cluster for the run, it is brought up before and removed after.

    Raises:
        Detached: Ctrl-C; it continues.
    """
    night = Night.of(address)
    if night is None:
        assert isinstance(address, str)
        return _run(request, Cluster(address), job, is_json=is_json)
    ended = ended_outcome(request, job.options)
    if ended is not None:
        return told(ended, code="", now=time.time()) if isinstance(ended, SweepOutcome) else ended
    console = make_console(is_stderr=True)

    def tell(line: str) -> None:
        console.print(line, soft_wrap=True)

    with up(night, request.run.id, tell=tell, is_kept=job.detach) as connection:
        return _run(request, Cluster(connection), job, is_json=is_json, is_night=True)


def _run(
    request: AnyRequest, cluster: Cluster, job: JobHow, *, is_json: bool, is_night: bool = False
) -> SweepOutcome | TrainOutcome | None:
    console = make_console(is_stderr=True)
    with progress_bar(is_bytes=True) as on_upload:
        running = cluster.submit(request, options=job.options, on_upload=on_upload)
    for each in running.left_out:
        console.print(f"not uploaded: {each}", soft_wrap=True)
    if running.how != "finished":
        console.print(f"{running.how} job {running.job_id} at {running.address}", soft_wrap=True)
    if job.detach and running.how != "finished":
        _show_handle(running, is_json=is_json, is_night=is_night)
        return None
    outcome = follow(cluster, running, job.options.lease_ttl_s, is_json=is_json, is_night=is_night)
    if running.how == "finished" and isinstance(outcome, SweepOutcome):
        return told(outcome, code="", now=time.time())
    return outcome


def follow(
    cluster: Cluster, running: RunningJob, lease_s: float | None, *, is_json: bool, is_night: bool = False
) -> SweepOutcome | TrainOutcome:
    """Wait for a job, and show how it goes. Raises Detached for Ctrl-C."""
    try:
        with LiveTable(make_console(is_stderr=is_json)) as table, logged_to(table.note):
            show: Callable[[SweepProgress], None] | None = table if running.kind == "sweep" else None
            return cluster.wait(running, on_progress=show, lease_ttl_s=lease_s)
    except SweepInterrupted:
        raise Detached(
            running.run_id,
            attach=_command("attach", running, is_night=is_night),
            cancel=_command("cancel", running, is_night=is_night),
            is_leased=lease_s is not None,
        ) from None


def find_running(cluster: Cluster, name: str, storage: str | None) -> RunningJob:
    """The newest job of a run, by its id, the beginning of its id, a job's id, or its name: `churn@latest`.

    Raises:
        SweepNotFoundError: The cluster knows none, or several runs begin so.
    """
    address = cluster.connection.address
    jobs = [job for job in cluster.jobs() if job.metadata.get("raysweep_sweep_id")]
    exact = [job for job in jobs if name in (job.job_id, job.metadata["raysweep_sweep_id"])]
    found = exact or _named(jobs, name)
    runs = sorted({job.metadata["raysweep_sweep_id"] for job in found})
    if len(runs) != 1:
        known = sorted({job.metadata["raysweep_sweep_id"] for job in jobs})
        fix = f"it may be {', '.join(runs)}" if runs else f"it knows {', '.join(known) or 'none'}"
        raise SweepNotFoundError(name, address, fix)
    return _handle(max(found, key=_number_of), address, storage)


def _named(jobs: Sequence[JobInfo], name: str) -> list[JobInfo]:
    """The jobs of the runs that a name means: as in a storage, by what the jobs say of themselves."""
    head, which = split_night(name)
    own = [job for job in jobs if stem_of(job.metadata["raysweep_sweep_id"]) == slug(head)]
    if which == LATEST:
        newest = max(own, key=lambda job: job.started_at or 0.0, default=None)
        wanted = newest.metadata["raysweep_sweep_id"] if newest is not None else ""
        return [job for job in own if job.metadata["raysweep_sweep_id"] == wanted]
    if which:
        keys = [job for job in own if job.metadata.get("raysweep_key", "") == which]
        return keys or [job for job in own if key_has(job.metadata.get("raysweep_key", ""), which)]
    return own or [job for job in jobs if job.metadata["raysweep_sweep_id"].startswith(name)]


def cancel(name: str, address: str, storage: str | None, reason: str, *, is_json: bool) -> int:
    """Cancel a run on a cluster; returns the exit code."""
    cluster = Cluster(address)
    running = find_running(cluster, name, storage)
    was_running = cluster.cancel(running, reason=reason, by="raysweep cancel")
    status = "cancelled" if was_running else cluster.info(running.job_id).status
    if is_json:
        print_json({"run_id": running.run_id, "job_id": running.job_id, "was_running": was_running})
        return DONE
    said = "cancelled" if was_running else f"was not running: its job is {status}"
    make_console().print(f"{running.run_id} {said}", soft_wrap=True)
    return DONE


def show_logs(name: str, address: str, *, follow_on: bool) -> int:
    """Print what the driver of the newest job wrote; with `follow_on` until it ends."""
    cluster = Cluster(address)
    job_id = find_running(cluster, name, None).job_id
    if not follow_on:
        typer.echo(cluster.logs(job_id), nl=False)
        return DONE
    for piece in cluster.tail(job_id):
        typer.echo(piece, nl=False)
        sys.stdout.flush()
    return DONE


def find_stored(name: str, address: str, storage: str | None) -> tuple[str, str]:
    """The id of a run on a cluster, and where it is stored: as its job says, unless `storage` does."""
    running = find_running(Cluster(address), name, storage)
    if not running.storage_path:
        problem = f"the job of {running.run_id!r} does not say where it is stored"
        raise SpecError("--storage", problem, "give --storage URL")
    return running.run_id, running.storage_path


def _show_handle(running: RunningJob, *, is_json: bool, is_night: bool) -> None:
    if is_json:
        print_json(running.to_dict())
        return
    console = make_console()
    for verb in ("attach", "cancel") if is_night else ("attach", "logs", "cancel"):
        console.print(f"  {_command(verb, running, is_night=is_night)}", soft_wrap=True)


def _command(verb: str, running: RunningJob, *, is_night: bool) -> str:
    """The command for a run; of a cluster that lives for the run it asks the storage alone."""
    parts = ["raysweep", verb, running.run_id, *([] if is_night else ["--address", running.address])]
    if running.storage_path and (is_night or verb == "attach"):
        parts += ["--storage", running.storage_path]
    return shlex.join(parts)


def _handle(info: JobInfo, address: str, storage: str | None) -> RunningJob:
    kind: Any = info.metadata.get("raysweep_kind", "sweep")
    return RunningJob(
        address=address,
        kind=kind,
        run_id=info.metadata["raysweep_sweep_id"],
        key=info.metadata.get("raysweep_key", ""),
        storage_path=storage or info.metadata.get("raysweep_storage", ""),
        job_id=info.job_id,
        number=_number_of(info),
        how="attached",
    )


def _number_of(info: JobInfo) -> int:
    number = info.job_id.rpartition(".")[2]
    return int(number) if number.isdigit() else 0
