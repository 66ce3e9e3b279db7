"""Callbacks of Ray Tune are called as Tune calls them, and so after a restart."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from raysweep.delivery import sink
from raysweep.hooks.spec import CallbackSpec
from tests.unit.delivery.contract import run_life
from tests.unit.delivery.journals import GoldenSweep

tune = pytest.importorskip("ray.tune")
CALLS: list[tuple[Any, ...]] = []


class Notes(tune.Callback):  # type: ignore[misc, name-defined]
    """Notes its calls."""

    def setup(self, **info: Any) -> None:
        CALLS.append(("setup",))

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        CALLS.append(("start", trial.trial_id, dict(trial.config), trial.status))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        assert trial in trials
        CALLS.append(("result", trial.trial_id, result["training_iteration"], result["trial_id"]))

    def on_checkpoint(
        self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any
    ) -> None:
        CALLS.append(("checkpoint", trial.trial_id, checkpoint.path))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        CALLS.append(("complete", trial.trial_id, trial.last_result.get("done")))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        CALLS.append(("error", trial.trial_id, trial.status))

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        CALLS.append(("end", len(trials)))


@pytest.fixture
def sweep(tmp_path: Path) -> GoldenSweep:
    CALLS.clear()
    made = GoldenSweep("retry", tmp_path / "store")
    made.write()
    return made


def ended(sweep: GoldenSweep, *states: str) -> set[str]:
    return {trial["trial_id"] for trial in sweep.outcome["trials"] if trial["state"] in states}


def test_a_callback_is_called_for_each_trial_and_result(sweep: GoldenSweep) -> None:
    (report,) = run_life(sweep, CallbackSpec.of(Notes()))
    assert (report.left, report.skipped) == (0, 0), report.error
    assert CALLS[0] == ("setup",)
    assert {call[1] for call in CALLS if call[0] == "complete"} >= ended(sweep, "completed", "stopped")
    assert {call[1] for call in CALLS if call[0] == "error"} >= ended(sweep, "failed")
    assert all(call[1] == call[3] for call in CALLS if call[0] == "result")
    ends = [call[1] for call in CALLS if call[0] == "end"]
    assert len(ends) == 3
    assert ends[-1] == len(sweep.outcome["trials"])


def test_after_a_restart_it_hears_of_a_trials_start_before_its_results(
    sweep: GoldenSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "PAUSE_S", 0.001)
    run_life(sweep, CallbackSpec.of(Notes()), events=40)
    CALLS.clear()
    run_life(sweep, CallbackSpec.of(Notes()))
    started = set()
    for call in CALLS:
        if call[0] == "start":
            started.add(call[1])
        elif call[0] not in ("setup", "end"):
            assert call[1] in started


def test_loggers_of_tune_write_into_the_folder_of_the_sweep(sweep: GoldenSweep) -> None:
    kind = "ray.tune.logger:CSVLoggerCallback"
    (report,) = run_life(sweep, CallbackSpec.of({kind: {}}))
    assert (report.left, report.skipped) == (0, 0), report.error
    folder = Path(sweep.folder.uri.removeprefix("file://")) / "ray_tune"
    trial = sorted(ended(sweep, "completed"))[0]
    rows = list(csv.DictReader((folder / trial / "progress.csv").open()))
    assert rows
    assert {row["trial_id"] for row in rows} == {trial}
