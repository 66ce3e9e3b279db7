"""`raysweep status`: one sweep or training run, or a list of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import DEFAULT_STORAGE, read_sweep
from raysweep.cli.sweep_summary import NOTES, print_status
from raysweep.cli.tables import Listing
from raysweep.cli.training_summary import show_training
from raysweep.errors import StorageError, SweepNotFoundError
from raysweep.live import draw_progress
from raysweep.outcome.formatting import show_age, show_duration, show_number
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.runs.reading.lookup import find_training
from raysweep.runs.reading.reader import glance, glance_training
from raysweep.runs.reading.status import RunStatus
from raysweep.runs.training import RunFolder, list_trainings
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store


def show(name: str, storage: str | None, is_json: bool, training_name: str | None = None) -> int:
    """Show one sweep, or a training run: running, ended, or left by a controller that is gone.

    `training_name`: the training run's id, where it is not `name`.
    """
    try:
        status, _ = read_sweep(name, storage)
    except SweepNotFoundError:
        training = find_training(training_name or name, storage)
        if training is None:
            raise
        return show_training(glance_training(training), is_json)
    if is_json:
        print_json(_as_json(status))
        return DONE
    console = make_console()
    if status.heartbeat is None or not status.is_running:
        print_status(console, status)
        return DONE
    console.print(draw_progress(status.heartbeat, status.elapsed_s or 0.0, notes=status.notes[-NOTES:]))
    facts = [("run by", str(status.holder)), ("stored at", status.uri)]
    if status.expected_end_at is not None:
        facts.insert(0, ("expected end", f"in {show_duration(status.expected_end_at - status.read_at)}"))
    print_facts(console, *facts)
    return DONE


def show_list(storage: str | None, is_json: bool) -> int:
    """List the sweeps and training runs at a storage path, the newest first."""
    store = open_store(storage or DEFAULT_STORAGE)
    found = sorted(_glances(store), key=lambda status: -(status.started_at or 0.0))
    if is_json:
        print_json([_row(status) for status in found])
        return DONE
    console = make_console()
    if not found:
        make_console(is_stderr=True).print(f"no sweeps at {store.url}", markup=False, soft_wrap=True)
        return DONE
    listing = Listing(("run", "status", "trials>", "best>", "age>", "kind"), ("holder",))
    for status in found:
        listing.add(*_cells(status))
    listing.show(console)
    return DONE


def _as_json(status: RunStatus) -> dict[str, Any]:
    shown = status.model_dump(mode="json")
    same = ("uri", "key", "status", "why", "metric", "mode", "counts", "best", "started_at", "ended_at")
    return {
        "sweep_id": status.run_id,
        "is_running": status.is_running,
        **{name: shown[name] for name in same},
        "progress": shown["heartbeat"],
        "notes": shown["notes"],
        "expected_end_at": status.expected_end_at,
    }


# -- all sweeps ---------------------------------------------------------------------------------------


def _glances(store: Store) -> Iterator[RunStatus]:
    for sweep_id in list_sweeps(store):
        try:
            yield glance(SweepFolder(store, sweep_id))
        except StorageError as error:
            yield RunStatus(run_id=sweep_id, status="damaged", problem=str(error))
    for run_id in list_trainings(store):
        try:
            yield glance_training(RunFolder(store, run_id))
        except StorageError as error:
            yield RunStatus(kind="train", run_id=run_id, status="damaged", problem=str(error))


def _row(status: RunStatus) -> dict[str, Any]:
    return {
        "sweep_id": status.run_id,
        "kind": status.kind,
        "status": f"damaged: {status.problem}" if status.status == "damaged" else status.status,
        "counts": status.counts,
        "num_trials": status.num_trials,
        "best_score": status.best.score if status.best else None,
        "started_at": status.started_at,
        "holder": _holder(status),
    }


def _cells(status: RunStatus) -> tuple[str, ...]:
    total = "" if status.num_trials is None else f"/{status.num_trials}"
    score = status.best.score if status.best else None
    age = "" if status.started_at is None else show_age(status.read_at - status.started_at)
    trials = f"{status.counts.ended}{total}" if status.kind == "sweep" else ""
    return (
        status.run_id,
        status.status,
        trials,
        "" if score is None else show_number(score),
        age,
        status.kind,
        status.problem or _holder(status),
    )


def _holder(status: RunStatus) -> str:
    if status.holder is None:
        return ""
    return str(status.holder) if status.is_running else f"{status.holder} ({status.held})"
