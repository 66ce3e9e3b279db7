"""`raysweep logs`: the output of trials from the storage, the log of a job's driver from its cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import typer

from raysweep.cli.consoles import make_console, print_rows
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import command, open_run
from raysweep.cli.tables import Listing
from raysweep.errors import LogNotFoundError, SpecError
from raysweep.outcome.showing.formatting import show_age
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.logs import LogInfo, find_log, follow_log, list_logs, read_log
from raysweep.runs.reading.reader import SweepReader

WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The log to show, and its form."""

    trial: int | None
    attempt: int | None
    is_followed: bool
    is_json: bool
    start: int = 0


def show_logs(name: str, storage: str | None, address: str | None, wanted: Wanted) -> int:
    """Print a trial's log; without a trial that of the job, where there is an address, else what there is."""
    if wanted.trial is None and wanted.attempt is not None:
        raise SpecError("--attempt", "there is no --trial", f"give --trial N --attempt {wanted.attempt}")
    if wanted.trial is not None and wanted.is_json:
        raise SpecError("--json", "the log of a trial is text", "leave it out")
    if address is None:
        return _show(open_run(name, storage), wanted)
    from raysweep.cli import remote

    if wanted.trial is None:
        return remote.show_logs(name, address, follow_on=wanted.is_followed)
    run_id, path = remote.find_stored(name, address, storage)
    return _show(open_run(run_id, path), wanted)


def _show(folder: SweepFolder, wanted: Wanted) -> int:
    if wanted.trial is None:
        if wanted.is_followed:
            raise SpecError("--follow", "there is no --trial", "give --trial N, or the --address of its job")
        return _show_list(folder, wanted)
    if wanted.is_followed:
        return _follow(folder, wanted.trial, wanted.attempt)
    log = find_log(folder, wanted.trial, wanted.attempt)
    text = read_log(folder, log)
    if text is None:
        raise LogNotFoundError(folder.sweep_id, log.trial, log.attempt, "it was deleted just now")
    typer.echo(text.encode(), nl=False)
    if not log.is_final:
        _say_unfinished(folder, log)
    return DONE


def _show_list(folder: SweepFolder, wanted: Wanted) -> int:
    logs = list_logs(folder)
    if wanted.is_json:
        print_rows(
            "logs",
            [
                {
                    "trial": log.trial,
                    "attempt": log.attempt,
                    "is_final": log.is_final,
                    "size_bytes": log.size_bytes,
                    "modified_at": log.modified_at,
                    "uri": folder.uri_of(log.name),
                }
                for log in logs
            ],
            wanted.start,
        )
        return DONE
    console = make_console()
    listing = Listing(("trial", "attempt>", "size>", "age>", ""))
    at = time.time()
    for log in logs:
        age = show_age(at - log.modified_at)
        listing.add(
            f"{log.trial:05d}", str(log.attempt), _size(log), age, "" if log.is_final else "unfinished"
        )
    if logs:
        listing.show(console)
        look = f"{command('logs', folder.sweep_id, folder.store.url)} --trial {logs[-1].trial}"
        console.print(f"one of them: {look}", soft_wrap=True)
    else:
        console.print("no logs: the trials of this sweep have printed nothing so far")
    return DONE


def _size(log: LogInfo) -> str:
    return f"{log.size_bytes / 1024:.1f} KiB" if log.size_bytes >= 1024 else f"{log.size_bytes} B"


def _follow(folder: SweepFolder, trial: int, attempt: int | None) -> int:
    """Print what there is and what comes, until the attempt is over; wait for one that has yet to speak."""
    reader = SweepReader(folder.store.url, folder.sweep_id)
    log = _await_log(folder, reader, trial, attempt)
    for piece in follow_log(folder, log, lambda: _is_running(reader)):
        typer.echo(piece, nl=False)
    if not find_log(folder, log.trial, log.attempt).is_final:
        _say_unfinished(folder, log)
    return DONE


def _await_log(folder: SweepFolder, reader: SweepReader, trial: int, attempt: int | None) -> LogInfo:
    while True:
        is_running = _is_running(reader)
        try:
            return find_log(folder, trial, attempt)
        except LogNotFoundError:
            if not is_running:
                raise
        time.sleep(WAIT_S)


def _is_running(reader: SweepReader) -> bool:
    status = reader.read()
    return status is not None and status.is_running


def _say_unfinished(folder: SweepFolder, log: LogInfo) -> None:
    console = make_console(is_stderr=True)
    if _is_running(SweepReader(folder.store.url, folder.sweep_id)):
        again = f"{command('logs', folder.sweep_id, folder.store.url)} --trial {log.trial} --follow"
        text = f"the attempt runs; follow it with: {again}"
    else:
        text = "what came after this is lost: the attempt's node was gone before it was stored"
    console.print(text, soft_wrap=True)
