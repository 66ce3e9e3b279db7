"""`raysweep retry`, `extend`, `restart` and `rm`: commands for a sweep that exists."""

from __future__ import annotations

import sys

import typer

from raysweep.cli.commands.running.sweep import How, resume, run, stored_request
from raysweep.cli.consoles import make_console, print_json
from raysweep.cli.exit_codes import CANCELLED, DONE
from raysweep.cli.job_messages import JobHow
from raysweep.cli.lookup import command, open_sweep
from raysweep.errors import SpecError, SweepHeldError
from raysweep.outcome import SweepOutcome
from raysweep.outcome.showing.formatting import show_age, show_counts
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.removal import put_aside, remove
from raysweep.runs.reading.reader import SweepReader


def retry(name: str, storage: str | None, how: How, job: JobHow) -> int:
    """Run failed trials again; returns the exit code."""
    folder = open_sweep(name, storage)
    wanted, trials = (
        job.options.retry,
        SweepReader(folder.store.url, folder.sweep_id, is_strict=True).trials(),
    )
    _check_ended(folder, "retry")
    failed = [trial.number for trial in trials if trial.state == "failed"]
    if isinstance(wanted, tuple):
        states = {trial.number: trial.state for trial in trials}
        for number in wanted:
            if states.get(number) != "failed":
                has = f"is {states[number]}" if number in states else "does not exist"
                raise SpecError("--trial", f"trial {number} of {folder.sweep_id} {has}", _known(failed))
    elif not failed:
        raise SpecError("--failed", f"no trial of {folder.sweep_id} has failed", "there is nothing to retry")
    return resume(name, storage, how, job)


def extend(name: str, storage: str | None, how: How, job: JobHow) -> int:
    """Let trials go further than their end; returns the exit code."""
    folder = open_sweep(name, storage)
    wanted = job.options.extend
    assert wanted is not None
    _check_ended(folder, "extend")
    states = {trial.number: trial.state for trial in SweepReader(folder.store.url, folder.sweep_id).trials()}
    for number in wanted.trials:
        if states.get(number) not in ("completed", "stopped"):
            has = f"is {states[number]}" if number in states else "does not exist"
            fix = "name trials that have completed, or were stopped early"
            raise SpecError("--trial", f"trial {number} of {folder.sweep_id} {has}", fix)
    return resume(name, storage, how, job)


def restart(name: str, storage: str | None, how: How, job: JobHow) -> int:
    """Put a sweep aside and begin anew with its spec and key; returns the exit code."""
    folder = open_sweep(name, storage)
    request = stored_request(folder)
    where = put_aside(folder.store.url, folder.sweep_id)
    console = make_console(is_stderr=True)
    console.print(f"what was stored is now at {where}", soft_wrap=True)
    return run(request.spec, request.run.key, how, job)


def rm(name: str, storage: str | None, *, is_sure: bool, is_json: bool) -> int:
    """Remove a sweep, after a question; returns the exit code."""
    folder = open_sweep(name, storage)
    if not is_sure:
        if not sys.stdin.isatty():
            raise SpecError("--yes", "there is no terminal to ask whether to remove it", "give --yes")
        console = make_console(is_stderr=True)
        console.print(f"{folder.uri}: {_what(folder)}", soft_wrap=True)
        if not typer.confirm("Remove it, with its journal and its checkpoints?", err=True):
            return CANCELLED
    remove(folder.store.url, folder.sweep_id)
    if is_json:
        print_json({"sweep_id": folder.sweep_id, "removed": True})
    else:
        make_console().print(f"removed {folder.uri}", soft_wrap=True)
    return DONE


def _what(folder: SweepFolder) -> str:
    status = SweepReader(folder.store.url, folder.sweep_id).read()
    if status is None:
        return "nothing but its spec"
    ended = f", ended {show_age(status.ended_ago_s)} ago" if status.has_ended else ""
    return f"{status.status}{ended}, {show_counts(status.counts, status.num_trials)}"


def _check_ended(folder: SweepFolder, verb: str) -> None:
    """See that the sweep is one that this can be asked of; says what to do first of others."""
    outcome = folder.read_outcome()
    if outcome is None:
        status = SweepReader(folder.store.url, folder.sweep_id, is_strict=True).read()
        if status is not None and status.is_running:
            raise SweepHeldError(folder.sweep_id, status.holder)
        if verb == "extend":
            fix = f"end it first: {command('resume', folder.sweep_id, folder.store.url)}"
            raise SpecError("SWEEP", f"{folder.sweep_id} has not ended", fix)
        return
    _check_status(outcome, verb)


def _check_status(outcome: SweepOutcome, verb: str) -> None:
    fits = ("completed", "failed") if verb == "retry" else ("completed",)
    if outcome.status in fits:
        return
    fixes = {
        "cancelled": "resume it first: add --resume-cancelled to `raysweep resume`",
        "deadline": "give its spec a later deadline, and run that with the same key",
        "budget": "give its spec a larger budget, and run that with the same key",
        "failed": "retry its failed trials first: `raysweep retry`",
    }
    fix = fixes.get(outcome.status, "its goal is reached; use another key for another search")
    raise SpecError("SWEEP", f"{outcome.sweep_id} ended as {outcome.status}", fix)


def _known(failed: list[int]) -> str:
    shown = ", ".join(map(str, failed[:10])) + (", …" if len(failed) > 10 else "")
    return f"failed have: {shown}" if failed else "none has failed"
