"""Wall-clock deadlines: the next one after a start, across changes of the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep import run_sweep
from raysweep.documents.wall_clock import next_time, resolve_deadline
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


@pytest.mark.parametrize(
    ("start", "text", "expected"),
    [
        # Plain days, and the day's own edge: strictly after.
        ("2026-11-21T22:00:00+01:00", f"06:00 {BERLIN}", "2026-11-22T06:00:00+01:00"),
        ("2026-11-22T05:59:59+01:00", f"06:00 {BERLIN}", "2026-11-22T06:00:00+01:00"),
        ("2026-11-22T06:00:00+01:00", f"06:00 {BERLIN}", "2026-11-23T06:00:00+01:00"),
        ("2026-11-21T22:00:00+00:00", f"00:30 {BERLIN}", "2026-11-22T00:30:00+01:00"),
        ("2026-11-21T23:45:00+00:00", f"00:30 {BERLIN}", "2026-11-23T00:30:00+01:00"),
        # Berlin, 2026-03-29: 02:00 -> 03:00. Before, inside and after the hour that is missing.
        ("2026-03-28T22:00:00+01:00", f"06:00 {BERLIN}", "2026-03-29T06:00:00+02:00"),
        ("2026-03-28T22:00:00+01:00", f"02:30 {BERLIN}", "2026-03-29T03:30:00+02:00"),
        ("2026-03-29T01:59:59+01:00", f"02:30 {BERLIN}", "2026-03-29T03:30:00+02:00"),
        ("2026-03-29T03:00:00+02:00", f"02:30 {BERLIN}", "2026-03-29T03:30:00+02:00"),
        ("2026-03-29T03:00:00+02:00", f"03:00 {BERLIN}", "2026-03-30T03:00:00+02:00"),
        ("2026-03-29T03:30:00+02:00", f"02:30 {BERLIN}", "2026-03-30T02:30:00+02:00"),
        ("2026-03-29T12:00:00+02:00", f"02:30 {BERLIN}", "2026-03-30T02:30:00+02:00"),
        # Berlin, 2026-10-25: 03:00 -> 02:00. 02:30 comes twice.
        ("2026-10-24T22:00:00+02:00", f"06:00 {BERLIN}", "2026-10-25T06:00:00+01:00"),
        ("2026-10-24T22:00:00+02:00", f"02:30 {BERLIN}", "2026-10-25T02:30:00+02:00"),
        ("2026-10-25T02:30:00+02:00", f"02:30 {BERLIN}", "2026-10-25T02:30:00+01:00"),
        ("2026-10-25T02:45:00+02:00", f"02:30 {BERLIN}", "2026-10-25T02:30:00+01:00"),
        ("2026-10-25T02:15:00+01:00", f"02:30 {BERLIN}", "2026-10-25T02:30:00+01:00"),
        ("2026-10-25T02:45:00+01:00", f"02:30 {BERLIN}", "2026-10-26T02:30:00+01:00"),
        ("2026-10-25T02:45:00+02:00", f"06:00 {BERLIN}", "2026-10-25T06:00:00+01:00"),
        ("2026-10-25T12:00:00+01:00", f"02:30 {BERLIN}", "2026-10-26T02:30:00+01:00"),
        # New York, 2026-03-08: 02:00 -> 03:00.
        ("2026-03-07T22:00:00-05:00", f"06:00 {NEW_YORK}", "2026-03-08T06:00:00-04:00"),
        ("2026-03-07T22:00:00-05:00", f"02:30 {NEW_YORK}", "2026-03-08T03:30:00-04:00"),
        ("2026-03-08T01:59:00-05:00", f"02:00 {NEW_YORK}", "2026-03-08T03:00:00-04:00"),
        ("2026-03-08T03:10:00-04:00", f"02:30 {NEW_YORK}", "2026-03-08T03:30:00-04:00"),
        ("2026-03-08T04:00:00-04:00", f"02:30 {NEW_YORK}", "2026-03-09T02:30:00-04:00"),
        # New York, 2026-11-01: 02:00 -> 01:00.
        ("2026-10-31T22:00:00-04:00", f"06:00 {NEW_YORK}", "2026-11-01T06:00:00-05:00"),
        ("2026-10-31T22:00:00-04:00", f"01:30 {NEW_YORK}", "2026-11-01T01:30:00-04:00"),
        ("2026-11-01T01:45:00-04:00", f"01:30 {NEW_YORK}", "2026-11-01T01:30:00-05:00"),
        ("2026-11-01T01:45:00-05:00", f"01:30 {NEW_YORK}", "2026-11-02T01:30:00-05:00"),
        ("2026-11-01T12:00:00-05:00", f"01:30:15 {NEW_YORK}", "2026-11-02T01:30:15-05:00"),
        ("2026-11-01T12:00:00+00:00", "11:59 UTC", "2026-11-02T11:59:00+00:00"),
    ],
)
def test_the_next_one_after_the_start(start: str, text: str, expected: str) -> None:
    found = next_time(text, datetime.fromisoformat(start))
    assert found.isoformat() == expected
    # The start's own zone does not matter.
    assert next_time(text, datetime.fromisoformat(start).astimezone(UTC)) == found
    assert type(found) is datetime


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from([BERLIN, NEW_YORK, "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia"]),
    st.integers(0, 23),
    st.integers(0, 59),
)
def test_it_is_after_the_start_and_within_two_days(
    start: datetime, zone: str, hour: int, minute: int
) -> None:
    found = next_time(f"{hour:02d}:{minute:02d} {zone}", start)
    seconds = (found - start).total_seconds()
    assert 0 < seconds <= 25 * 3600 + 3600
    shown = found.hour * 60 + found.minute
    assert (shown - hour * 60 - minute) % 1440 in (0, 30, 60)


def test_the_spec_keeps_it_as_given(fields: dict[str, Any]) -> None:
    spec = SweepSpec(**fields, stop={"deadline": " 6:00  Europe/Berlin"})
    assert spec.stop.deadline == "06:00 Europe/Berlin"
    assert spec.to_dict()["stop"]["deadline"] == "06:00 Europe/Berlin"
    assert SweepSpec.from_yaml(spec.to_yaml()) == spec
    at = datetime(2026, 11, 21, 21, tzinfo=UTC).timestamp()
    found = resolve_deadline(spec.stop.deadline, at)
    assert found is not None
    assert found.isoformat() == "2026-11-22T06:00:00+01:00"


@pytest.mark.parametrize(
    ("given_text", "said"),
    [
        ("06:00", "is not a time of day with a time zone"),
        ("25:00 Europe/Berlin", "is not a time of day with a time zone"),
        ("06:00 Europe/Berlim", "'Europe/Berlim' is not a time zone"),
        ("06:00 Europe", "'Europe' is not a time zone"),
        ("06:00 ../../etc", "is not a time of day with a time zone"),
    ],
)
def test_what_is_none(given_text: str, said: str, fields: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"stop\.deadline") as caught:
        SweepSpec(**fields, stop={"deadline": given_text})
    assert said in str(caught.value)
    assert "06:00 Europe/Berlin" in str(caught.value)


@pytest.mark.parametrize(
    ("was", "now", "scheduled", "is_safe"),
    [
        ("06:00 Europe/Berlin", "07:00 Europe/Berlin", "2026-11-21T22:00:00+01:00", True),
        ("06:00 Europe/Berlin", "05:00 Europe/Berlin", "2026-11-21T22:00:00+01:00", False),
        # After 06:30, 06:00 is tomorrow's.
        ("07:00 Europe/Berlin", "06:00 Europe/Berlin", "2026-11-21T06:30:00+01:00", True),
        ("06:00 Europe/Berlin", "2026-11-22T05:00:01Z", "2026-11-21T22:00:00+01:00", True),
        ("06:00 Europe/Berlin", "2026-11-22T05:00:00Z", "2026-11-21T22:00:00+01:00", False),
        ("06:00 Europe/Berlin", "07:00 Europe/Berlin", None, False),
    ],
)
def test_later_is_safe(
    was: str, now: str, scheduled: str | None, is_safe: bool, fields: dict[str, Any]
) -> None:
    old, new = (SweepSpec(**fields, stop={"deadline": text}) for text in (was, now))
    at = datetime.fromisoformat(scheduled).timestamp() if scheduled else None
    found = changes(old, new, at)
    assert bool(found.safe) == is_safe
    assert bool(found.unsafe) == (not is_safe)


@pytest.mark.parametrize("given_at", ["2026-11-25", date(2026, 11, 25), 5, datetime(2026, 11, 25)])  # noqa: DTZ001
def test_when_it_was_scheduled_is_a_moment(given_at: Any) -> None:
    fields = {"name": "t", "trainable": "a:b", "param_space": {"x": 1}, "metric": "loss", "mode": "min"}
    for address in (None, "http://localhost:1"):
        with pytest.raises(SpecError, match=r"^scheduled_at: .*; give an aware datetime, such as "):
            run_sweep(fields, address=address, scheduled_at=given_at)
