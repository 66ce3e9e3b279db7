"""`raysweep best` and `raysweep trials`."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from raysweep.cli.consoles import make_console, make_table, print_facts, print_json
from raysweep.cli.lookup import SweepView, open_sweep, read_sweep
from raysweep.cli.process import DONE, FAILED, say_error
from raysweep.cli.sweep import command
from raysweep.live import show_config, show_counts, show_duration, show_number
from raysweep.outcome import AttemptOutcome, ErrorInfo, TrialOutcome


def show_best(name: str, storage: str | None, is_json: bool) -> int:
    """Show the best trial: config, metrics, checkpoint. Exit code 1 where no trial has a score."""
    view = read_sweep(open_sweep(name, storage))
    best = view.best
    if best is None:
        reason = f"no trial of {view.sweep_id} has reported {view.metric!r}"
        return say_error(f"{reason}; see {command('trials', view.sweep_id, view.storage)}", FAILED)
    if is_json:
        print_json(
            {
                "sweep_id": view.sweep_id,
                "sweep_status": view.status,
                "metric": view.metric,
                "mode": view.record.spec.get("mode"),
                **best.model_dump(mode="json"),
            }
        )
        return DONE
    console = make_console()
    score = "" if best.score is None else show_number(best.score)
    console.print(Text.assemble((f"{view.metric} {score}", "bold green"), f"  trial {best.trial_id}"))
    print_facts(
        console,
        ("config", show_config(best.config)),
        ("metrics", show_config(best.metrics)),
        ("checkpoint", best.checkpoint_uri or "none: the trial reported no checkpoint"),
        ("sweep", f"{view.sweep_id}, {view.status}: {show_counts(view.counts)}"),
    )
    return DONE


def show_trials(name: str, storage: str | None, is_json: bool) -> int:
    """List the trials, one line each."""
    view = read_sweep(open_sweep(name, storage))
    if is_json:
        print_json([trial.model_dump(mode="json") for trial in view.trials])
        return DONE
    table = make_table(
        "trial", "state", f"{view.metric}>", "reports>", "attempts>", "time>", "config", "error"
    )
    for trial in view.trials:
        table.add_row(*_cells(view, trial))
    make_console().print(table)
    return DONE


def show_attempts(name: str, storage: str | None, is_json: bool) -> int:
    """List every attempt of every trial: how it ended, on which node, the first line of its error."""
    view = read_sweep(open_sweep(name, storage))
    table = make_table("trial", "attempt>", "ended", "class", "node", "time>", "error")
    for trial in view.trials:
        for attempt in trial.attempts:
            table.add_row(*_attempt_cells(trial, attempt))
    make_console().print(table)
    return DONE


def _cells(view: SweepView, trial: TrialOutcome) -> tuple[Any, ...]:
    is_best = view.best is not None and trial.number == view.best.number
    colour = {"failed": "red", "running": "cyan"}.get(trial.state, "green" if is_best else "")
    return (
        Text(trial.trial_id, style="bold green" if is_best else ""),
        Text(trial.state, style=colour),
        "" if trial.score is None else show_number(trial.score),
        str(trial.reports),
        str(len(trial.attempts)),
        _took(trial.started_at, trial.ended_at),
        Text(show_config(trial.config)),
        Text(_first_line(trial.error)),
    )


def _attempt_cells(trial: TrialOutcome, attempt: AttemptOutcome) -> tuple[Any, ...]:
    return (
        trial.trial_id,
        str(attempt.attempt),
        attempt.end,
        attempt.error.kind if attempt.error else "",
        attempt.node[:12],
        _took(attempt.started_at, attempt.ended_at),
        Text(_first_line(attempt.error)),
    )


def _first_line(error: ErrorInfo | None) -> str:
    if error is None:
        return ""
    first = (error.message.strip().splitlines() or [""])[0]
    return f"{error.type}: {first}" if error.type else first


def _took(started_at: float | None, ended_at: float | None) -> str:
    return "" if started_at is None or ended_at is None else show_duration(ended_at - started_at)
