"""`raysweep best` and `raysweep trials`."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from raysweep.cli.consoles import make_console, make_table, print_facts, print_json
from raysweep.cli.endings import DONE, FAILED, say_error
from raysweep.cli.lookup import command, read_sweep
from raysweep.outcome import AttemptOutcome, TrialOutcome
from raysweep.runs.status import RunStatus
from raysweep.show import show_config, show_counts, show_duration, show_number


def show_best(name: str, storage: str | None, is_json: bool) -> int:
    """Show the best trial: config, metrics, checkpoint. Exit code 1 where no trial has a score."""
    status, _ = read_sweep(name, storage)
    best = status.best
    if best is None:
        reason = f"no trial of {status.run_id} has reported {status.metric!r}"
        return say_error(f"{reason}; see {command('trials', status.run_id, status.storage)}", FAILED)
    if is_json:
        print_json(
            {
                "sweep_id": status.run_id,
                "sweep_status": status.status,
                "metric": status.metric,
                "mode": status.mode,
                **best.model_dump(mode="json"),
            }
        )
        return DONE
    console = make_console()
    score = "" if best.score is None else show_number(best.score)
    console.print(Text.assemble((f"{status.metric} {score}", "bold green"), f"  trial {best.trial_id}"))
    print_facts(
        console,
        ("config", show_config(best.config)),
        ("metrics", show_config(best.metrics)),
        ("checkpoint", best.checkpoint_uri or "none: the trial reported no checkpoint"),
        ("sweep", f"{status.run_id}, {status.status}: {show_counts(status.counts)}"),
    )
    return DONE


def show_trials(name: str, storage: str | None, is_json: bool) -> int:
    """List the trials, one line each."""
    status, reader = read_sweep(name, storage)
    if is_json:
        print_json([trial.model_dump(mode="json") for trial in reader.trials()])
        return DONE
    table = make_table(
        "trial", "state", f"{status.metric}>", "reports>", "attempts>", "time>", "config", "error"
    )
    for trial in reader.trials():
        table.add_row(*_cells(status, trial))
    make_console().print(table)
    return DONE


def show_attempts(name: str, storage: str | None, is_json: bool) -> int:
    """List every attempt of every trial: how it ended, on which node, the first line of its error."""
    status, reader = read_sweep(name, storage)
    table = make_table("trial", "attempt>", "ended", "class", "node", "time>", "error")
    for trial in reader.trials():
        for attempt in trial.attempts:
            table.add_row(*_attempt_cells(trial, attempt))
    console = make_console()
    console.print(table)
    look = f"{command('logs', status.run_id, status.storage)} --trial N --attempt N"
    console.print(f"what an attempt printed: {look}", markup=False, soft_wrap=True)
    return DONE


def _cells(status: RunStatus, trial: TrialOutcome) -> tuple[Any, ...]:
    is_best = status.best is not None and trial.number == status.best.number
    colour = {"failed": "red", "running": "cyan"}.get(trial.state, "green" if is_best else "")
    return (
        Text(trial.trial_id, style="bold green" if is_best else ""),
        Text(trial.state, style=colour),
        "" if trial.score is None else show_number(trial.score),
        str(trial.reports),
        str(trial.num_attempts),
        _took(trial),
        Text(show_config(trial.config)),
        Text(trial.problem),
    )


def _attempt_cells(trial: TrialOutcome, attempt: AttemptOutcome) -> tuple[Any, ...]:
    return (
        trial.trial_id,
        str(attempt.attempt),
        attempt.end,
        attempt.error.kind if attempt.error else "",
        attempt.node[:12],
        _took(attempt),
        Text(attempt.error.line if attempt.error else ""),
    )


def _took(ran: TrialOutcome | AttemptOutcome) -> str:
    return "" if ran.took_s is None else show_duration(ran.took_s)
