"""`raysweep best` and `raysweep trials`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import typer
from rich.text import Text

from raysweep.cli.consoles import SCHEMA_VERSION, make_console, print_facts, print_json, print_rows
from raysweep.cli.error_documents import print_document
from raysweep.cli.exit_codes import DONE, FAILED, say_error
from raysweep.cli.lookup import command, open_sweep, read_sweep
from raysweep.cli.tables import Cell, Listing
from raysweep.documents.json_numbers import with_names
from raysweep.documents.json_values import leaves
from raysweep.documents.validation import did_you_mean
from raysweep.errors import SpecError
from raysweep.numeric.shown import show_number
from raysweep.outcome import TRIAL_TIMES, AttemptOutcome, ErrorInfo, Standing, TrialOutcome, trial_row
from raysweep.outcome.frames import column_names, with_iso_times, write_csv
from raysweep.outcome.showing.formatting import show_column, show_config, show_counts, show_duration


def show_best(name: str, storage: str | None, is_json: bool) -> int:
    """Show the best trial: config, metrics, checkpoint. Exit code 1 where no trial has a score."""
    status, _ = read_sweep(name, storage)
    best = status.best
    if best is None:
        look = command("trials", status.run_id, status.storage)
        text = f"{status.run_id} has no best trial: {status.no_best}"
        if is_json:
            print_document("no_best_trial", text, FAILED, next=look)
        return say_error(f"{text}; see {look}", FAILED)
    if is_json:
        print_json(
            {
                "sweep_id": status.run_id,
                "sweep_status": status.status,
                "metric": status.metric,
                "mode": status.mode,
                **({"others": dict(status.others), "pareto": list(status.pareto)} if status.others else {}),
                **({"constraints": list(status.constraints)} if status.constraints else {}),
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
        ("by", status.ranked_by),
        *([("front", status.pareto_text)] if status.pareto else []),
        ("checkpoint", best.checkpoint_uri or "none: the trial reported no checkpoint"),
        ("sweep", f"{status.run_id}, {status.status}: {show_counts(status.counts)}"),
    )
    return DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The trials that are shown, their order, and their form."""

    sort: str | None = None
    top: int | None = None
    is_csv: bool = False
    is_json: bool = False
    attempts: bool = False
    history: bool = False
    start: int = 0


def show_trials(name: str, storage: str | None, view: View) -> int:
    """List the trials, one line each; or every attempt of theirs, or every report.

    Raises:
        SpecError: What is asked for does not go together, or there is nothing to sort by of that name.
    """
    if view.is_csv and (view.is_json or view.attempts):
        other = "--json" if view.is_json else "--attempts"
        raise SpecError("--csv", f"does not go with {other}", "leave one of them out")
    if view.history:
        return _show_history(name, storage, view)
    status, reader = read_sweep(name, storage)
    if view.sort is None and view.top is not None:
        # Of many trials these few are at hand.
        trials = list(reader.best(view.top))
    else:
        trials = select(reader.trials(), view.sort, view.top, metric=status.metric, mode=status.mode)
    if view.is_json:
        print_rows("trials", [trial.model_dump(mode="json") for trial in trials], view.start)
    elif view.is_csv:
        rows = [trial_row(trial) | {"error": trial.problem or None} for trial in trials]
        write_csv(sys.stdout, rows, column_names(rows or [NO_TRIAL]), times=TRIAL_TIMES)
    elif view.attempts:
        _list_attempts(status, trials)
    else:
        _list_trials(status, trials)
    return DONE


def select(
    trials: Sequence[TrialOutcome], sort: str | None, top: int | None, *, metric: str, mode: str
) -> list[TrialOutcome]:
    """The trials in the order of `sort`, the first `top` of them.

    `sort`: a column, a metric or a parameter of the config; the sweep's metric comes best first, all else the
    smallest first, `-` before the name turns it round. Those without a value come last. Without it, the
    number; with `top` alone, the best.

    Raises:
        SpecError: No trial has anything of this name; says what there is.
    """
    if sort is None and top is None:
        return list(trials)
    given = sort or metric
    name, is_turned = given.removeprefix("-"), given.startswith("-")
    is_score = name in (metric, "score")
    values = [trial.score if is_score else _value(trial, name) for trial in trials]
    if trials and all(value is None for value in values) and not is_score and name not in _SORTS:
        known = [metric, *_SORTS, *_names(trials)]
        raise SpecError("--sort", f"no trial has {name!r}", did_you_mean(name, dict.fromkeys(known)))
    is_down = is_turned != (is_score and mode == "max")
    there = [pair for pair in zip(values, trials, strict=True) if _is_value(pair[0])]
    missing = [trial for value, trial in zip(values, trials, strict=True) if not _is_value(value)]
    there.sort(key=lambda pair: _order(pair[0]), reverse=is_down)
    if is_score and not is_turned:
        # Best first: what breaks a constraint is behind all that does not.
        there.sort(key=lambda pair: pair[1].violation)
    return [*(trial for _, trial in there), *missing][:top]


def _value(trial: TrialOutcome, name: str) -> Any:
    if name in _SORTS:
        return _SORTS[name](trial)
    return dict(leaves(trial.config)).get(name, trial.metrics.get(name))


def _names(trials: Sequence[TrialOutcome]) -> list[str]:
    """Parameters, then metrics: a trial has only those of the branches that it took."""
    found = [path for trial in trials for path, _ in leaves(trial.config)]
    return list(dict.fromkeys([*found, *(name for trial in trials for name in trial.metrics)]))


def _is_value(value: Any) -> bool:
    return value is not None and value == value  # NaN is no value to sort by


def _order(value: Any) -> tuple[int, Any]:
    """Numbers before texts: a parameter may be either."""
    return (0, value) if isinstance(value, int | float) else (1, str(value))


def _show_history(name: str, storage: str | None, view: View) -> int:
    # Imported only here: it plays the journal, for which it needs the core.
    from raysweep.runs.reading.history import COLUMNS, TIMES, metric_names, reports_of

    if view.sort or view.top or view.attempts:
        fix = "leave it out, or sort what --csv gives"
        raise SpecError("--history", "goes with --csv and --json only", fix)
    folder = open_sweep(name, storage)
    if view.is_json:
        _print_json_rows(with_iso_times(reports_of(folder), TIMES))
        return DONE
    metrics = metric_names(folder)
    if view.is_csv:
        write_csv(sys.stdout, reports_of(folder), (*COLUMNS, *metrics), times=TIMES)
        return DONE
    rows = list(reports_of(folder))
    after = ("after stop",) if any(row["overrun"] for row in rows) else ()
    listing = Listing(["trial", "attempt>", "iteration>", *after, *(f"{name}>" for name in metrics)])
    columns = [show_column([row.get(name) for row in rows]) for name in metrics]
    for number, row in enumerate(rows):
        late = ("yes" if row["overrun"] else "",) if after else ()
        numbers = (column[number] for column in columns)
        listing.add(row["trial_id"], str(row["attempt"]), str(row["iteration"]), *late, *numbers)
    listing.show(make_console())
    return DONE


def _print_json_rows(rows: Iterable[dict[str, Any]]) -> None:
    """A document with a line for each row: there may be more than memory holds."""
    head = f'{{"schema_version":{SCHEMA_VERSION},"reports":['
    typer.echo(head, nl=False)
    before = ""
    for row in rows:
        typer.echo(before + "\n" + orjson.dumps(with_names(row)).decode(), nl=False)
        before = ","
    typer.echo("\n]}" if before else "]}")


def _list_trials(status: Standing, trials: Sequence[TrialOutcome]) -> None:
    front = ("front",) if status.others else ()
    metrics = [show_column([trial.score for trial in trials])] if status.metric else []
    metrics += [show_column([trial.metrics.get(name) for trial in trials]) for name in status.others]
    names = (f"{name}>" for name in (status.metric, *status.others) if name)
    after = ("after stop>",) if any(trial.overrun_reports for trial in trials) else ()
    short = ("trial", *front, "state", *names, "reports>", *after, "attempts>", "time>")
    reported = [] if status.metric else ["metrics"]
    listing = Listing(short, ("config", *reported, *(["violates"] if status.constraints else []), "error"))
    for number, trial in enumerate(trials):
        late = (str(trial.overrun_reports or ""),) if after else ()
        listing.add(*_cells(status, trial, [column[number] for column in metrics], late))
    listing.show(make_console())
    if after:
        note = "after stop: reports that a trial made before the stop reached it; they rank nothing"
        make_console(is_stderr=True).print(note, style="dim", soft_wrap=True)


def _list_attempts(status: Standing, trials: Sequence[TrialOutcome]) -> None:
    listing = Listing(("trial", "attempt>", "ended", "class", "node", "time>"), ("error",))
    for trial in trials:
        for attempt in trial.attempts:
            listing.add(*_attempt_cells(trial, attempt))
    console = make_console()
    listing.show(console)
    look = f"{command('logs', status.run_id, status.storage)} --trial N --attempt N"
    console.print(f"what an attempt printed: {look}", soft_wrap=True)


_SORTS: Final[dict[str, Callable[[TrialOutcome], Any]]] = {
    "trial": lambda trial: trial.number,
    "state": lambda trial: trial.state,
    "reports": lambda trial: trial.reports,
    "attempts": lambda trial: trial.num_attempts,
    "time": lambda trial: trial.took_s,
    "started": lambda trial: trial.started_at,
    "ended": lambda trial: trial.ended_at,
}
NO_TRIAL: Final = trial_row(TrialOutcome(trial_id="", number=0, state="pending"))


def _cells(
    status: Standing, trial: TrialOutcome, metrics: Sequence[str], late: Sequence[str]
) -> tuple[Cell, ...]:
    is_best = status.best is not None and trial.number == status.best.number
    colour = {"failed": "red", "running": "cyan"}.get(trial.state, "green" if is_best else "")
    return (
        Text(trial.trial_id, style="bold green" if is_best else ""),
        *(["*" if trial.trial_id in status.pareto else ""] if status.others else []),
        Text(trial.state, style=colour),
        *metrics,
        str(trial.reports),
        *late,
        str(trial.num_attempts),
        _took(trial),
        Text(show_config(trial.config)),
        *([] if status.metric else [Text(show_config(trial.metrics))]),
        *([Text("; ".join(trial.violated))] if status.constraints else []),
        Text(trial.problem),
    )


def _attempt_cells(trial: TrialOutcome, attempt: AttemptOutcome) -> tuple[Cell, ...]:
    return (
        trial.trial_id,
        str(attempt.attempt),
        attempt.end,
        attempt.error.kind if attempt.error else "",
        attempt.node[:12],
        _took(attempt),
        Text(_explain(attempt.error) if attempt.error else ""),
    )


def _explain(error: ErrorInfo) -> str:
    """Type and message, the line of user code, and where the whole traceback is."""
    at = f" at {error.where}" if error.where else ""
    return f"{error.line}{at}" + (f"; traceback: {error.traceback_uri}" if error.traceback_uri else "")


def _took(ran: TrialOutcome | AttemptOutcome) -> str:
    return "" if ran.took_s is None else show_duration(ran.took_s)
