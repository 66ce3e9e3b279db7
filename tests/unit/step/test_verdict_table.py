"""What an end means, row by row of the table in `verdict.py`."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep import errors
from raysweep.outcome import SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.step import Verdict, verdict_of


def sweep(status: Any, *, finished: int = 0, has_best: bool = True) -> SweepOutcome:
    best = TrialOutcome(trial_id="t", number=0, state="completed", score=1.0)
    return SweepOutcome(
        sweep_id="s",
        name="s",
        status=status,
        metric="m",
        mode="max",
        started_at=0,
        ended_at=1,
        best=best if has_best else None,
        counts={"completed": finished, "stopped": 1, "failed": 5},
    )


def train(status: Any) -> TrainOutcome:
    return TrainOutcome(run_id="r", name="r", status=status, started_at=0, ended_at=1)


SUCCESS, PARTIAL = Verdict(result="success"), Verdict(result="success", is_partial=True)
FAILURE, RETRY = Verdict(result="failure"), Verdict(result="failure", is_retryable=True)
CANCELLED = Verdict(result="cancelled")


@pytest.mark.parametrize(
    ("end", "options", "expected"),
    [
        (sweep("completed"), {}, SUCCESS),
        (sweep("target"), {"accept_partial": False}, SUCCESS),
        (sweep("plateau"), {"min_trials": 99}, SUCCESS),
        (sweep("deadline", finished=4), {"min_trials": 5}, PARTIAL),
        (sweep("budget", finished=4), {"min_trials": 6}, FAILURE),
        (sweep("deadline", finished=4), {"accept_partial": False}, FAILURE),
        (sweep("deadline", finished=4, has_best=False), {}, FAILURE),
        (sweep("failed"), {}, FAILURE),
        (sweep("cancelled"), {}, CANCELLED),
        (train("completed"), {}, SUCCESS),
        (train("failed"), {}, FAILURE),
        (errors.SweepFailedError(sweep("cancelled")), {}, CANCELLED),
        (errors.SweepFailedError(sweep("failed")), {}, FAILURE),
        (errors.TrainingFailedError(train("failed")), {}, FAILURE),
        (errors.JobStoppedError("s.1"), {}, CANCELLED),
        (errors.JobFailedError("s.1", "no module raysweep"), {}, FAILURE),
        (errors.SpecError("metric", "is missing"), {}, FAILURE),
        (errors.TrainableImportError("trainable", "no module"), {}, FAILURE),
        (errors.InfeasibleResourcesError("resources", "8 GPUs"), {}, FAILURE),
        (errors.StorageNotSharedError("storage_path", "is not there"), {}, FAILURE),
        (errors.TokenRefusedError("http://x", "403"), {}, FAILURE),
        (errors.ClusterCertificateError("https://x", "self-signed"), {}, FAILURE),
        (errors.ClusterLostError("http://x", "killed"), {}, RETRY),
        (errors.ClusterUnreachableError("http://x", "refused"), {}, RETRY),
        (errors.ClusterServerError("http://x", "503"), {}, RETRY),
        (errors.StorageUnavailableError("s3://b", "503"), {}, RETRY),
        (errors.SweepHeldError("s", "process 3"), {}, RETRY),
        (errors.FencedError("s", 1, 2), {}, FAILURE),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_an_end_means(end: Any, options: dict[str, Any], expected: Verdict) -> None:
    assert verdict_of(end, **options) == expected


def test_only_failures_are_ever_retried() -> None:
    statuses = ("completed", "deadline", "budget", "target", "plateau", "cancelled", "failed")
    assert not [s for s in statuses if verdict_of(sweep(s, finished=9)).is_retryable]
