"""What the page shows, as plain JSON of bounded size: facts in, JSON out; reads nothing.

Every string in it may come from a user: the page puts it into the document as text, never as markup.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from typing import Any, Final

import orjson

from raysweep.documents.json_values import leaves
from raysweep.errors import one_line
from raysweep.outcome import ErrorInfo, GateOutcome, RunningTrial, TrialOutcome
from raysweep.outcome.formatting import show_number
from raysweep.runs.reading.status import RunStatus
from raysweep_airflow.page.place import Place
from raysweep_airflow.page.task import OPERATORS, TaskView

RUNNING_POLL_S: Final = 3.0
WAITING_POLL_S: Final = 5.0
MAX_PAIRS: Final = 40
"""Parameters of a config that are listed."""
MAX_TEXT: Final = 160
"""Characters of one value."""
MAX_CONFIG_JSON: Final = 16_384

Json = dict[str, Any]


# --- a sweep, a training run


def sweep_view(task: TaskView, place: Place, status: RunStatus) -> Json:
    """A sweep that something is known of."""
    return {
        "view": "sweep",
        "sweep_id": status.run_id,
        **_run(task, place, status),
        "why": one_line(status.why, 1000),
        "reason": one_line(status.reason, 1000),
        "metric": status.metric,
        "mode": status.mode,
        "others": list(status.others),
        "front": one_line(status.pareto_text, 1000),
        "infeasible": one_line(status.infeasible, 500),
        "counts": status.counts.shown,
        "num_trials": status.num_trials,
        "ended": status.counts.ended,
        "slots": status.slots,
        "best": _best(status.best, is_whole=not status.problem) if status.best is not None else None,
        "curve": [[dot.at, dot.ended, dot.score, dot.trial_id] for dot in status.curve],
        "dots": [[dot.at, dot.ended, dot.score, dot.trial_id] for dot in status.dots],
        "top": [_trial(trial) | {"others": _others(status, trial)} for trial in status.top],
        "running": [_running(trial) for trial in status.running],
        "failures": [_trial(trial) for trial in status.failures],
        "logs": _log_command(status),
        "gate": _gate(status.gate) if status.gate is not None else None,
        "usage": status.usage.model_dump() if status.usage is not None else None,
    }


def train_view(task: TaskView, place: Place, status: RunStatus) -> Json:
    """A training run of which there is a heartbeat or an outcome."""
    trained = status.training
    return {
        "view": "train",
        "run_id": place.run_id,
        **_run(task, place, status),
        "reports": status.reports,
        "metrics": pairs(trained.metrics) if trained is not None else [],
        "config": pairs(trained.config) if trained is not None else [],
        "model_uri": trained.model_uri if trained is not None else None,
    }


def _run(task: TaskView, place: Place, status: RunStatus) -> Json:
    """What a sweep and a training have in common."""
    return {
        "task": _task(task),
        "poll_s": _poll_s(task, has_ended=status.has_ended),
        "name": status.name,
        "key": one_line(status.key or place.key, MAX_TEXT),
        "status": status.status,
        "is_running": status.is_running,
        "has_ended": status.has_ended,
        "times": {
            "started_at": status.started_at,
            "ended_at": status.ended_at,
            "seen_at": status.seen_at,
            "deadline": status.deadline,
            "expected_end_at": status.expected_end_at,
            "read_at": status.read_at,
        },
        "estimate": status.estimate.model_dump() if status.estimate is not None else None,
        "slow": [one_line(line, 200) for line in status.slow],
        "error": _error(status.error) if status.error is not None else None,
        "notes": [one_line(note, 500) for note in status.notes],
        "generation": status.generation,
        "uri": status.uri,
        "job": _job(place),
    }


# --- nothing to show yet, or for a reason


def no_task_view(dag_id: str, run_id: str, task_id: str, map_index: int) -> Json:
    """Airflow knows no such task instance."""
    index = f", map index {map_index}" if map_index >= 0 else ""
    return _message(
        "There is no such task instance",
        f"Airflow has no task {task_id!r} in run {run_id!r} of the DAG {dag_id!r}{index}. "
        "The run may have been deleted, or the address is not complete.",
        tone="problem",
        poll_s=None,
    )


def no_place_view(task: TaskView) -> Json:
    """The task has not said where a sweep of it lies."""
    is_ours = task.operator in OPERATORS
    if not task.is_finished and (is_ours or not task.started_at):
        if task.state in ("running", "deferred", "restarting"):
            title, text = "The sweep is about to start", "The task runs, and has not submitted its sweep yet."
        else:
            state = task.state or "waiting for the tasks before it"
            title, text = "Not started yet", f"The task is {state}. Its sweep shows up here once it runs."
        return _message(title, text, task=task, poll_s=WAITING_POLL_S)
    if is_ours and task.state in ("failed", "upstream_failed"):
        text = (
            "The task before it failed, so there was nothing to do."
            if task.state == "upstream_failed"
            else "The task failed before its sweep was submitted. Its log says why."
        )
        return _message("No sweep was started", text, task=task, tone="problem", poll_s=None)
    if is_ours:
        return _message(
            "No sweep was started", f"The task is {task.state} and ran no sweep.", task=task, poll_s=None
        )
    return _message(
        "Not a sweep task",
        f"This page shows the sweeps of raysweep's operators. {task.task_id!r} is a task of another kind "
        f"({task.operator or 'unknown'}).",
        task=task,
        poll_s=None,
    )


def nothing_stored_view(task: TaskView, place: Place) -> Json:
    """The task has said where its sweep lies, but nothing is there."""
    what = "training" if place.kind == "train" else "sweep"
    uri = place.uri
    is_local = "://" not in place.storage_path
    hint = (
        "That is a folder: the Ray cluster and Airflow's api-server must both see it, for example on a "
        "network file system. Otherwise give the spec a storage_path in an object store."
        if is_local
        else "If it stays so, check that the cluster and the api-server mean the same bucket."
    )
    if task.is_finished:
        return _message(
            f"The {what} cannot be found from here",
            f"The task ended, but the api-server finds nothing of its {what} at {uri}. {hint}",
            task=task,
            place=place,
            tone="problem",
            poll_s=None,
        )
    return _message(
        f"The {what} is starting",
        f"It is submitted, and has written nothing to {uri} yet: the cluster may still start its job. {hint}",
        task=task,
        place=place,
        poll_s=WAITING_POLL_S,
    )


def unreadable_view(task: TaskView, place: Place, problem: str) -> Json:
    """The storage answers with an error, or not at all."""
    return _message(
        "The storage cannot be read from the api-server",
        f"The sweep itself does not mind: it needs the storage on its cluster only. This page reads "
        f"{place.storage_path} from Airflow's api-server, which needs access to it, credentials included.",
        detail=one_line(problem, 2000),
        task=task,
        place=place,
        tone="problem",
        poll_s=4 * WAITING_POLL_S,
    )


def slow_view(patience_s: float) -> Json:
    """The storage did not answer in time."""
    return _message(
        "The storage is slow",
        f"It has not answered within {patience_s:.0f} s. The sweep does not mind; this page goes on asking.",
        tone="problem",
        poll_s=2 * WAITING_POLL_S,
    )


def _message(
    title: str,
    text: str,
    *,
    detail: str = "",
    task: TaskView | None = None,
    place: Place | None = None,
    tone: str = "calm",
    poll_s: float | None,
) -> Json:
    return {
        "view": "message",
        "title": title,
        "text": text,
        "detail": detail,
        "tone": tone,
        "task": _task(task) if task is not None else None,
        "job": _job(place) if place is not None else None,
        "poll_s": poll_s,
    }


# --- parts


def pairs(config: Mapping[str, Any]) -> list[list[str]]:
    """A config as (path, value) texts: nested names joined by dots, floats with six digits, long ones cut."""
    found: list[list[str]] = []
    for path, value in leaves(config):
        if len(found) == MAX_PAIRS:
            found.append(["…", "more in outcome.json"])
            break
        found.append([one_line(path, MAX_TEXT), _text(value)])
    return found


def config_json(config: Mapping[str, Any]) -> str:
    """The whole config as JSON, to be copied; empty where it is too long for that."""
    text = orjson.dumps(config, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str).decode()
    return text if len(text) <= MAX_CONFIG_JSON else ""


def _text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return show_number(value)
    if isinstance(value, str):
        return one_line(value, MAX_TEXT)
    return one_line(orjson.dumps(value, default=str).decode(), MAX_TEXT)


def _best(trial: TrialOutcome, *, is_whole: bool) -> Json:
    """Of what only the heartbeat tells, the state is not known, unless the trial runs."""
    state = trial.state if is_whole or trial.state == "running" else ""
    return _trial(trial) | {"config_json": config_json(trial.config), "state": state}


def _trial(trial: TrialOutcome) -> Json:
    return {
        "trial_id": trial.trial_id,
        "state": trial.state,
        "score": _finite(trial.score),
        "violated": [one_line(text, MAX_TEXT) for text in trial.violated],
        "config": pairs(trial.config),
        "metrics": pairs(trial.metrics),
        "reports": trial.reports,
        "attempts": trial.num_attempts,
        "started_at": trial.started_at,
        "ended_at": trial.ended_at,
        "checkpoint_uri": trial.checkpoint_uri,
        "error": trial.problem,
    }


def _others(status: RunStatus, trial: TrialOutcome) -> list[float | None]:
    """Of several metrics the values of those after the first."""
    found = (trial.metrics.get(name) for name in status.others)
    return [_finite(value) if isinstance(value, int | float) else None for value in found]


def _log_command(status: RunStatus) -> str:
    """What prints the log of the newest failed trial; empty where none failed."""
    if not status.failures:
        return ""
    return shlex.join(["raysweep", "logs", status.uri, "--trial", str(status.failures[0].number)])


def _running(trial: RunningTrial) -> Json:
    return {
        "trial_id": trial.trial_id,
        "score": _finite(trial.score),
        "config": pairs(trial.config),
        "iteration": trial.iteration,
        "started_at": trial.started_at,
    }


def _finite(score: float | None) -> float | None:
    """JSON has no other numbers."""
    return score if score is not None and math.isfinite(score) else None


def _gate(gate: GateOutcome) -> Json:
    return {"promoted": gate.promoted, "why": one_line(gate.why, 500)}


def _error(error: ErrorInfo) -> Json:
    return {
        "title": one_line(str(error), 500),
        "traceback": (error.traceback or "").strip(),
    }


def _task(task: TaskView) -> Json:
    return {
        "dag_id": task.dag_id,
        "run_id": task.run_id,
        "task_id": task.task_id,
        "map_index": task.map_index,
        "state": task.state,
        "try_number": task.try_number,
    }


def _job(place: Place) -> Json | None:
    if not place.job_id and not place.job_url:
        return None
    url = place.job_url if place.job_url.startswith(("http://", "https://")) else ""
    return {"id": place.job_id, "url": url, "address": place.address}


def _poll_s(task: TaskView, *, has_ended: bool) -> float | None:
    """An ended sweep can go on, and a failed task be tried again: look now and then until both are over."""
    if has_ended and task.is_finished:
        return None
    return 5 * RUNNING_POLL_S if has_ended else RUNNING_POLL_S
