"""`raysweep sweep` and `raysweep resume`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raysweep.cli.consoles import clean_stdout, make_console, print_encoded
from raysweep.cli.exit_codes import CANCELLED, DONE, FAILED, PARTIAL
from raysweep.cli.job_messages import JobHow, has_jobs_api
from raysweep.cli.lookup import open_sweep
from raysweep.cli.spec_files import read_spec
from raysweep.cli.sweep_summary import print_status
from raysweep.errors import SpecError, SweepNotFoundError
from raysweep.live import LiveTable, logged_to
from raysweep.outcome import SweepOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.replay import newest_spec
from raysweep.runs.reading.naming.siblings import unfinished_sibling
from raysweep.specs import RunRequest, SweepSpec
from raysweep.specs.plan_token import check_token
from raysweep.storage.objects.opening import open_store

EXIT_CODES: Final = {"failed": FAILED, "cancelled": CANCELLED}


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """The place and way in which a sweep is run, and what is printed."""

    address: str | None
    is_json: bool
    takeover: bool
    num_cpus: float | None


def run_file(
    path: str,
    storage: str | None,
    settings: Sequence[str],
    key: str | None,
    how: How,
    job: JobHow,
    token: str | None = None,
) -> int:
    """Run the sweep that a file describes; returns the exit code.

    Raises:
        PlanChangedError: It is not the one of the plan's token.
    """
    spec = read_spec(SweepSpec, path, settings=settings, storage=storage)
    if token is not None:
        check_token(token, RunRequest.of(spec, key))
    return run(spec, key, how, job)


def run_tune(
    path: str, arguments: Sequence[str], storage: str | None, key: str | None, how: How, job: JobHow
) -> int:
    """Run a program that calls Ray Tune, with its sweeps on raysweep; returns the exit code."""
    from raysweep.tune import run_program

    if has_jobs_api(how.address, job) or how.is_json:
        fix = "leave out the Jobs API's address, its options and --json; --address auto runs on a cluster"
        raise SpecError("--tune", "runs the program in this process", fix)
    run_program(
        path,
        arguments,
        key=key,
        storage_path=storage,
        address=how.address,
        num_cpus=how.num_cpus,
        takeover=how.takeover,
    )
    return DONE


def resume(name: str, storage: str | None, how: How, job: JobHow) -> int:
    """Run a sweep on from what its folder holds; returns the exit code."""
    request = stored_request(open_sweep(name, storage))
    return run(request.spec, request.run.key, how, job)


def stored_request(folder: SweepFolder) -> RunRequest[SweepSpec]:
    """The request of a stored sweep, as it was changed last. Raises: SweepNotFoundError."""
    record = folder.read_spec()
    if record is None:
        raise SweepNotFoundError(folder.sweep_id, folder.store.url)
    spec = newest_spec(folder, record)
    if open_store(spec.storage_path).url != folder.store.url:
        spec = spec.replace(storage_path=folder.store.url)
    return RunRequest.of(spec, record.key)


def run(spec: SweepSpec, key: str | None, how: How, job: JobHow) -> int:
    """Run the sweep, show how it goes and what came out; returns the exit code."""
    request = RunRequest.of(spec, key)
    sibling = unfinished_sibling(request) if key is None else ""
    if sibling:
        make_console(is_stderr=True).print(f"note: {sibling}", soft_wrap=True)
    if has_jobs_api(how.address, job):
        from raysweep.cli import remote

        found = remote.run(request, how.address or "", job, is_json=how.is_json)
        return show_outcome(found, is_json=how.is_json) if isinstance(found, SweepOutcome) else DONE
    from raysweep.cluster.run import run_sweep

    with (
        LiveTable(make_console(is_stderr=how.is_json), name=spec.name) as table,
        logged_to(table.note),
        clean_stdout(is_json=how.is_json),
    ):
        outcome = run_sweep(
            request,
            address=how.address,
            on_progress=table,
            takeover=how.takeover,
            num_cpus=how.num_cpus,
            continuing=job.options.continuing,
        )
    return show_outcome(outcome, is_json=how.is_json)


def show_outcome(outcome: SweepOutcome, *, is_json: bool) -> int:
    """Show what came out; returns the exit code."""
    print_status(make_console(is_stderr=is_json), status_of_outcome(outcome, now=time.time()))
    if is_json:
        print_encoded(outcome.to_json())
    return EXIT_CODES.get(outcome.status, PARTIAL if is_json and outcome.is_partial else DONE)
