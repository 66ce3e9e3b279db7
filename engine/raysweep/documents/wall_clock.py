"""Wall-clock times with a zone, such as `06:00 Europe/Berlin`: the next one after a start, by pendulum.

The rule is one sentence: the first moment after the start at which clocks of that zone show the time. So a
time that a clock change repeats means its first pass, or its second for a start between the two; and a time
that a clock change leaves out, which no clock shows, stands for the same distance after the change (02:30
becomes 03:30 where the clock goes from 02:00 to 03:00).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError

_FORM: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?\s+([A-Za-z][A-Za-z0-9_+/-]*)")
_LOOKS_SO: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2})?(\s|$)")


def looks_like_wall_clock(text: str) -> bool:
    """True if a text begins with a time of day and not with a date."""
    return bool(_LOOKS_SO.match(text.strip()))


def check_wall_clock(text: str) -> str:
    """The time in its one spelling: `06:00 Europe/Berlin`. Raises Problem."""
    fix = 'write one such as "06:00 Europe/Berlin"'
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise Problem(f"{show(text)} is not a time of day with a time zone", fix)
    hour, minute, second, zone = found.groups()
    try:
        _check_zone(zone)
    except (ValueError, OSError):
        raise Problem(f"{zone!r} is not a time zone", f"{fix}, with a name of the IANA database") from None
    return f"{int(hour):02d}:{minute}{f':{second}' if second and second != '00' else ''} {zone}"


def next_time(text: str, after: datetime) -> datetime:
    """The first moment after `after` at which clocks show `text`, with its offset at that moment.

    Raises:
        ValueError: `text` is none that `check_wall_clock` has passed.
    """
    import pendulum

    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a time of day with a time zone")
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    zone = found.group(4)
    start = pendulum.instance(after).in_timezone(zone)
    moments = []
    for days in range(-1, 3):
        day = start.date() + timedelta(days=days)
        both = [
            pendulum.datetime(day.year, day.month, day.day, hour, minute, second, tz=zone, fold=fold)
            for fold in (0, 1)
        ]
        shown = [moment for moment in both if (moment.hour, moment.minute) == (hour, minute)]
        # No clock shows it on this day: the later of the two readings is the one shifted forward.
        moments += shown or both[1:]
    # By their timestamps: datetimes of one zone compare as their clocks show, the second pass like the first.
    found_at = min(
        (moment for moment in moments if moment.timestamp() > after.timestamp()),
        key=lambda at: at.timestamp(),
    )
    offset = found_at.utcoffset() or timedelta()
    # A plain datetime with its offset: what is stored must not depend on a zone's future rules.
    return datetime.fromtimestamp(found_at.timestamp(), UTC).astimezone(timezone(offset))


def check_scheduled_at(scheduled_at: object) -> None:
    """Refuse a time of scheduling that is no moment.

    Raises:
        SpecError: It is not a datetime with an offset from UTC, nor None.
    """
    fix = "give an aware datetime, such as datetime(2026, 11, 25, 2, tzinfo=UTC)"
    if scheduled_at is None:
        return
    if not isinstance(scheduled_at, datetime):
        kind = type(scheduled_at).__name__
        raise SpecError("scheduled_at", f"expected a datetime, got {show(scheduled_at)} ({kind})", fix)
    if scheduled_at.utcoffset() is None:
        raise SpecError("scheduled_at", f"{scheduled_at.isoformat()} has no offset from UTC", fix)


def resolve_deadline(deadline: datetime | str | None, scheduled_at: float) -> datetime | None:
    """The moment that `stop.deadline` means for a sweep scheduled at `scheduled_at` (UTC seconds)."""
    if isinstance(deadline, str):
        return next_time(deadline, datetime.fromtimestamp(scheduled_at, UTC))
    return deadline


def check_deadline(deadline: datetime | str | None, scheduled_at: float, now: float) -> None:
    """Refuse a `stop.deadline` that has passed. Times are UTC seconds.

    Raises:
        SpecError: It has.
    """
    moment = resolve_deadline(deadline, scheduled_at)
    if moment is not None and moment.timestamp() <= now:
        raise SpecError("stop.deadline", f"{moment.isoformat()} has passed", "give a later one")


def _check_zone(name: str) -> None:
    import pendulum

    pendulum.timezone(name)
