"""The events of callbacks, made of journals: complete, in order, and the same however they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.delivery.feed import Feed, Item
from raysweep.hooks.events import CheckpointSaved, Notice, Report, SweepEnd, SweepStart, TrialEnd, TrialStart
from raysweep.runs.reading.history import reports_of
from tests.unit.delivery.journals import GoldenSweep

NAMES = [
    "pbt",
    "trouble",
    "retry",
    "retention",
    "asha-promotion",
    "cancelled",
    "chaos-158",
    "several-metrics",
]


@pytest.mark.parametrize("name", NAMES)
def test_the_ends_of_trials_are_those_of_the_outcome(name: str, tmp_path: Path) -> None:
    sweep = GoldenSweep(name, tmp_path)
    sweep.write()
    ends = {item.event.number: item.event for item in sweep.items() if isinstance(item.event, TrialEnd)}
    wanted = {trial["number"]: trial for trial in sweep.outcome["trials"]}
    assert {number: (end.state, end.score, end.reports) for number, end in ends.items()} == {
        number: (trial["state"], trial["score"], trial["reports"]) for number, trial in wanted.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_each_report_comes_once_and_in_order(name: str, tmp_path: Path) -> None:
    sweep = GoldenSweep(name, tmp_path)
    sweep.write()
    found = [item.event for item in sweep.items() if isinstance(item.event, Report)]
    wanted = list(reports_of(sweep.folder))
    assert wanted
    assert [(e.number, e.attempt, e.iteration, e.at, e.counts) for e in found] == [
        (r["number"], r["attempt"], r["iteration"], r["at"], not r["overrun"]) for r in wanted
    ]


@pytest.mark.parametrize("name", NAMES)
def test_read_in_pieces_as_the_journal_grows_the_events_are_the_same(name: str, tmp_path: Path) -> None:
    whole = GoldenSweep(name, tmp_path / "whole", "golden-1")
    whole.write()
    growing = GoldenSweep(name, tmp_path / "growing", "golden-1")
    growing.write(1)
    feed, found = Feed(growing.folder), list[Item]()
    while True:
        read = feed.read(7)
        found += read
        if len(read) < 7:
            if growing.is_whole:
                break
            growing.write(31)
    key = [(item.ordinal, item.key, item.event.id, type(item.event)) for item in whole.items()]
    assert [(item.ordinal, item.key, item.event.id, type(item.event)) for item in found] == key
    ids = [item.event.id for item in found]
    assert ids == sorted(set(ids))


def test_the_first_event_is_the_start_and_the_last_the_end(tmp_path: Path) -> None:
    sweep = GoldenSweep("trouble", tmp_path)
    sweep.write()
    items = [item.event for item in sweep.items()]
    assert isinstance(items[0], SweepStart)
    assert isinstance(items[-1], SweepEnd)
    assert items[-1].status == sweep.outcome["status"]
    assert sum(isinstance(event, SweepStart) for event in items) == 1


def test_a_sweep_that_was_continued_ends_again(tmp_path: Path) -> None:
    sweep = GoldenSweep("retry", tmp_path)
    sweep.write()
    ends = [item.event for item in sweep.items() if isinstance(item.event, SweepEnd)]
    assert len(ends) == 3
    assert ends[-1].counts == sweep.outcome["counts"]


def test_a_trial_starts_before_it_reports_and_ends_after_it(tmp_path: Path) -> None:
    sweep = GoldenSweep("asha-promotion", tmp_path)
    sweep.write()
    running: set[tuple[int, int]] = set()
    starts = 0
    for item in sweep.items():
        event = item.event
        if isinstance(event, TrialStart):
            running.add((event.number, event.attempt))
            starts += 1
        elif isinstance(event, Report | CheckpointSaved):
            assert (event.number, event.attempt) in running
    assert starts == sum(len(trial["attempts"]) for trial in sweep.outcome["trials"])


def test_checkpoints_have_an_address_that_others_can_use(tmp_path: Path) -> None:
    sweep = GoldenSweep("pbt", tmp_path)
    sweep.write()
    saved = [item.event for item in sweep.items() if isinstance(item.event, CheckpointSaved)]
    assert saved
    assert all(event.iteration >= 1 for event in saved)


def test_no_room_is_a_notice(tmp_path: Path) -> None:
    sweep = GoldenSweep("trouble", tmp_path)
    sweep.write()
    notices = [item.event for item in sweep.items() if isinstance(item.event, Notice)]
    assert all(notice.kind in ("stalled", "deadline") and notice.text for notice in notices)
