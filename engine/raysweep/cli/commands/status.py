"""`raysweep status`: one sweep or training run, or a list of all nights."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import compress
from typing import Any, Final, get_args

from raysweep.cli.consoles import make_console, print_facts, print_json, print_rows
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import DEFAULT_STORAGE, read_sweep
from raysweep.cli.sweep_summary import NOTES, print_status, report_of
from raysweep.cli.tables import Listing
from raysweep.cli.training_summary import show_training
from raysweep.documents.validation import did_you_mean
from raysweep.errors import SpecError, SweepNotFoundError
from raysweep.live import draw_progress
from raysweep.numeric.shown import show_number
from raysweep.outcome import Standing, SweepStatus, UnfinishedStatus
from raysweep.outcome.showing.estimate_text import estimate_facts
from raysweep.outcome.showing.formatting import show_age, show_duration
from raysweep.runs.reading.glances import glance_training
from raysweep.runs.reading.listing import ids_of
from raysweep.runs.reading.naming.lookup import find_training
from raysweep.runs.reading.nights import Night, nights_at
from raysweep.specs.identity import slug
from raysweep.storage.objects.opening import open_store

STATES: Final[tuple[str, ...]] = (*get_args(UnfinishedStatus), *get_args(SweepStatus), "damaged")
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(min|h|d|w)")
_UNITS_S: Final = {"min": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 7 * 86_400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The nights that are listed. Raises SpecError for a state or an age that cannot be."""

    name: str | None = None
    states: Sequence[str] = ()
    since: str | None = None
    start: int = 0

    def __post_init__(self) -> None:
        for state in self.states:
            if state not in STATES:
                fix = did_you_mean(state, dict.fromkeys(STATES))
                raise SpecError("--state", f"{state!r} is not a state of a sweep", fix)
        self.begins_at(0.0)

    def begins_at(self, now: float) -> float | None:
        """From when on, in UTC seconds; None: from the first."""
        if self.since is None:
            return None
        found = _AGE.fullmatch(self.since.strip())
        if found is not None:
            return now - float(found[1]) * _UNITS_S[found[2]]
        try:
            return datetime.fromisoformat(self.since).astimezone().timestamp()
        except ValueError:
            fix = "write an age such as 36h, 7d or 2w, or a date such as 2026-11-25"
            raise SpecError("--since", f"{self.since!r} is neither an age nor a date", fix) from None

    def pass_night(self, night: Night, now: float) -> bool:
        """True if a night is listed."""
        begin = self.begins_at(now)
        if begin is not None and (night.run.started_at or 0.0) < begin:
            return False
        states = {"running" if part.is_running else part.status for part in night.parts}
        return not self.states or not states.isdisjoint(self.states)


def show_named(only: str, storage: str | None, is_json: bool, filters: Filters) -> int:
    """Show the sweep or the training run of a name; where there are several, list its nights."""
    store, is_filtered = open_store(storage or DEFAULT_STORAGE), bool(filters.states or filters.since)
    count = sum(store.exists(f"{each}/sweep.json") for each in ids_of(store, slug(only)))
    if count > 1 or (count and is_filtered):
        return show_list(storage, is_json, filters)
    return show(slug(only), storage, is_json, slug(only))


def show(name: str, storage: str | None, is_json: bool, training_name: str | None = None) -> int:
    """Show one sweep, or a training run: running, ended, or left by a controller that is gone.

    `training_name`: what names the training run, where that is not `name`.
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
    # The facts below say what is expected; the trials that are slow belong to the table.
    shown = status.heartbeat.model_copy(update={"estimate": None, "slow": status.slow})
    console.print(draw_progress(shown, status.elapsed_s or 0.0, notes=status.notes[-NOTES:]))
    facts = [("key", status.key), ("run by", str(status.holder)), ("stored at", status.uri)]
    facts.append(("report", report_of(status)))
    if status.estimate is not None:
        facts = [*estimate_facts(status.estimate, status.read_at, status.deadline), *facts]
    elif status.expected_end_at is not None:
        facts.insert(0, ("expected end", f"in {show_duration(status.expected_end_at - status.read_at)}"))
    print_facts(console, *facts)
    return DONE


def show_list(storage: str | None, is_json: bool, filters: Filters) -> int:
    """List the nights at a storage path, the newest first: sweep, gate and training in one row."""
    store, now = open_store(storage or DEFAULT_STORAGE), time.time()
    found = [night for night in nights_at(store, filters.name) if filters.pass_night(night, now)]
    if is_json:
        print_rows("nights", [_row(night) for night in found], filters.start)
        return DONE
    console = make_console()
    if not found:
        which = " that match" if filters != Filters() else ""
        text = f"no sweeps{which} at {store.url}"
        make_console(is_stderr=True).print(text, soft_wrap=True)
        return DONE
    # A column is there where a night has something to show in it.
    columns = {
        "gate": any(night.gate_run is not None for night in found),
        "training": any(night.training is not None for night in found),
        "kind": any(night.run.kind != "sweep" for night in found),
    }
    short = ("run", "status", "trials>", "best>", "gate", "training", "age>", "kind", "key")
    is_shown = [columns.get(name, True) for name in (*short, "holder")]
    listing = Listing(list(compress(short, is_shown)), ("holder",))
    for night in found:
        listing.add(*compress(_cells(night, now), is_shown))
    listing.show(console)
    return DONE


def show_gate(night: Night) -> str:
    """`promoted`, `not promoted`, or how far its gate is; empty without one."""
    if night.gate is not None and night.gate.is_waiting:
        return "awaits approval"
    if night.promoted is not None:
        return "promoted" if night.promoted else "not promoted"
    return night.gate_run.status if night.gate_run is not None else ""


def _as_json(status: Standing) -> dict[str, Any]:
    shown = status.model_dump(mode="json")
    same = ("uri", "key", "status", "why", "metric", "mode", "counts", "best", "ahead")
    return {
        "sweep_id": status.run_id,
        "is_running": status.is_running,
        **{name: shown[name] for name in (*same, "started_at", "ended_at")},
        "progress": shown["heartbeat"],
        "notes": shown["notes"],
        "expected_end_at": status.expected_end_at,
        "estimate": shown["estimate"],
        "slow": shown["slow"],
    }


def _row(night: Night) -> dict[str, Any]:
    run, gate, training = night.run, night.gate_run, night.training
    verdict = night.gate
    return {
        "sweep_id": run.run_id,
        "kind": run.kind,
        "name": run.name,
        "key": run.key,
        "status": f"damaged: {run.problem}" if run.status == "damaged" else run.status,
        "counts": run.counts,
        "num_trials": run.num_trials,
        "metric": run.metric,
        "best_score": run.score,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "holder": run.held_by,
        "gate": None
        if gate is None
        else {
            "sweep_id": gate.run_id,
            "status": gate.status,
            "promoted": night.promoted,
            "why": verdict.why if verdict is not None else "",
        },
        "training": None if training is None else {"run_id": training.run_id, "status": training.status},
    }


def _cells(night: Night, now: float) -> tuple[str, ...]:
    run = night.run
    total = "" if run.num_trials is None else f"/{run.num_trials}"
    is_sweep = run.kind == "sweep"
    problem = run.problem if run.status == "damaged" else ""
    return (
        run.run_id,
        run.status,
        f"{run.counts.ended}{total}" if is_sweep else "",
        "" if run.score is None else show_number(run.score),
        show_gate(night),
        night.training.status if night.training is not None else "",
        "" if run.started_at is None else show_age(now - run.started_at),
        run.kind,
        run.key,
        problem or run.held_by,
    )
