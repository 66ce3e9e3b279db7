"""Callbacks of a sweep that runs on Ray: all is delivered, and one that hangs costs the trials nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ray import tune

import raysweep as rs
from raysweep.hooks.events import SweepEnd, TrialEnd
from raysweep.runs.reading.history import read_reports

pytestmark = pytest.mark.ray


class Mine:
    """Writes the trials that end to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_trial_end(self, event: TrialEnd) -> None:
        with self.path.open("a") as file:
            file.write(f"{event.trial_id} {event.state}\n")


class OfTune(tune.Callback):  # type: ignore[misc]
    """The same, as a callback of Tune's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_trial_result(
        self, iteration: int, trials: object, trial: object, result: object, **_: object
    ) -> None:
        with self.path.open("a") as file:
            file.write(f"{trial} {result['training_iteration']}\n")  # type: ignore[index]


def test_all_is_delivered_when_the_sweep_returns(run: Callable[..., rs.SweepOutcome], tmp_path: Path) -> None:
    path = tmp_path / "ended"
    outcome = run("slow", {"pause": 0.1}, num_samples=4, callbacks=["tensorboard", Mine(path)])
    assert outcome.status == "completed"
    assert not [note for note in outcome.notes if "callback" in note]
    assert sorted(path.read_text().split("\n")[:-1]) == [f"{n:05d} completed" for n in range(4)]


class Waits:
    """At the end of a sweep, waits until a file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_sweep_end(self, event: SweepEnd) -> None:
        while not self.path.exists():
            time.sleep(0.05)


def test_the_outcome_is_stored_before_a_slow_callback_has_got_everything(
    run: Callable[..., rs.SweepOutcome], storage: Path, tmp_path: Path
) -> None:
    go, seen = tmp_path / "go", []

    def look() -> None:
        until = time.monotonic() + 60
        while not seen and time.monotonic() < until:
            seen.extend(rs.load(str(path.parent)) for path in storage.glob("*/outcome.json"))
            time.sleep(0.05)
        go.touch()

    looking = threading.Thread(target=look)
    looking.start()
    outcome = run("slow", {"pause": 0.1}, num_samples=2, callbacks=[Waits(go)])
    looking.join()
    (note,) = [note for note in seen[0].notes if "callbacks" in note]
    assert "still being delivered when the sweep ended" in note
    assert "raysweep deliver" in note
    for last in (outcome, rs.load(outcome.uri)):
        assert not [note for note in last.notes if "callback" in note]


@pytest.mark.usefixtures("ray_cluster")
def test_callbacks_of_a_tuner_are_called(tmp_path: Path) -> None:
    path = tmp_path / "results"

    def train(config: dict[str, float]) -> None:
        for step in range(3):
            tune.report({"loss": config["x"] / (step + 1)})

    tuner = tune.Tuner(
        train,
        param_space={"x": tune.grid_search([0.1, 0.2])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(name="t", storage_path=str(tmp_path / "store"), callbacks=[OfTune(path)]),
    )
    outcome = rs.run_sweep(rs.from_tuner(tuner))
    wanted = sorted(f"t_{row['trial_id']} {row['iteration']}" for row in read_reports(outcome.uri))
    assert len(wanted) == 6
    assert sorted(path.read_text().split("\n")[:-1]) == wanted
