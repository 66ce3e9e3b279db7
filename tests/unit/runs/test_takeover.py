"""Whose sweep is it? What is asked for, against what is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from raysweep.errors import SpecChangedError
from raysweep.runs.takeover import find_outcome
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
