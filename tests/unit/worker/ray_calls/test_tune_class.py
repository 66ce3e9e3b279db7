"""Classes of Ray Tune run as they are: set up, stepped, saved, restored and cleaned up as Tune does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import TrainableImportError
from raysweep.testing import AttemptRun, run_trial
from raysweep.trial import activate
from raysweep.worker.ray_calls.tune_class import TuneClass
from raysweep.worker.sweep_info import ClassOptions, SweepPlace
from tests.unit.worker.tune_trainables import AsksItself, Counter, DirtyEnd, WithoutSave


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def words(log: Path) -> list[str]:
    return [line.split()[0] for line in log.read_text().splitlines()]


def run(log: Path, cls: Any = Counter, tune: Any = None, **config: Any) -> tuple[AttemptRun, ...]:
    failures = 1 if "dies_at" in config else 0
    return run_trial(
        cls, {"log": str(log), "by": 1.5, "steps": 4, **config}, max_failures=failures, tune=tune
    )


def test_a_class_reports_what_its_steps_give_until_it_is_done(log: Path) -> None:
    (attempt,) = run(log)
    assert attempt.error is None
    assert attempt.end == "returned"
    assert [row["total"] for row in attempt.reports] == [1.5, 3.0, 4.5, 6.0]
    assert [row["nested/half"] for row in attempt.reports] == [0.75, 1.5, 2.25, 3.0]
    assert [row["training_iteration"] for row in attempt.reports] == [1, 2, 3, 4]
    assert [row["timesteps_total"] for row in attempt.reports] == [10, 20, 30, 40]
    assert words(log) == ["setup", "cleanup"]
    assert attempt.checkpoints == ()


def test_no_place_or_moment_is_among_the_metrics(log: Path) -> None:
    (attempt,) = run(log)
    assert set(attempt.reports[0]) == {
        "total",
        "nested/half",
        "timesteps_this_iter",
        "timesteps_total",
        "time_this_iter_s",
        "time_total_s",
        "training_iteration",
    }


@pytest.mark.parametrize("as_dict", [False, True])
def test_a_class_resumes_exactly_from_its_checkpoint(log: Path, as_dict: bool) -> None:
    first, second = run(log, tune={"checkpoint_frequency": 2}, dies_at=4, steps=5, as_dict=as_dict)
    assert first.end == "failed"
    assert [row["total"] for row in first.reports] == [1.5, 3.0, 4.5]
    assert second.resumed_from == 2
    assert [row["total"] for row in second.reports] == [4.5, 6.0, 7.5]
    assert [row["training_iteration"] for row in second.reports] == [3, 4, 5]
    assert [row["timesteps_total"] for row in second.reports] == [30, 40, 50]
    assert second.reports[0]["time_total_s"] > second.reports[0]["time_this_iter_s"]
    assert words(log) == ["setup", "save@2", "cleanup", "setup", "load@2", "save@4", "cleanup"]


def test_checkpoints_are_made_at_the_end_where_that_is_asked_for(log: Path) -> None:
    (attempt,) = run(log, tune={"checkpoint_at_end": True})
    assert words(log) == ["setup", "save@4", "cleanup"]
    assert len(attempt.checkpoints) == 1


def test_a_step_may_ask_for_a_checkpoint(log: Path) -> None:
    run(log, AsksItself)
    assert words(log) == ["setup", "save@2", "cleanup"]


def test_a_stop_ends_a_class_and_it_cleans_up(log: Path) -> None:
    (attempt,) = run_trial(Counter, {"log": str(log), "by": 1.0, "steps": 100}, stop_at=3)
    assert attempt.end == "stopped"
    assert [row["total"] for row in attempt.reports] == [1.0, 2.0, 3.0]
    assert words(log) == ["setup", "cleanup"]


def test_a_class_that_cannot_save_is_refused_where_checkpoints_are_asked_for(log: Path) -> None:
    (attempt,) = run(log, WithoutSave)
    assert attempt.end == "returned"
    with pytest.raises(
        TrainableImportError, match=r"WithoutSave has no save_checkpoint.*checkpoint_frequency"
    ):
        run(log, WithoutSave, tune={"checkpoint_frequency": 1})


def test_a_cleanup_that_fails_changes_nothing_of_the_end(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    (attempt,) = run(log, DirtyEnd)
    assert attempt.end == "returned"
    assert "cleanup of DirtyEnd failed" in caplog.text


def test_nothing_is_left_in_the_users_home(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    before = Path.cwd()
    run(log)
    assert not (tmp_path / "home").exists()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert Path.cwd() == before


class Recording:
    """A session that keeps what is reported; `limits` end a class's trial."""

    def __init__(self, iteration: int = 0) -> None:
        self.rows: list[dict[str, Any]] = []
        from raysweep.trial.session import TrialContext

        self.context = TrialContext(
            sweep_id="s", trial_id="00000", number=0, attempt=1, seed=0, iteration=iteration
        )
        self.should_checkpoint = False

    def report(self, metrics: dict[str, Any], checkpoint: Any, wait: bool) -> None:
        self.rows.append(metrics)

    def get_checkpoint(self) -> None:
        return None

    def new_checkpoint(self) -> Any:
        raise NotImplementedError


def train(trainable: TuneClass, config: dict[str, Any], iteration: int = 0) -> list[dict[str, Any]]:
    session = Recording(iteration)
    activate(session)
    try:
        trainable(config)
    finally:
        activate(None)
    return session.rows


def place(*limits: Any, **options: Any) -> SweepPlace:
    tune = ClassOptions(**options)
    return SweepPlace(sweep_id="s", storage_path="", resources={}, limits=tuple(limits), tune=tune)


@pytest.mark.parametrize(
    ("limit", "steps"),
    [
        (("training_iteration", 3, None, None), 3),
        (("total", 3.0, None, None), 2),
        (("total", None, 3.0, None), 3),
        (("nested/half", None, None, 1.0), 1),
        (("nowhere", 1, None, None), 10),
    ],
)
def test_the_step_that_reaches_a_limit_is_the_last(log: Path, limit: Any, steps: int) -> None:
    rows = train(TuneClass(Counter, place(limit)), {"log": str(log), "by": 1.5, "steps": 10})
    assert len(rows) == steps


def test_a_trial_that_was_extended_goes_beyond_the_limit_of_its_time(log: Path) -> None:
    trainable = TuneClass(Counter, place(("training_iteration", 2, None, None)))
    rows = train(trainable, {"log": str(log), "by": 1.5, "steps": 5}, iteration=2)
    assert len(rows) == 5


def test_an_instance_is_used_again_where_that_is_asked_for(log: Path) -> None:
    config = {"log": str(log), "by": 1.0, "steps": 2}
    trainable = TuneClass(Counter, place(reuse_actors=True))
    assert [row["total"] for row in train(trainable, config)] == [1.0, 2.0]
    rows = train(trainable, {**config, "by": 2.0})
    assert [(row["total"], row["training_iteration"]) for row in rows] == [(2.0, 1), (4.0, 2)]
    train(trainable, {**config, "resets": False})
    trainable.close()
    assert words(log) == ["setup", "reset", "reset", "cleanup", "setup", "cleanup"]


def test_an_instance_whose_step_failed_is_not_used_again(log: Path) -> None:
    config = {"log": str(log), "by": 1.0, "steps": 3, "dies_at": 2}
    trainable = TuneClass(Counter, place(reuse_actors=True))
    with pytest.raises(RuntimeError, match="once"):
        train(trainable, config)
    assert len(train(trainable, config)) == 3
    trainable.close()
    assert words(log) == ["setup", "cleanup", "setup", "cleanup"]
