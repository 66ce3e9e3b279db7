"""`raysweep attach` and `cancel`, for sweeps that run elsewhere: in another process or on a cluster."""

from __future__ import annotations

import time
from typing import Final

from raysweep.cli.commands.running.sweep import show_outcome
from raysweep.cli.consoles import make_console, print_json
from raysweep.cli.exit_codes import DONE, Detached
from raysweep.cli.lookup import command, open_sweep
from raysweep.errors import SpecError, SweepInterrupted, SweepNotFoundError
from raysweep.live import LiveTable, logged_to
from raysweep.outcome import SweepOutcome, SweepProgress, TrainOutcome
from raysweep.outcome.standing import INTERRUPTED
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.sweep_claim import ask_to_cancel, follow

# A controller looks at its heartbeat, and then its trials have their grace.
CANCEL_S: Final = 120.0


def attach(name: str, storage: str | None, address: str | None, lease_s: float | None, is_json: bool) -> int:
    """Follow a sweep to its end without submitting anything; returns its exit code."""
    if address is not None:
        return _attach_there(name, storage, address, lease_s, is_json)
    if lease_s is not None:
        raise SpecError("--lease", "there is no --address", "give --address http://head:8265")
    folder = open_sweep(name, storage)
    try:
        with LiveTable(make_console(is_stderr=is_json)) as table, logged_to(table.note):
            outcome = _follow(folder, table)
    except KeyboardInterrupt as error:
        if isinstance(error, SweepInterrupted):
            raise
        again, end = (command(verb, folder.sweep_id, folder.store.url) for verb in ("attach", "cancel"))
        raise Detached(folder.sweep_id, attach=again, cancel=end) from None
    return show_outcome(outcome, is_json=is_json)


def cancel(name: str, storage: str | None, address: str | None, reason: str, is_json: bool) -> int:
    """Cancel a sweep and wait until it has ended; returns the exit code."""
    if address is not None:
        from raysweep.cli import remote

        return remote.cancel(name, address, storage, reason, is_json=is_json)
    folder = open_sweep(name, storage)
    was_running = ask_to_cancel(folder, by="raysweep cancel", reason=reason)
    if was_running:
        _wait_for_end(folder)
    outcome = folder.read_outcome()
    status = outcome.status if outcome is not None else INTERRUPTED
    if is_json:
        print_json({"run_id": folder.sweep_id, "was_running": was_running, "status": status})
    else:
        said = status if was_running else f"was not running: {status}"
        make_console().print(f"{folder.sweep_id} {said}", soft_wrap=True)
    return DONE


def _attach_there(name: str, storage: str | None, address: str, lease_s: float | None, is_json: bool) -> int:
    from raysweep.cli import remote
    from raysweep.cli.commands.running import train
    from raysweep.jobs.sync import Cluster

    cluster = Cluster(address)
    outcome = remote.follow(cluster, remote.find_running(cluster, name, storage), lease_s, is_json=is_json)
    if isinstance(outcome, TrainOutcome):
        return train.show_outcome(outcome, is_json=is_json)
    return show_outcome(outcome, is_json=is_json)


def _follow(folder: SweepFolder, table: LiveTable) -> SweepOutcome:
    """The outcome of a sweep, as soon as there is one.

    Raises:
        SweepNotFoundError: No process runs it, and it has not ended.
    """
    follow(folder, table)
    outcome = folder.read_outcome()
    if outcome is None:
        again = command("resume", folder.sweep_id, folder.store.url)
        fix = f"no process runs it, and it has not ended; resume it with: {again}"
        raise SweepNotFoundError(folder.sweep_id, folder.store.url, fix)
    return outcome


def _wait_for_end(folder: SweepFolder) -> None:
    deadline = time.monotonic() + CANCEL_S

    def look(progress: SweepProgress) -> None:
        if time.monotonic() > deadline:
            fix = f"look at it with: {command('status', folder.sweep_id, folder.store.url)}"
            raise SpecError("cancel", f"{folder.sweep_id!r} has not ended after {CANCEL_S:g} s", fix)

    follow(folder, look)
