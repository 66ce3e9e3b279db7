"""The content of the page, as plain JSON: facts in, JSON out; reads nothing.

Every string in it may come from a user: the page puts it into the document as text, never as markup.
"""

from __future__ import annotations

from typing import Any, Final

from raysweep.errors import one_line
from raysweep.outcome import Standing
from raysweep.pages import live
from raysweep.pages.live import Seen, training_document
from raysweep_airflow.page.place import Place
from raysweep_airflow.page.task import OPERATORS, TaskView

RUNNING_POLL_S: Final = live.POLL_S
WAITING_POLL_S: Final = 5.0

Json = dict[str, Any]


# --- a sweep, a training run


def sweep_view(task: TaskView, place: Place, seen: Seen) -> Json:
    """A sweep that something is known of: the document of its report."""
    shown = _run(task, place, seen.status.has_ended, seen.poll_s)
    return {"view": "sweep", "document": seen.document, **shown}


def train_view(task: TaskView, place: Place, status: Standing) -> Json:
    """A training run of which there is a heartbeat or an outcome."""
    shown = _run(task, place, status.has_ended, RUNNING_POLL_S)
    return {"view": "train", "document": training_document(status), **shown}


def _run(task: TaskView, place: Place, has_ended: bool, poll_s: float) -> Json:
    """The fields that a sweep and a training have in common.

    An ended sweep can continue, and a failed task be tried again: the page asks until both are over.
    """
    if has_ended:
        wait_s = None if task.is_finished else max(5 * RUNNING_POLL_S, poll_s)
    else:
        wait_s = max(RUNNING_POLL_S, poll_s)
    return {"task": _task(task), "job": _job(place), "poll_s": wait_s}


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
        f"It has not answered within {patience_s:.0f} s. The sweep is not affected; this page asks again.",
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
