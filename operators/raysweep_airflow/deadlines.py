"""Deadlines of sweeps that Airflow runs: moments that are the same for every try of a task."""

from __future__ import annotations

from datetime import datetime, timedelta

from raysweep.documents.wall_clock import resolve_deadline
from raysweep.specs import SweepSpec, TrainSpec
from raysweep_airflow.tries import Record

Spec = SweepSpec | TrainSpec


def with_deadline(spec: Spec, record: Record) -> Spec:
    """With its deadline as the moment that it means, or that of the task's timeout if that is earlier."""
    if not isinstance(spec, SweepSpec):
        return spec
    given = _deadline(spec.stop.deadline, record)
    own = datetime.fromisoformat(record.ends_at) if record.ends_at is not None else None
    moments = [moment for moment in (given, own) if moment is not None]
    if not moments:
        return spec
    return spec.replace(stop=spec.stop.replace(deadline=min(moments)))


def _deadline(asked: datetime | str | None, record: Record) -> datetime | None:
    """The moment that a deadline means; in a run of a past day, one that leaves as much time from now."""
    since = datetime.fromisoformat(record.scheduled_at)
    moment = resolve_deadline(asked, since.timestamp())
    if moment is None or not isinstance(asked, str) or not record.begun_at:
        return moment
    begun_at = datetime.fromisoformat(record.begun_at)
    return begun_at + (moment - since) if moment <= begun_at else moment


def margin_of(timeout: timedelta) -> timedelta:
    """The time before the task's timeout at which its sweep ends: a tenth, 10 s to 2 min, at most half."""
    seconds = timeout.total_seconds()
    return timedelta(seconds=min(max(10.0, seconds / 10), 120.0, seconds / 2))
