"""`raysweep status`: one sweep, or all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from raysweep.cli.consoles import make_console, make_table, print_facts, print_json
from raysweep.cli.lookup import DEFAULT_STORAGE, INTERRUPTED, SweepView, open_sweep, read_sweep
from raysweep.cli.process import DONE
from raysweep.cli.sweep import command, reason
from raysweep.errors import StorageError
from raysweep.live import draw_progress, show_config, show_counts, show_duration, show_number
from raysweep.runs.folder import SweepFolder, list_sweeps
from raysweep.runs.holder import holder_state
from raysweep.storage.store import Store, open_store


def show(name: str, storage: str | None, is_json: bool) -> int:
    """Show one sweep: running, ended, or left by a controller that is gone."""
    view = read_sweep(open_sweep(name, storage))
    if is_json:
        print_json(_as_json(view))
        return DONE
    console = make_console()
    if view.is_running and view.progress is not None:
        elapsed_s = time.time() - view.progress.started_at
        console.print(draw_progress(view.progress, elapsed_s, notes=list(view.progress.notes[-3:])))
        print_facts(console, ("run by", str(view.holder)), ("stored at", view.uri))
        return DONE
    console.print(Text.assemble((view.status, _colour(view.status)), " ", view.sweep_id), soft_wrap=True)
    print_facts(console, *_facts(view))
    return DONE


def show_list(storage: str | None, is_json: bool) -> int:
    """List the sweeps at a storage path, the newest first."""
    store = open_store(storage or DEFAULT_STORAGE)
    rows = sorted(_rows(store), key=lambda row: -(row.started_at or 0.0))
    if is_json:
        print_json([row.as_json() for row in rows])
        return DONE
    console = make_console()
    if not rows:
        make_console(is_stderr=True).print(f"no sweeps at {store.url}", markup=False, soft_wrap=True)
        return DONE
    table = make_table("sweep", "status", "trials>", "best>", "age>", "holder")
    for row in rows:
        table.add_row(*row.cells(time.time()))
    console.print(table)
    return DONE


def show_age(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h` or `4 d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


# -- one sweep ----------------------------------------------------------------------------------------


def _facts(view: SweepView) -> Iterator[tuple[str, str]]:
    outcome, best = view.outcome, view.best
    if outcome is None:
        yield "state", _why_not_running(view)
    else:
        took = show_duration(outcome.ended_at - outcome.started_at)
        yield "ended", f"{show_age(time.time() - outcome.ended_at)} ago, after {took}"
        yield "why", reason(outcome)
    total = len(view.trials) if outcome else (view.progress.num_trials if view.progress else None)
    yield "trials", show_counts(view.counts, total)
    if best is not None:
        score = "" if best.score is None else show_number(best.score)
        yield "best", f"{view.metric} {score} (trial {best.trial_id}): {show_config(best.config)}"
    for note in view.notes[-3:]:
        yield "note", note
    yield "stored at", view.uri
    if outcome is None:
        yield "go on", command("resume", view.sweep_id, view.storage)
    else:
        yield "next", command("best" if best else "trials", view.sweep_id, view.storage)


def _why_not_running(view: SweepView) -> str:
    if view.why:
        return f"ended without an outcome: {view.why}"
    if view.progress is None:
        return "not running: its controller is gone"
    ahead_s = view.progress.at - time.time()
    if ahead_s > 0 and holder_state(view.progress, time.time()) == "stale":
        clock = f"whose clock is {show_age(ahead_s)} ahead"
        return f"not running: its controller gives no sign of life any more ({view.holder}, {clock})"
    ago = show_age(max(0.0, -ahead_s))
    if holder_state(view.progress, time.time()) == "stale":
        return f"not running: its controller was last seen {ago} ago ({view.holder})"
    return f"not running: its controller is gone ({view.holder}, last seen {ago} ago)"


def _as_json(view: SweepView) -> dict[str, Any]:
    return {
        "sweep_id": view.sweep_id,
        "uri": view.uri,
        "key": view.record.key,
        "status": view.status,
        "is_running": view.is_running,
        "why": view.outcome.why if view.outcome else view.why,
        "metric": view.metric,
        "mode": view.record.spec.get("mode"),
        "counts": view.counts,
        "best": view.best.model_dump(mode="json") if view.best else None,
        "started_at": view.started_at,
        "ended_at": view.outcome.ended_at if view.outcome else None,
        "progress": view.progress.model_dump(mode="json") if view.progress and not view.outcome else None,
        "notes": list(view.notes),
    }


def _colour(status: str) -> str:
    return {"failed": "bold red", "cancelled": "bold yellow", INTERRUPTED: "bold yellow"}.get(
        status, "bold green"
    )


# -- all sweeps ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A sweep in the list: what its outcome or its heartbeat says; the journal is not read."""

    sweep_id: str
    status: str
    counts: dict[str, int]
    num_trials: int | None
    best_score: float | None
    started_at: float | None
    holder: str

    def cells(self, now: float) -> tuple[str, ...]:
        ended = sum(self.counts.get(name, 0) for name in ("completed", "stopped", "failed", "cancelled"))
        return (
            self.sweep_id,
            self.status,
            str(ended) if self.num_trials is None else f"{ended}/{self.num_trials}",
            "" if self.best_score is None else show_number(self.best_score),
            "" if self.started_at is None else show_age(now - self.started_at),
            self.holder,
        )

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def _rows(store: Store) -> Iterator[_Row]:
    for sweep_id in list_sweeps(store):
        try:
            yield _row(SweepFolder(store, sweep_id))
        except StorageError as error:
            yield _unread(sweep_id, f"damaged: {error}")


def _row(folder: SweepFolder) -> _Row:
    outcome = folder.read_outcome()
    if outcome is not None:
        return _Row(
            sweep_id=folder.sweep_id,
            status=outcome.status,
            counts=outcome.counts,
            num_trials=len(outcome),
            best_score=outcome.best.score if outcome.best else None,
            started_at=outcome.started_at,
            holder="",
        )
    progress = folder.read_progress()
    if progress is None:
        return _unread(folder.sweep_id, INTERRUPTED)
    liveness = holder_state(progress, time.time())
    return _Row(
        sweep_id=folder.sweep_id,
        status=progress.status if liveness == "alive" else INTERRUPTED,
        counts=progress.counts,
        num_trials=progress.num_trials,
        best_score=progress.best.score if progress.best else None,
        started_at=progress.started_at,
        holder=str(progress.holder) + ("" if liveness == "alive" else f" ({liveness})"),
    )


def _unread(sweep_id: str, status: str) -> _Row:
    return _Row(
        sweep_id=sweep_id,
        status=status,
        counts={},
        num_trials=None,
        best_score=None,
        started_at=None,
        holder="",
    )
