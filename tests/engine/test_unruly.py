"""Trials and trainings whose code does what nobody expects: each has an end that says what happened."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.errors import TrainingFailedError
from tests.engine.conftest import INLINE
from tests.engine.unruly import REPORTS, THREADS
from tests.sampling import first_of

pytestmark = [
    pytest.mark.ray,
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]
HERE = "tests.engine.unruly"
Run = Callable[..., rs.SweepOutcome]


@pytest.mark.parametrize("where", [{"isolation": "worker"}, {"isolation": "process"}, INLINE])
def test_an_exception_that_says_nothing_is_a_users_error(where: dict[str, Any], run: Run) -> None:
    outcome = run(f"{HERE}:speechless", num_samples=2, failure={"max_failures": 0}, **where)
    assert outcome.counts == {"failed": 2}
    for trial in outcome.trials:
        assert trial.error is not None
        assert (trial.error.kind, trial.error.type) == ("user_error", "SpeechlessError")
        assert trial.error.message == "<exception str() failed>"
        assert trial.error.traceback is not None
        assert "raise SpeechlessError" in trial.error.traceback


@pytest.mark.parametrize(("leaves", "code"), [("exit", 3), ("raise", 1), ("return", 0)])
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_process_that_a_trial_forks_does_not_speak_for_it(
    isolation: str, leaves: str, code: int, run: Run, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    outcome = run(f"{HERE}:forks", {"leaves": leaves, "said": str(said)}, num_samples=2, isolation=isolation)
    assert outcome.counts == {"completed": 2}
    assert [len(trial.attempts) for trial in outcome.trials] == [1, 1]
    assert [trial.metrics["code"] for trial in outcome.trials] == [code, code]
    assert all(trial.metrics["loss"] == trial.config["x"] for trial in outcome.trials)
    assert [trial.metrics["training_iteration"] for trial in outcome.trials] == [2, 2]
    assert said.read_text().startswith("report() works only in the trial's own process")


def test_a_trial_that_closes_its_output_closes_it_to_nobody_else(run: Run) -> None:
    outcome = run(f"{HERE}:closes_stdout", num_samples=3, isolation="worker", max_concurrent_trials=1)
    assert outcome.counts == {"completed": 3}
    assert [len(trial.attempts) for trial in outcome.trials] == [1, 1, 1]


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_trial_that_closes_all_descriptors_does_not_wait_for_ever(isolation: str, run: Run) -> None:
    failure = {"max_worker_deaths": 1}
    outcome = run(f"{HERE}:closes_descriptors", num_samples=1, isolation=isolation, failure=failure)
    assert outcome.counts == {"failed": 1}
    assert outcome[0].error is not None
    assert outcome[0].error.kind == "worker_died"


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_all_threads_of_a_trial_are_heard(isolation: str, run: Run) -> None:
    outcome = run(f"{HERE}:reports_from_threads", num_samples=1, isolation=isolation)
    assert outcome.counts == {"completed": 1}
    assert outcome[0].metrics["training_iteration"] == THREADS * REPORTS
    rows = outcome.reports()
    seen = Counter(
        name for row in rows for name, value in row.items() if name[:3] == "of_" and value is not None
    )
    assert seen == {f"of_{me}": REPORTS for me in range(THREADS)}


def test_a_checkpoint_can_be_opened_more_than_once(run: Run) -> None:
    outcome = run(f"{HERE}:enters_twice", num_samples=1, **INLINE)
    assert outcome[0].error is None
    assert outcome[0].metrics["read"] == "keptkeptkept"


# -- trainings --------------------------------------------------------------------------------------------


def train(trainable: str, tmp_path: Path) -> rs.TrainOutcome:
    return rs.run_training(
        rs.TrainSpec(
            name="t",
            trainable=f"{HERE}:{trainable}",
            storage_path=str(tmp_path / "runs"),
            failure={"max_failures": 0},
        ),
        key="k",
    )


@pytest.mark.usefixtures("ray_cluster")
def test_a_training_has_succeeded_whatever_it_returns(tmp_path: Path) -> None:
    metrics = train("returns_anything", tmp_path).metrics
    assert (metrics["loss"], metrics["accuracy"], metrics["per_class"]) == (1.0, 0.5, [0, 1, 2])
    assert math.isnan(float(metrics["ratio"]))
    assert metrics["model"].startswith("<")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_what_a_training_returns_beside_metrics_stays_where_it_is(tmp_path: Path) -> None:
    assert train("returns_a_lock", tmp_path).metrics["loss"] == 1.0


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_training_reports_what_a_trial_can_report(tmp_path: Path) -> None:
    metrics = train("reports_anything", tmp_path).metrics
    assert {name: metrics[name] for name in ("loss", "rows", "odd", "name")} == {
        "loss": 1.5,
        "rows": [0, 1],
        "odd": [None],
        "name": 3,
    }


@pytest.mark.parametrize(
    ("trainable", "line"),
    first_of(
        [
            ("raises_two_arguments", "tests.engine.unruly.TwoArgumentsError: 5: the disk is on fire"),
            ("raises_locked", "tests.engine.unruly.LockedError: the disk is on fire"),
            ("raises_speechless", "tests.engine.unruly.SpeechlessError: <exception str() failed>"),
            ("reports_an_object", "raysweep.errors.RaysweepError: metric 'model' is of type object"),
        ]
    ),
)
def test_an_error_that_cannot_be_pickled_arrives(
    ray_cluster: RayConnection, trainable: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainingFailedError) as raised:
        train(trainable, tmp_path)
    assert line.rpartition(": ")[2] in str(raised.value)
    assert "worker died" not in str(raised.value)
    assert line.partition(":")[0].rpartition(".")[2] in str(raised.value)


@pytest.mark.parametrize("where", [{"isolation": "worker", "max_concurrent_trials": 1}, INLINE])
@pytest.mark.timeout(300, method="thread")
def test_a_plain_trial_after_one_that_leaves_all_behind_has_its_own(
    where: dict[str, Any], run: Run, tmp_path: Path
) -> None:
    marker = tmp_path / "next-runs"
    outcome = run(f"{HERE}:leaves_all_behind", {"marker": str(marker)}, num_samples=2, **where)
    first, plain = outcome.trials
    assert outcome.counts == {"completed": 2}
    assert (plain.reports, plain.metrics["from"], plain.checkpoint_uri) == (1, 1, None)
    assert plain.metrics["home"] == first.metrics["home"]
    assert plain.metrics["variable"] is None
    assert plain.metrics["pid"] == first.metrics["pid"], "one process ran both"
    assert len(plain.attempts) == 1
    (note,) = [note for note in outcome.notes if "calls of raysweep were refused" in note]
    assert note.startswith("trial 0: ")
    assert note.endswith("(3 times)")


def test_a_worker_that_may_have_a_broken_gpu_is_replaced(run: Run, tmp_path: Path) -> None:
    failure = {"max_failures": 0, "breaker_trials": 0}
    one = {"isolation": "worker", "max_concurrent_trials": 1}
    outcome = run(f"{HERE}:breaks_the_gpu", {"pids": str(tmp_path)}, num_samples=3, failure=failure, **one)
    assert outcome.counts == {"failed": 1, "completed": 2}
    first, second, third = ((tmp_path / str(number)).read_text() for number in range(3))
    assert first != second == third
    assert [len(trial.attempts) for trial in outcome.trials] == [1, 1, 1]
    (note,) = [note for note in outcome.notes if "its worker was replaced" in note]
    assert "a GPU that may be in no state for another trial" in note
