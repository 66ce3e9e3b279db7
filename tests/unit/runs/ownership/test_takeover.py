"""Whose sweep is it? What is asked for, against what is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raysweep.errors import SpecChangedError
from raysweep.outcome import EndedBy
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.reopening import check_same
from raysweep.runs.ownership.sweep_claim import find_outcome, hold
from raysweep.storage.objects.opening import open_store
from tests.unit.verify.stored import store_sweep


def test_an_outcome_is_of_the_same_words_only(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = find_outcome(stored.folder, stored.asked)
    assert outcome is not None
    assert outcome == stored.folder.read_outcome()
    other = stored.asked.spec.model_copy(update={"metric": "auc"})
    with pytest.raises(SpecChangedError, match="metric"):
        find_outcome(stored.folder, replace(stored.asked, spec=other))


def test_a_sweep_that_runs_has_none(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=False)
    assert find_outcome(stored.folder, stored.asked) is None


def test_more_of_what_had_ended_it_lets_it_go_on_and_nothing_else_does(tmp_path: Path) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    outcome = stored.folder.read_outcome()
    assert outcome is not None
    spec = stored.asked.spec.replace(stop={"time_budget_s": 60})
    folder = SweepFolder(stored.folder.store, "s-1")
    folder.write_spec_if_absent(SweepRecord(digest=spec.digest(), key="k", seed=1, spec=spec.to_dict()))
    by_time = EndedBy(rule="stop.time_budget_s", limit=60.0, value=60.1)
    ended = outcome.model_copy(update={"status": "budget", "ended_by": by_time, "spec_digest": spec.digest()})
    assert not check_same(folder, spec, ended)
    longer = spec.replace(stop={"time_budget_s": 600})
    assert check_same(folder, longer, ended)
    by_cost = by_time.model_copy(update={"rule": "stop.budget.cost"})
    with pytest.raises(SpecChangedError, match="time_budget_s"):
        check_same(folder, longer, ended.model_copy(update={"ended_by": by_cost}))


def test_a_sweep_counts_from_its_schedule_and_without_one_from_its_start(tmp_path: Path) -> None:
    asked = store_sweep(tmp_path / "other", is_ended=False).asked
    for number, (scheduled_at, expected) in enumerate(((None, 900.0), (600.0, 600.0))):
        folder = SweepFolder(open_store(tmp_path), f"s-{number}")
        assert hold(folder, replace(asked, scheduled_at=scheduled_at), at=900.0) is not None
        record = folder.read_spec()
        assert record is not None
        assert record.scheduled_at == expected
