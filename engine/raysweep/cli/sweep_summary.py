"""The summary of a sweep that does not run now: ended, or left by a lost controller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from rich.text import Text

from raysweep.cli.consoles import print_facts
from raysweep.cli.lookup import command
from raysweep.documents.code.trainable import PYTHON_ONLY
from raysweep.documents.report_link import report_url
from raysweep.errors.runs import RESTART, RETRY
from raysweep.outcome import Standing, SweepOutcome, TrainOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep.outcome.showing.formatting import show_age, show_config, show_counts, show_duration, show_score
from raysweep.outcome.standing import INTERRUPTED
from raysweep.specs.identity import slug
from raysweep.terminal import TextConsole

NOTES: Final = 3
_COLOURS: Final = {"failed": "bold red", "cancelled": "bold yellow", INTERRUPTED: "bold yellow"}


def print_status(console: TextConsole, status: Standing) -> None:
    """Its status, why, its trials, the best, where it is all stored, and the command to run next."""
    colour = _COLOURS.get(status.status, "bold green")
    console.print(Text.assemble((status.status, colour), " ", status.run_id), soft_wrap=True)
    print_facts(console, *_facts(status))


def print_night(
    console: TextConsole, sweep: SweepOutcome, train: TrainOutcome | None, *, skipped: str
) -> None:
    """The sweep, its gate's verdict if there was a gate, the training, and what shows earlier nights."""
    print_status(console, status_of_outcome(sweep, now=time.time()))
    facts = []
    if train is not None:
        facts += [("full scale", show_config(train.metrics)), ("trained", _show_trained(train))]
        facts.append(("model", train.model_uri or train.uri))
    if skipped:
        facts.append(("full scale", "not trained: the gate did not promote it"))
    facts.append(("history", _nights(sweep)))
    print_facts(console, *facts)


def _show_trained(train: TrainOutcome) -> str:
    """`trial 00003 of flights-1a2b: lr=0.01`: the gate may promote another than the best of the sweep."""
    config = show_config(train.config)
    if train.source is None:
        return config
    sweep = train.source.sweep.rstrip("/").rpartition("/")[2]
    return f"trial {train.source.trial_id} of {sweep}: {config}"


def _nights(sweep: SweepOutcome) -> str:
    storage = sweep.uri.rpartition("/")[0]
    return command("nights", slug(sweep.name), storage)


def _facts(status: Standing) -> Iterator[tuple[str, str]]:
    best = status.best
    if status.has_ended:
        took = show_duration(status.elapsed_s or 0.0)
        yield "ended", f"{show_age(status.ended_ago_s)} ago, after {took}"
        yield "why", status.reason
    else:
        is_starting = status.is_running
        yield "state", "a controller has just begun" if is_starting else _why_not_running(status)
    yield from _failure_facts(status)
    yield "key", status.key
    yield "trials", show_counts(status.counts, status.num_trials)
    if best is not None:
        yield "best", f"{show_score(status.metric, best.score, best.trial_id)}: {show_config(best.config)}"
        if status.pareto:
            yield "by", status.ranked_by
            yield "front", status.pareto_text
    else:
        yield "best", f"none: {status.no_best}"
    if best is not None and best.checkpoint_uri:
        yield "checkpoint", best.checkpoint_uri
    if status.gate is not None:
        yield "gate", status.gate.why
    for note in status.notes[-NOTES:]:
        yield "note", note
    if status.status == "failed":
        yield "retry", f"{command('retry', status.run_id, status.storage)} ({RETRY})"
        yield "restart", f"{command('restart', status.run_id, status.storage)} ({RESTART})"
    if status.has_ended:
        yield "outcome", f"{status.uri}/outcome.json"
        if best is not None:
            yield "next", command("best", status.run_id, status.storage)
        if best is None or status.first_failure is not None:
            look = f"{command('trials', status.run_id, status.storage)} --attempts"
            yield ("failures" if best is not None else "next"), look
        yield "report", report_of(status)
    else:
        yield "stored at", status.uri
        yield "report", report_of(status)
        if not status.is_running:
            yield "resume", _how_to_resume(status)


def report_of(status: Standing) -> str:
    """The address of its report, or the command that makes it."""
    return report_url(status.run_id) or f"{command('report', status.run_id, status.storage)} --open"


def _how_to_resume(status: Standing) -> str:
    if status.trainable.startswith(PYTHON_ONLY):
        # No import leads to it: the command would be refused.
        return f"run the program that started it again, with the key {status.key!r}"
    return command("resume", status.run_id, status.storage)


def _failure_facts(status: Standing) -> Iterator[tuple[str, str]]:
    """The cause of its failure, or its first failed trial; the line of user code; the traceback's address."""
    trial = status.first_failure
    error = trial.failure if trial is not None and trial.failure is not None else status.error
    if error is None:
        return
    yield "error", f"trial {trial.trial_id}: {error.line}" if trial is not None else error.line
    if error.where:
        yield "at", error.where
    if error.traceback_uri:
        yield "traceback", error.traceback_uri


def _why_not_running(status: Standing) -> str:
    if status.why:
        return f"ended without an outcome: {status.why}"
    if status.holder is None:
        return "not running: its controller is gone"
    ago = show_age(status.silent_s)
    if status.held != "stale":
        return f"not running: its controller is gone ({status.holder}, last seen {ago} ago)"
    if status.silent_s < 0:
        clock = f"whose clock is {show_age(-status.silent_s)} ahead"
        return f"not running: its controller gives no sign of life any more ({status.holder}, {clock})"
    return f"not running: its controller was last seen {ago} ago ({status.holder})"
