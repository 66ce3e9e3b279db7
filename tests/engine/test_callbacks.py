"""Callbacks of a sweep that runs on Ray: all is delivered, and one that hangs costs the trials nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ray import tune

import raysweep as rs
from raysweep.hooks import Callback
from raysweep.hooks.events import SweepEnd, TrialEnd
from raysweep.runs.reading.history import read_reports
from tests.unit.delivery.otlp import Collector

pytestmark = pytest.mark.ray


class Mine(Callback):
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


class Waits(Callback):
    """At the end of a sweep, waits until a file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_sweep_end(self, event: SweepEnd) -> None:
        while not self.path.exists():
            time.sleep(0.05)


@pytest.mark.slow
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


@pytest.mark.slow
def test_rays_metrics_agent_has_the_numbers_of_a_sweep(run: Callable[..., rs.SweepOutcome]) -> None:
    import httpx
    import ray

    outcome = run("slow", {"pause": 0.1}, num_samples=3, callbacks=["prometheus"])
    assert not [note for note in outcome.notes if "callback" in note]
    addresses = [f"{node['NodeManagerAddress']}:{node['MetricsExportPort']}" for node in ray.nodes()]
    seen = ""
    until, found = time.monotonic() + 120, dict[str, float]()
    while not any("raysweep_reports" in name for name in found):
        assert time.monotonic() < until, (sorted(found), seen)
        time.sleep(0.5)
        for address in addresses:
            seen = httpx.get(f"http://{address}/metrics", timeout=20, trust_env=False).text
            lines = seen.splitlines()
            pairs = [line.rpartition(" ") for line in lines if "raysweep" in line and line[0] != "#"]
            found |= {name: float(value) for name, _, value in pairs if outcome.sweep_id in name}
    by_state = {name: value for name, value in found.items() if "raysweep_trials" in name}
    (completed,) = [value for name, value in by_state.items() if 'state="completed"' in name]
    assert completed == 3
    (reports,) = [value for name, value in found.items() if "raysweep_reports" in name]
    assert reports == sum(trial.reports for trial in outcome.trials)
    assert outcome.best is not None
    (best,) = [value for name, value in found.items() if "raysweep_best" in name]
    assert best == pytest.approx(outcome.best.score)


@pytest.mark.parametrize("traceparent", ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
def test_a_trial_is_in_the_trace_of_what_asked_for_the_sweep(
    run: Callable[..., rs.SweepOutcome], traceparent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", traceparent)
    collector = Collector()
    with collector.running():

        def train(config: dict[str, float]) -> None:
            rs.report({"loss": 1.0, "traceparent": rs.get_context().trackers["TRACEPARENT"]})

        outcome = run(train, num_samples=2, callbacks=[{"otel": {"endpoint": collector.url}}])
    spans = {span.name: span for span in collector.spans.values()}
    root = next(span for name, span in spans.items() if name.startswith("sweep "))
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == tuple(traceparent.split("-")[1:3])
    for trial in outcome.trials:
        span = spans[f"trial {trial.trial_id}"]
        assert trial.metrics["traceparent"] == f"00-{root.trace_id.hex()}-{span.span_id.hex()}-01"
