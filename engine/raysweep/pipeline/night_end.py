"""The end of a night, and trainings that have not begun and would not end by then."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from statistics import median
from typing import Any, Final

from raysweep.documents.base import SpecModel
from raysweep.documents.wall_clock import resolve_deadline
from raysweep.errors import RaysweepError, SpecError
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.outcome.showing.formatting import show_duration
from raysweep.runs.reading.listing import ids_of, list_runs
from raysweep.runs.reading.view import RunView
from raysweep.specs import RunRequest, TrainSpec
from raysweep.specs.identity import slug
from raysweep.specs.policies import Deadline
from raysweep.step.brief import stored_outcome
from raysweep.storage.objects.opening import open_store

LAST: Final = 5
"""The number of the newest trainings that show how long one takes."""


class _Given(SpecModel):
    deadline: Deadline = None


def read_deadline(given: Any) -> datetime | str | None:
    """A pipeline's `deadline` by itself, as a step of a DAG has it. Raises: SpecError."""
    return _Given.model_validate({"deadline": given}).deadline


def night_end(
    deadline: datetime | str | None, given: SweepOutcome | Mapping[str, Any] | None
) -> datetime | None:
    """The moment that a pipeline's `deadline` means: of a time of day, the next one after its sweep began.

    Args:
        deadline: The pipeline's.
        given: The sweep's outcome, or the brief of it.

    Raises: SpecError, SweepNotFoundError, StorageError: The sweep's outcome cannot be read.
    """
    if not isinstance(deadline, str):
        return deadline
    outcome = given if isinstance(given, SweepOutcome) else stored_outcome(given)
    return resolve_deadline(deadline, outcome.started_at)


def ending_by(
    train: TrainSpec, ends_at: datetime | None, given: SweepOutcome | Mapping[str, Any] | None
) -> TrainSpec:
    """The training with the end of the night as its deadline, or with its own where that is earlier.

    Its own time of day counts from the sweep's start, as the night's does: every try gets the same moment.

    Args:
        train: The training.
        ends_at: When the night ends; None: whenever, and the training stays as it is.
        given: The sweep's outcome, or the brief of it.

    Raises: SpecError, SweepNotFoundError, StorageError: The sweep's outcome cannot be read.
    """
    if ends_at is None:
        return train
    deadline = train.stop.deadline
    if isinstance(deadline, str) and given is None:
        problem = f"{deadline} counts from the start of the sweep, and the training has none"
        raise SpecError("stop.deadline", problem, "give a date and time, or leave it out")
    own = night_end(deadline, given)
    earlier = ends_at if own is None else min(own, ends_at)
    return train.replace(stop=train.stop.replace(deadline=earlier))


def why_not_begun(
    request: RunRequest[TrainSpec], ends_at: datetime | None, *, now: float | None = None
) -> str:
    """The reason why a training is not begun: it would not end by the end of the night; empty: it is begun.

    One that has begun before continues. How long it takes is the median of the newest that completed, of the
    same name; where there are none, it is begun.

    Args:
        request: The training.
        ends_at: When the night ends; None: whenever.
        now: UTC seconds; default: the clock.

    Raises: StorageError.
    """
    spec, run = request.spec, request.run
    if ends_at is None or RunView("train", spec.storage_path, run.id).has_spec():
        return ""
    left_s = ends_at.timestamp() - (time.time() if now is None else now)
    at = _time_of(ends_at)
    if left_s <= 0:
        return f"training not begun: the night ended at {at}"
    own = spec.stop.deadline
    if isinstance(own, datetime) and own.timestamp() <= ends_at.timestamp() - left_s:
        return f"training not begun: its stop.deadline was {_time_of(own)}"
    took = times_of(spec)
    if not took or median(took) <= left_s:
        return ""
    before = f"the last {len(took)} took {show_duration(median(took))} (median)"
    if len(took) == 1:
        before = f"the one before took {show_duration(took[0])}"
    return f"training not begun: {before}, and the night ends in {show_duration(left_s)} ({at})"


def _time_of(moment: datetime) -> str:
    return moment.isoformat(timespec="minutes")[11:]


def times_of(spec: TrainSpec) -> list[float]:
    """The seconds that the newest completed trainings of this name took."""
    store = open_store(spec.storage_path)
    runs = list_runs(store, ids_of(store, slug(spec.name)))
    ended = [run for run in runs if run.kind == "train" and run.status == "completed"]
    found: list[float] = []
    for run in sorted(ended, key=lambda run: -(run.started_at or 0.0)):
        if len(found) == LAST:
            break
        try:
            outcome = RunView("train", spec.storage_path, run.run_id).outcome()
        except RaysweepError:
            continue  # `raysweep verify` says what is wrong with it
        if isinstance(outcome, TrainOutcome):
            # All attempts of it: one that was resumed was at work before.
            found.append(outcome.usage.active_s if outcome.usage is not None else outcome.took_s)
    return found
