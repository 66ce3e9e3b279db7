"""Every report of a sweep, from its journal: which count, where attempts continued, and as typed tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raysweep
from raysweep.core import SweepState, encode, make_outcome, step
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import JournalDamagedError, RaysweepError, SweepNotFoundError
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.reading.history import metric_names, reports_of
from raysweep.specs import SweepSpec, sweep_id
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store
from raysweep.stored import StoredSweep

AT = 1_700_000_000.0
BROKEN = Failure(origin="exception", type="OSError", message="gone", traceback="…")


CONFIGS: Any = ({"x": 1, "net": {"w": 8}}, {"x": None, "net": {"w": 16}})


def reported(
    at: float, trial: int, attempt: int, first: int, rows: tuple[list[Any], ...], **fields: Any
) -> ev.TrialReported:
    given = {"keys": ("loss", "epochs"), **fields}
    return ev.TrialReported(at=AT + at, trial=trial, attempt=attempt, first=first, rows=rows, **given)


def events() -> list[ev.Event]:
    """Trial 0 fails after its third report and resumes from that checkpoint; trial 1 reports a NaN."""
    return [
        ev.ConfigsSuggested(
            at=AT,
            first=0,
            configs=CONFIGS,
            is_exhausted=True,
        ),
        ev.CapacityChanged(at=AT, slots=2),
        ev.SlotOpened(at=AT, slot=0, node="n"),
        ev.SlotOpened(at=AT, slot=1, node="n"),
        ev.TrialStarted(at=AT + 1, trial=0, attempt=1),
        ev.TrialStarted(at=AT + 1, trial=1, attempt=1),
        reported(2, 0, 1, 0, ([5.0, 1], [4.0, 2])),
        ev.CheckpointCommitted(at=AT + 2, trial=0, attempt=1, number=0, report=1, uri="/c/0"),
        reported(3, 0, 1, 1, ([4.0, 2], [3.0, 3])),  # a batch that was sent again, and one more
        ev.TrialFailed(at=AT + 4, trial=0, attempt=1, failure=BROKEN),
        reported(4, 0, 1, 3, ([2.0, 4],)),  # of an attempt that is over
        reported(5, 1, 1, 0, (["NaN", 1], [1.0, 9], [0.5, 10]), keys=("loss", "at")),
        ev.TrialReturned(at=AT + 6, trial=1, attempt=1),
    ]


def goes_on(state: SweepState) -> Iterator[ev.Event]:
    attempt = state.trials[0].attempt
    yield from [
        ev.TrialStarted(at=AT + 40, trial=0, attempt=attempt),
        reported(41, 0, attempt, 0, ([3.5, 3], [2.5, 4])),
        ev.TrialReturned(at=AT + 42, trial=0, attempt=attempt),
        ev.SweepEnded(at=AT + 43),
    ]


@pytest.fixture
def ran(tmp_path: Path) -> SweepFolder:
    """A sweep that ended, as its controller would have left it."""
    spec = SweepSpec(
        name="h", trainable="m:f",
        param_space={"x": {"choice": [1, None]}, "net": {"w": {"choice": [8, 16]}}},
        metric="loss", mode="min", num_samples=2, failure={"max_failures": 3},
        storage_path=str(tmp_path / "store"),
    )  # fmt: skip
    folder = SweepFolder(open_store(spec.storage_path), sweep_id("h", "k"))
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=1, spec=spec.to_dict()))
    state = SweepState.create(spec, 1)
    started = ev.ControllerStarted(at=AT, generation=1, host="h", pid=1)
    journal = folder.journal()
    claim = journal.claim(lambda generation: encode(started))
    step(state, started)
    errors: list[RaysweepError] = []
    with JournalWriter(journal.backend, 1, claim.next_number, errors.append, writer=claim.writer) as log:
        for event in itertools.chain(events(), [ev.TimerFired(at=AT + 39)], goes_on(state)):
            log.write(encode(event))
            step(state, event)
    assert not errors
    folder.write_outcome_if_absent(
        make_outcome(state, sweep_id=folder.sweep_id, key="k", uri=folder.uri, version="0")
    )
    return folder


def outcome_of(folder: SweepFolder) -> StoredSweep:
    return raysweep.load(folder.uri)


def test_every_report_is_there_once_with_its_attempt_and_its_place(ran: SweepFolder) -> None:
    rows = [row for row in reports_of(ran) if row["number"] == 0]
    assert [(row["attempt"], row["iteration"], row["loss"], row["epochs"]) for row in rows] == [
        (1, 1, 5.0, 1),
        (1, 2, 4.0, 2),
        (1, 3, 3.0, 3),
        # Attempt 2 continued from the checkpoint of iteration 2.
        (2, 3, 3.5, 3),
        (2, 4, 2.5, 4),
    ]
    assert {row["trial_id"] for row in rows} == {"00000"}
    assert [row["at"] for row in rows] == [AT + 2, AT + 2, AT + 3, AT + 41, AT + 41]
    assert sum(row["number"] == 1 for row in reports_of(ran)) == 3
    trials = outcome_of(ran).trials
    assert [(trial.reports, trial.overrun_reports) for trial in trials] == [(5, 0), (1, 2)]
    assert sum(trial.reports + trial.overrun_reports for trial in trials) == len(list(reports_of(ran)))


def test_a_metric_named_as_a_column_and_one_that_is_no_number(ran: SweepFolder) -> None:
    first = next(row for row in reports_of(ran) if row["number"] == 1)
    assert math.isnan(first["loss"])
    assert (first["at"], first["metrics/at"]) == (AT + 5, 1)
    assert metric_names(ran) == ["loss", "epochs", "metrics/at"]


def test_reports_that_came_after_the_stop_are_told_apart(ran: SweepFolder) -> None:
    """Trial 1 was told to end at its NaN."""
    rows = [row for row in reports_of(ran) if row["number"] == 1]
    assert [(row["iteration"], row["overrun"]) for row in rows] == [(1, False), (2, True), (3, True)]


def test_the_history_is_a_typed_frame(ran: SweepFolder) -> None:
    frame = outcome_of(ran).history()
    assert len(frame) == 8
    assert list(frame.columns)[:6] == ["trial_id", "number", "attempt", "iteration", "at", "overrun"]
    types = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert types["iteration"] == "int64"
    assert types["loss"] == "float64"
    assert types["epochs"] == "Int64", "whole numbers of which some are missing"
    assert types["overrun"] == "bool"
    assert types["at"].startswith("datetime64[")
    assert types["at"].endswith("UTC]")
    assert frame["at"][0].timestamp() == AT + 2
    curve = frame.drop_duplicates(["trial_id", "iteration"], keep="last")
    assert list(curve[curve.number == 0].loss) == [5.0, 4.0, 3.5, 2.5]


def test_the_trials_are_a_typed_frame(ran: SweepFolder) -> None:
    frame = outcome_of(ran).to_dataframe()
    types = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert types["started_at"].endswith("UTC]")
    assert (types["config/x"], types["config/net/w"], types["reports"]) == ("Int64", "int64", "int64")
    assert list(frame["took_s"]) == [41.0, 5.0]
    assert list(frame["attempts"]) == [2, 1]
    assert frame["config/x"].isna().tolist() == [False, True]


def test_the_journal_is_read_as_the_reports_are_asked_for(
    ran: SweepFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all at once: a year of reports does not fit into memory."""
    from raysweep.runs.reading import history

    seen: list[bytes] = []

    def decode(line: bytes) -> ev.Event:
        seen.append(line)
        return original(line)

    original = history.decode
    monkeypatch.setattr(history, "decode", decode)  # watched, not replaced
    reports = reports_of(ran)
    next(reports)
    so_far = len(seen)
    list(reports)
    assert so_far < len(seen) - 5


def test_without_pandas_the_reports_are_named(ran: SweepFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)  # as if it were not installed
    outcome = outcome_of(ran)
    for call in (outcome.history, outcome.to_dataframe):
        with pytest.raises(RaysweepError, match=r"needs pandas: pip install pandas.*reports\(\)"):
            call()
    assert len(list(outcome.reports())) == 8


def test_a_damaged_journal_is_said(ran: SweepFolder) -> None:
    for info in list(ran.store.list(f"{ran.sweep_id}/journal")):
        ran.store.put(info.key, (ran.store.get(info.key) or b"").replace(b'"loss"', b'"lost"'))
    with pytest.raises(JournalDamagedError):
        outcome_of(ran).history()


def test_load_by_uri_and_id_and_beginning(ran: SweepFolder) -> None:
    url = ran.store.url
    whole = raysweep.load(ran.uri)
    assert raysweep.load(ran.sweep_id, url) == raysweep.load(ran.sweep_id[:4], storage=url) == whole
    assert (whole.best.number if whole.best else None, len(whole)) == (0, 2)
    with pytest.raises(SweepNotFoundError, match="did you mean"):
        raysweep.load(ran.sweep_id[:-2] + "zz", url)


def test_a_folder_that_was_moved_is_read_where_it_is(ran: SweepFolder, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    moved = raysweep.load(str(tmp_path / "elsewhere" / ran.sweep_id))
    assert moved.uri == str(tmp_path / "elsewhere" / ran.sweep_id)
    assert len(moved.history()) == 8


def test_load_of_one_that_has_not_ended(ran: SweepFolder) -> None:
    ran.store.delete(f"{ran.sweep_id}/outcome.json")
    whole = raysweep.load(ran.sweep_id, ran.store.url)
    assert (whole.has_ended, whole.status) == (False, "interrupted")
    assert len(whole.trials) == len(whole) > 0
    with pytest.raises(raysweep.RaysweepError, match=r"has not ended \(interrupted\)"):
        whole.raise_for_status()
    assert len(list(reports_of(ran))) == 8, "reports can be read all the same"
