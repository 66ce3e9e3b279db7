"""A night with three proxy scales and a bridge on a real Ray, killed on its way: its evidence is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.outcome import PipelineOutcome
from raysweep.pipeline import run_pipeline
from tests.engine.conftest import ROOT, wait_for
from tests.engine.results import shown

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]
Lines = Callable[[], list[list[str]]]
NIGHT = (
    "import json, sys; from raysweep.pipeline import run_pipeline; asked = json.loads(sys.argv[1]);"
    " run_pipeline(asked['night'], key='k', address=asked['address'])"
)
TRIALS = 12


@pytest.fixture
def night(make_spec: Callable[..., rs.SweepSpec], storage: Path) -> dict[str, Any]:
    sweep = make_spec(
        "steps_at_scale",
        {"pause": 0.02, "y": {"loguniform": [1e-3, 1]}},
        num_samples=TRIALS,
        scales=[{"size": 2}, {"size": 4}, {"size": 8}],
        max_concurrent_trials=1,
    )
    train = {
        "name": "full",
        "trainable": "examples.quick:steps",
        "config": {"steps": 3},
        "scale": {"size": 32},
        "transfer": {"x": "law", "y": "min(y * sqrt(scale.size / proxy.size), 0.999)"},
        "bridge": {"scale": {"size": 16}},
        "storage_path": str(storage),
    }
    return {"sweep": sweep.to_dict(), "train": train}


@pytest.fixture
def begin(night: dict[str, Any], address: str) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start a process that runs the night."""
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        asked = json.dumps({"night": night, "address": address})
        started.append(subprocess.Popen([sys.executable, "-c", NIGHT, asked], cwd=ROOT, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def kill_when(is_due: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    wait_for(lambda: is_due() or process.poll() is not None, timeout_s=120)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def evidence(outcome: PipelineOutcome) -> Any:
    """What must not depend on kills."""
    trained = outcome.train
    assert trained is not None
    assert trained.carried is not None
    carried = trained.carried.model_dump(mode="json")
    for name in ("began_at", "active_s"):
        del carried["bridge"][name]
    return shown(outcome.sweep), carried, trained.config, trained.metrics


def undisturbed(night: dict[str, Any], storage: Path) -> Any:
    moved = {"storage_path": f"{storage}-2"}
    return evidence(run_pipeline({name: {**each, **moved} for name, each in night.items()}, key="k"))


def test_a_night_killed_in_its_bridge_ends_as_an_undisturbed_one(
    night: dict[str, Any], begin: Callable[[], subprocess.Popen[str]], lines: Lines, storage: Path
) -> None:
    kill_when(lambda: len(starts(lines)) > TRIALS + 1, begin())
    before = len(starts(lines))
    assert before < TRIALS + 4, "in the bridge"
    outcome = run_pipeline(night, key="k")
    assert len(starts(lines)) <= TRIALS + 4 + 2, "only what had not ended ran twice"
    assert outcome.train is not None
    assert outcome.train.carried is not None
    bridged = outcome.train.carried.bridge
    assert bridged is not None
    assert [(each.way, len(each.scores)) for each in bridged.ran] == [("carried", 2), ("copied", 2)]
    assert bridged.won == "copied", "its y is smaller"
    assert bridged.scale == {"size": 16}
    assert run_pipeline(night, key="k").train == outcome.train
    assert evidence(outcome) == undisturbed(night, storage)


@pytest.mark.slow
def test_a_night_killed_in_each_of_its_parts_ends_as_an_undisturbed_one(
    night: dict[str, Any], begin: Callable[[], subprocess.Popen[str]], lines: Lines, storage: Path
) -> None:
    for count in (1, 5, 9, TRIALS + 2):
        kill_when(lambda count=count: len(starts(lines)) > count, begin())  # type: ignore[misc]
    kill_when(lambda: any(storage.glob("full-??????????/progress.json")), begin())
    outcome = run_pipeline(night, key="k")
    assert outcome.sweep.generation >= 3
    assert evidence(outcome) == undisturbed(night, storage)


def starts(lines: Lines) -> list[list[str]]:
    return [line for line in lines() if line[0] == "start"]
