"""Comparison of a job, or of what the storage holds of its run, with the spec that is asked for.

The storage tells the spec of a run only once its driver has started. Until then the outline of the spec in
the job's metadata does. The handle of a job has an outline too, for callers that wait: what the storage holds
at the end may be another caller's, from another cluster, or from before the head was lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from raysweep.errors import SpecChangedError, SpecError
from raysweep.jobs.decisions import Newest, NewestStatus
from raysweep.jobs.wire import JobInfo
from raysweep.runs.reading.view import Outcome, RunView
from raysweep.specs import AnyRequest
from raysweep.specs.changes import Changes
from raysweep.specs.outline import outline, outline_changes
from raysweep.storage.objects.identity import is_same_store

STORAGE: Final = "raysweep_storage"
"""The field of a job's metadata that says where its run is stored."""
OUTLINE: Final = "raysweep_spec"
"""The field of a job's metadata that says what its spec is. A job without it is of any spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The storage's knowledge of a run, before the cluster is asked."""

    storage: str
    """The URL of the storage path."""
    recorded: int
    """The highest number of a job that was noted or called off; 0 for none."""
    called_off: int
    """The highest number of a job that was asked to end; 0 for none."""
    outcome: Outcome | None
    has_spec: bool
    """True if the spec is stored: then it was compared with the one that is asked for."""
    is_reopening: bool
    """True if the run continues although it has an outcome."""


def find_newest(jobs: Sequence[JobInfo], request: AnyRequest, seen: Stored) -> Newest | None:
    """The newest job of the run, as the cluster knows it, or as it was noted when the cluster did.

    One of this id that stores elsewhere, or that has stored no spec and was submitted with another one, is
    another run. While it runs it is in the way (SpecChangedError), unless it was told to end; after that only
    its number is taken. A job that was told to end and failed counts as stopped: its driver may hear of the
    request before Ray ends it.
    """
    run_id, found = request.run.id, dict[int, JobInfo]()
    for info in jobs:
        name, _, number = info.job_id.rpartition(".")
        if name == run_id and number.isdigit():
            found[int(number)] = info
    highest = max(found, default=0)
    if seen.recorded > highest:
        return Newest(number=seen.recorded, status="GONE")
    if not found:
        return None
    info = found[highest]
    elsewhere = info.metadata.get(STORAGE, seen.storage)
    is_here = is_same_store(elsewhere, seen.storage)
    is_over = info.is_ended or highest <= seen.called_off
    if not is_here and not info.is_ended:
        raise SpecChangedError(run_id, (f"storage_path: {elsewhere} -> {seen.storage}",))
    if not seen.has_spec and not is_over:
        check_job(info, request)
    is_other = not is_here or (not seen.has_spec and job_changes(info, request).unsafe)
    status: NewestStatus = "GONE" if is_other else info.status
    if status == "FAILED" and highest <= seen.called_off:
        status = "STOPPED"
    return Newest(number=highest, status=status, is_noted=seen.recorded > 0)


def to_metadata(request: AnyRequest) -> str:
    """The value of `OUTLINE` for a request."""
    return orjson.dumps(outline(request.spec)).decode()


def check_job(info: JobInfo, request: AnyRequest) -> None:
    """See that a job that continues runs this request. Raises: SpecChangedError."""
    lines = job_changes(info, request).unsafe
    if lines:
        run = request.run
        noun = "sweep" if run.kind == "sweep" else "training"
        fix = (
            f"use another key to start a new {noun}, change the spec back, or cancel that job first "
            f"(`raysweep cancel {run.id}`)"
        )
        raise SpecChangedError(run.id, lines, fix)


def job_changes(info: JobInfo, request: AnyRequest) -> Changes:
    """The differences from a job's spec to a request's; none where the job does not tell."""
    found = info.metadata.get(OUTLINE)
    return outline_changes(orjson.loads(found), outline(request.spec)) if found else Changes()


def stored_changes(view: RunView, asked: Mapping[str, Any]) -> tuple[str, ...]:
    """The differences from the stored spec of a run to what the job's caller asked for.

    Limits do not count: callers that attached since may have asked for more. Raises: StorageError.
    """
    try:
        stored = view.spec() if asked else None
    except SpecError:
        return ()  # of a later version: it was compared where that runs
    if stored is None:
        return ()
    return outline_changes({**outline(stored), "limits": {}}, {**asked, "limits": {}}).unsafe
