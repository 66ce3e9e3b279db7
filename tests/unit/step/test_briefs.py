"""A brief read again gives the training its config, also one that was too large for the brief."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError, SweepNotFoundError
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.step import best_config, stored_outcome, why_not_trained
from raysweep.step.brief import brief
from raysweep.storage.objects.opening import open_store
from tests.unit.step.outcomes import sweep


def store(outcome: SweepOutcome, path: Path) -> SweepOutcome:
    folder = SweepFolder(open_store(str(path)), outcome.sweep_id)
    outcome = outcome.model_copy(update={"uri": folder.uri})
    folder.write_outcome_if_absent(outcome)
    return outcome


def test_the_best_and_each_of_the_top() -> None:
    small = brief(sweep())
    assert best_config(small) == small["best"]["config"]
    assert [best_config(each) for each in small["top_k"]] == [each["config"] for each in small["top_k"]]


def test_a_config_too_large_for_the_brief_is_read_where_it_is_stored(tmp_path: Path) -> None:
    outcome = store(sweep(config=500), tmp_path)
    small = brief(outcome)
    assert small["best"]["config"] is None
    assert outcome.best is not None
    assert best_config(small) == outcome.best.config
    assert stored_outcome(small) == outcome


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("s3://bucket/s-1", "outcome: is a str; give what a sweep step handed on"),
        (brief(sweep(trials=0)), "outcome: has no best trial"),
        ({"best": {"config": None, "trial_id": "1"}}, "does not say where the sweep is stored"),
    ],
)
def test_what_hands_on_no_config(given: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        best_config(given)


def test_what_is_not_stored_any_more(tmp_path: Path) -> None:
    small = brief(store(sweep(config=500), tmp_path))
    with pytest.raises(SweepNotFoundError):
        stored_outcome(small | {"uri": f"{tmp_path}/s-2"})
    small["best"]["trial_id"] = "00077"
    with pytest.raises(SpecError, match="has no trial '00077'"):
        best_config(small)


def test_what_the_gate_did_not_promote_is_not_trained() -> None:
    small = brief(sweep())
    assert why_not_trained(small) == ""
    assert why_not_trained(small["best"]) == ""
    assert why_not_trained(None) == ""
    refused = small | {"promoted": False, "gate": {"why": "+0.001 < 0.002"}}
    assert why_not_trained(refused) == "training skipped: +0.001 < 0.002"
    assert "did not promote" in why_not_trained(small | {"promoted": False, "gate": None})
