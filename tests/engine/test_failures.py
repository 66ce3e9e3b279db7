"""What fails is retried as the policy says, from its checkpoint, and takes nobody else with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import SlotLost, TrialStarted
from raysweep.errors import InfeasibleResourcesError, MetricNeverReportedError, TrainableImportError
from raysweep.specs.identity import sweep_id
from tests.engine.conftest import INLINE
from tests.sampling import first_of, sampled

pytestmark = pytest.mark.ray
Run = Callable[..., rs.SweepOutcome]
Events = Callable[..., list[Any]]
Lines = Callable[[], list[list[str]]]

DEATHS = {
    "raise": ("user_error", "ValueError: as asked"),
    "exit": ("worker_died", "ProcessDied: the trial's process ended with exit code 3"),
    "sys.exit": ("user_error", "SystemExit: 4"),
    "sigkill": ("worker_died", ""),
    "segfault": ("worker_died", ""),
}


def check_resumed(outcome: rs.SweepOutcome, lines: list[list[str]], how: str) -> None:
    (trial,) = outcome.trials
    assert trial.state == "completed", trial.error
    assert [attempt.end for attempt in trial.attempts] == ["failed", "completed"]
    error = trial.attempts[0].error
    assert error is not None
    kind, message = DEATHS[how]
    assert error.kind == kind
    assert f"{error.type}: {error.message}".startswith(message)
    steps = [int(line[2]) for line in lines if line[0] == "step"]
    # Nothing that lies behind the last checkpoint is done again.
    assert steps == [1, 2, 3, 4, 5]
    assert [line for line in lines if line[0] == "resumed"] == [["resumed", "0", "2", "3"]]
    assert trial.metrics["step"] == 5
    assert trial.metrics["training_iteration"] == 5


@pytest.mark.parametrize(
    "how",
    first_of(["segfault", "raise", "sigkill", "exit", "sys.exit"]),
)
def test_a_trial_in_its_own_process_goes_on_from_its_checkpoint(how: str, run: Run, lines: Lines) -> None:
    check_resumed(run("steps", {"dies_at": 3, "how": how}, isolation="process"), lines(), how)


@pytest.mark.parametrize(
    "how",
    sampled(["raise", "sigkill", "segfault", "exit", "sys.exit"], lambda how: how == "sigkill"),
)
def test_a_trial_in_a_worker_goes_on_from_its_checkpoint(how: str, run: Run, lines: Lines) -> None:
    check_resumed(run("steps", {"dies_at": 3, "how": how}, isolation="worker"), lines(), how)


@pytest.mark.parametrize(
    ("isolation", "how"),
    first_of([("worker", "exit"), ("process", "segfault"), ("actor", "sigkill")]),
)
def test_a_death_takes_nobody_else_with_it(
    isolation: str, how: str, run: Run, lines: Lines, events: Events
) -> None:
    outcome = run("one_dies", {"how": how}, num_samples=8, isolation=isolation)
    assert outcome.counts == {"completed": 8}
    assert Counter(int(line[1]) for line in lines()) == {n: 2 if n == 1 else 1 for n in range(8)}
    charged = {trial.number for trial in outcome.trials if any(each.error for each in trial.attempts)}
    assert charged == {1}
    error = outcome[1].attempts[0].error
    assert error is not None
    assert error.kind == "worker_died"
    if how == "exit":
        assert error.line == "ProcessDied: the trial's process ended with exit code 3"
    if isolation == "process":
        assert not events(SlotLost)  # The child died, and its worker lives.
    else:
        assert len(events(SlotLost)) == 1


def test_results_sent_right_before_a_death_count(run: Run, lines: Lines) -> None:
    outcome = run("finishes_then_next_dies", num_samples=40, max_concurrent_trials=1)
    assert outcome.counts == {"completed": 40}
    starts = Counter(int(line[1]) for line in lines())
    # What its forerunners sent may have been in the process that died; but no more than what was unsent.
    assert starts[20] == 2
    assert sum(starts.values()) <= 40 + 1 + 64


@pytest.mark.parametrize("isolation", first_of(["process", "worker", "actor"]))
def test_an_infeasible_config_is_not_run_again_and_ends_no_sweep(isolation: str, run: Run) -> None:
    outcome = run("infeasible", num_samples=6, isolation=isolation, failure={"breaker_trials": 2})
    assert outcome.counts == {"completed": 2, "failed": 4}
    trial = outcome[0]
    assert len(trial.attempts) == 1
    assert trial.error is not None
    assert (trial.error.kind, trial.error.line) == ("infeasible", "Infeasible: needs 90 GB")


def test_a_rank_that_says_that_its_config_cannot_work_fails_the_gang_so(run: Run) -> None:
    outcome = run("infeasible", num_samples=1, scaling={"num_workers": 2})
    (trial,) = outcome.trials
    assert len(trial.attempts) == 1
    assert trial.error is not None
    assert (trial.error.kind, trial.error.message) == ("infeasible", "rank 1: needs 90 GB")


def test_a_users_error_is_tried_once_more_and_told(run: Run, events: Events) -> None:
    outcome = run("always_raises", failure={"max_failures": 1, "backoff_initial_s": 0.2})
    (trial,) = outcome.trials
    assert (outcome.status, trial.state) == ("failed", "failed")
    assert [attempt.end for attempt in trial.attempts] == ["failed", "failed"]
    assert trial.error is not None
    assert (trial.error.kind, trial.error.type) == ("user_error", "ValueError")
    assert trial.error.message == "as asked\nsecond line"
    assert trial.error.traceback is not None
    assert trial.error.traceback.startswith("Traceback (most recent call last):")
    assert "always_raises" in trial.error.traceback
    assert "runner.py" not in trial.error.traceback
    first, second = events(TrialStarted)
    assert second.at - first.at >= 0.1
    assert outcome.error == trial.error
    with pytest.raises(rs.SweepFailedError):
        outcome.raise_for_status()


def test_messages_that_utf_8_cannot_hold_arrive(run: Run) -> None:
    (trial,) = run("raises_with_surrogates", failure={"max_failures": 0}).trials
    assert trial.error is not None
    assert trial.error.message == "bad name: ?"


def test_an_error_that_no_rerun_mends_is_not_retried(run: Run) -> None:
    (trial,) = run("type_error", failure={"max_failures": 3}, **INLINE).trials
    assert len(trial.attempts) == 1


def test_the_breaker_ends_a_sweep_that_only_fails(run: Run, lines: Lines) -> None:
    outcome = run("type_error", num_samples=50, failure={"breaker_trials": 3}, **INLINE)
    assert outcome.status == "failed"
    assert "the first 3 trials all failed in user code" in outcome.why
    assert "TypeError" in outcome.why
    assert len(lines()) < 50


@pytest.mark.parametrize("search", first_of(["random", {"tpe": {"n_startup_trials": 30}}]))
def test_a_draw_that_raises_costs_its_own_trial(search: Any, run: Run) -> None:
    """Not the sweep, and not what the others have done."""
    drawn: set[float] = set()

    def rare(config: dict[str, Any]) -> float:
        drawn.add(config["x"])
        if len(drawn) == 37:
            raise ZeroDivisionError("a rare draw")
        return float(config["x"])

    fields = {"num_samples": 40, "search": search, **INLINE}
    outcome = run("noop", {"y": {"sample_from": rare}}, **fields)
    assert outcome.status == "completed"
    assert outcome.counts == {"completed": 39, "failed": 1}
    trial = outcome[36]
    assert trial.state == "failed"
    assert trial.config.keys() == {"log", "x"}
    assert trial.error is not None
    assert (trial.error.kind, trial.error.type) == ("user_error", "ZeroDivisionError")
    assert "a rare draw" in trial.error.message
    assert trial.error.traceback is not None
    assert "in rare" in trial.error.traceback
    assert outcome == run("noop", {"y": {"sample_from": rare}}, **fields)


def test_a_function_that_fails_for_the_first_draw_is_a_mistake_in_the_spec(run: Run, storage: Path) -> None:
    with pytest.raises(rs.SpecError, match=r"param_space\.y: sample_from raised ZeroDivisionError"):
        run("noop", {"y": {"sample_from": lambda config: 1 / 0}}, num_samples=40)
    assert nothing_is_left(storage)


def test_lambdas_and_closures_go_by_value(run: Run) -> None:
    offset = 3.0
    outcome = run(lambda config: {"loss": config["x"] + offset}, num_samples=2)
    assert [trial.metrics["loss"] - trial.config["x"] for trial in outcome.trials] == [3.0, 3.0]


def nothing_is_left(storage: Path) -> bool:
    return not storage.exists() or not any(path.is_file() for path in storage.rglob("*"))


def test_a_closure_that_cannot_be_pickled_is_refused(run: Run, storage: Path) -> None:
    import threading

    lock = threading.Lock()

    def train(config: dict[str, Any]) -> dict[str, float]:
        with lock:
            return {"loss": 1.0}

    with pytest.raises(rs.SpecError, match=r"trainable.*lock") as caught:
        run(train)
    assert "\n" not in str(caught.value)
    assert nothing_is_left(storage)


def test_a_metric_that_is_never_reported_is_a_mistake_in_the_spec(
    run: Run, lines: Lines, storage: Path
) -> None:
    with pytest.raises(MetricNeverReportedError, match="'los'") as caught:
        run("other_name", num_samples=20, **INLINE)
    assert caught.value.field == "metric"
    assert len(lines()) < 20
    assert not (storage / sweep_id("t", "k")).exists()
    assert (Path(caught.value.kept_uri) / "sweep.json").is_file(), "what has run is kept, aside"


@pytest.mark.parametrize("isolation", first_of(["worker", "process"]))
def test_a_trainable_that_is_not_in_its_module(isolation: str, run: Run, storage: Path) -> None:
    with pytest.raises(TrainableImportError, match="did you mean 'noop'") as caught:
        run("noob", isolation=isolation)
    assert "\n" not in str(caught.value)
    assert nothing_is_left(storage)


def test_more_than_any_node_has(run: Run, storage: Path) -> None:
    with pytest.raises(InfeasibleResourcesError, match=r"asks for 64 CPU; the largest node has 2"):
        run("noop", resources={"cpu": 64})
    assert nothing_is_left(storage)
