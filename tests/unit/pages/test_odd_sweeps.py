"""What each odd sweep says of its best trial, on every face that shows one."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.outcome import Standing
from raysweep.outcome.ranking import is_standing
from raysweep.pages.document import make_document
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.reading.whole_sweep import read_whole
from raysweep_prefect.artifacts import report_text
from tests.sampling import sampled
from tests.unit.pages.odd_sweeps import ODD

NO_BEST = {
    "all failed": "every trial that reported loss failed",
    "impossible constraint": "no trial satisfies latency_ms <= -1; "
    "the nearest is trial 00000 with accuracy 0.905022",
    "no metric": "the sweep has no metric, so no trial is the best",
    "metric never reported": "no trial has reported a finite loss",
    "failed, others cut": "the sweep failed before a trial with loss had ended; "
    "the failure cut trial 00000 with loss 0.52618",
    "only running": "no trial with loss has ended; trial 00001 is ahead with loss 0.177065",
}


def status_of(name: str, root: Path) -> Standing:
    folder = ODD[name](root)
    status = SweepReader(folder.store.url, folder.sweep_id).read()
    assert status is not None
    return status


@pytest.mark.parametrize("name", sampled(ODD, lambda name: name != "2,000 trials"))
def test_an_odd_sweep_has_the_same_best_everywhere_or_the_same_reason(name: str, tmp_path: Path) -> None:
    folder = ODD[name](tmp_path)
    whole = read_whole(folder)
    status = SweepReader(folder.store.url, folder.sweep_id).read()
    assert status is not None
    document = make_document(whole)
    assert (status.best, status.ahead) == (whole.status.best, whole.status.ahead)
    assert status.no_best == whole.status.no_best == NO_BEST.get(name, "")
    assert document["no_best"].rstrip(".").lower() == status.no_best.lower()
    assert (status.best is None) == (document["best"] is None) == bool(status.no_best)
    if whole.outcome is not None:
        assert whole.outcome.no_best == status.no_best
        assert whole.outcome.found_best == status.best
    if status.best is not None:
        assert is_standing(status.best.state, status.status)
        assert document["best"]["number"] == status.best.number
        assert f"trial {status.best.trial_id}" in report_text(status)
    else:
        assert "## No best" in report_text(status)


def test_three_metrics_say_by_which_the_best_is_the_best(tmp_path: Path) -> None:
    status = status_of("three metrics", tmp_path)
    rule = "highest accuracy, the first of 3 metrics; latency_ms and model_size_bytes tell equal ones apart"
    assert status.ranked_by == rule
    assert rule in report_text(status).replace("\\", "")
