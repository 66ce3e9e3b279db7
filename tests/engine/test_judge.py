"""The judge on a real Ray, night after night: what is released was judged, by these bytes, and passed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.cluster.ray.connection import RayConnection
from raysweep.errors import SpecError
from raysweep.outcome import PipelineOutcome
from raysweep.pipeline import run_judge, run_pipeline
from raysweep.runs.across_runs.champions import ChampionRecord, Line, read_champion
from raysweep.runs.across_runs.releases import roll_back
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import INLINE
from tests.unit.delivery.servers import Receiver

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")]

HERE = "tests.engine.judged"
LINE = Line(name="churn", metric="auc", mode="max")
Night = Callable[..., PipelineOutcome]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "holdout.json"
    path.write_text("0.0")
    return path


@pytest.fixture
def run_night(ray_cluster: RayConnection, storage: Path, data: Path) -> Night:
    """Runs a night of a pipeline with a judge."""

    def run(
        key: str, gain: float, *, judge: Any = None, train: Any = None, sweep: Any = None, **more: Any
    ) -> PipelineOutcome:
        spec = {
            "sweep": {
                "name": "churn",
                "trainable": f"{HERE}:search",
                "param_space": {"gain": {"grid_search": [gain]}},
                "metric": "auc",
                "mode": "max",
                "storage_path": str(storage),
                **INLINE,
                **(sweep or {}),
            },
            "gate": {"confirm_top_k": 1, "seeds": 2},
            "train": {
                "trainable": f"{HERE}:train",
                "storage_path": str(storage),
                **(train or {}),
            },
            "judge": {
                "evaluate": f"{HERE}:score",
                "data": str(data),
                "metric": "auc",
                "mode": "max",
                "retries": 0,
                **(judge or {}),
            },
            **more,
        }
        return run_pipeline(spec, key=key)

    return run


def standing(storage: Path) -> ChampionRecord:
    return read_champion(open_store(storage), LINE)


def released_night(storage: Path) -> str:
    champion = standing(storage).champion
    return champion.key if champion is not None else ""


def shown_nights(storage: Path) -> dict[str, tuple[bool, str, bool]]:
    """What `raysweep nights churn --json` says of each."""
    command = [sys.executable, "-m", "raysweep.cli", "nights", "churn", "--storage", str(storage), "--json"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return {
        each["key"]: (each["promoted"], each["judged"], each["released"])
        for each in json.loads(shown.stdout)["nights"]
    }


def verdict_of(night: PipelineOutcome) -> tuple[str, tuple[str, ...], bool | None]:
    assert night.judgement is not None
    return night.judgement.verdict, night.judgement.reasons, night.released


def test_only_a_model_that_passed_is_released(run_night: Night, storage: Path) -> None:
    low = run_night("n1", 0.001, judge={"at_least": 0.75})
    assert verdict_of(low) == ("failed", ("first", "at_least"), False)
    assert (low.gate.promoted if low.gate else None, released_night(storage)) == (True, "")

    first = run_night("n2", 0.002)
    assert verdict_of(first) == ("passed", ("first",), True)
    assert released_night(storage) == "n2"
    model = standing(storage).released
    assert first.train is not None
    assert (model.source if model else "") == first.train.model_uri

    shuffled = run_night("n3", 0.004, train={"config": {"gain": 0.004, "shuffled": True}})
    assert verdict_of(shuffled) == ("failed", ("not_better",), False)
    chance = [0.09, -0.01, -0.01, 0.0, -0.01]
    lucky = run_night("n4", 0.005, train={"config": {"gain": 0.005, "luck": chance}})
    assert verdict_of(lucky) == ("undecided", ("not_sure",), False)
    # The gate compares with what is released, not with what it promoted in between.
    assert lucky.gate is not None
    assert lucky.gate.champion is not None
    assert lucky.gate.champion.key == "n2"

    better = run_night("n5", 0.01)
    assert verdict_of(better) == ("passed", ("better",), True)
    assert released_night(storage) == "n5"
    again = run_night("n5", 0.01)
    assert again.judgement == better.judgement
    assert len(standing(storage).history) == 5

    assert shown_nights(storage) == {
        "n1": (True, "failed", False),
        "n2": (True, "passed", True),
        "n3": (True, "failed", False),
        "n4": (True, "undecided", False),
        "n5": (True, "passed", True),
    }
    roll_back(open_store(storage), LINE, by="ann")
    assert shown_nights(storage)["n5"] == (True, "passed", False)
    assert released_night(storage) == "n2"
    assert standing(storage).released == model


def test_webhooks_hear_of_a_model_once_it_is_released(run_night: Night, storage: Path) -> None:
    receiver = Receiver()
    with receiver.running():
        told = {"callbacks": [{"webhook": {"url": receiver.url, "on": ["promoted"]}}]}
        run_night("n1", 0.001, sweep=told, judge={"at_least": 0.75})
        assert receiver.messages == []
        passed = run_night("n2", 0.002, sweep=told)
        assert run_night("n2", 0.002, sweep=told).judgement == passed.judgement
    assert passed.judgement is not None
    (message,) = receiver.messages
    assert (message["id"], message["text"]) == (
        f"judge.{passed.judgement.judge_id}",
        passed.judgement.why,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("raising", "the evaluation of the new model failed: KeyError: 'holdout'"),
        ("mutating", "evaluate changed the files of its model; write elsewhere"),
        ("not_a_number", "evaluate returned nan, which is not finite"),
    ],
)
def test_a_judge_that_cannot_judge_releases_nothing_and_judges_again(
    function: str, problem: str, run_night: Night, storage: Path
) -> None:
    found = run_night("n1", 0.01, judge={"evaluate": f"{HERE}:{function}"})
    assert verdict_of(found) == ("undecided", ("no_figures",), False)
    assert found.judgement is not None
    assert problem in found.judgement.why
    assert "\n" not in found.judgement.why
    if function == "raising":
        assert verdict_of(run_night("n1", 0.01)) == ("passed", ("first",), True)


@pytest.mark.slow
def test_a_released_model_whose_file_is_damaged_stops_the_next_release(
    run_night: Night, storage: Path
) -> None:
    first = run_night("n1", 0.001)
    assert first.train is not None
    assert first.judgement is not None
    assert first.train.model_uri is not None
    file = Path(first.train.model_uri, "model.json")
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    found = run_night("n2", 0.01)
    assert verdict_of(found) == ("undecided", ("changed_released",), False)
    assert found.judgement is not None
    assert "changed since they were judged: their digest is" in found.judgement.why
    assert released_night(storage) == "n1"
    file.write_bytes(whole)
    assert verdict_of(run_night("n2", 0.01)) == ("passed", ("better",), True)


@pytest.mark.slow
def test_a_training_that_a_limit_cut_is_not_judged(run_night: Night, storage: Path) -> None:
    found = run_night(
        "n1", 0.01, train={"config": {"gain": 0.01, "waits_s": 1}, "stop": {"time_budget_s": 30}}
    )
    assert verdict_of(found) == ("failed", ("cut_training",), False)
    assert found.judgement is not None
    assert "was cut: time_budget" in found.judgement.why
    assert found.judgement.sweep_id == ""
    assert released_night(storage) == ""


@pytest.mark.slow
def test_a_training_of_another_night_is_refused(run_night: Night, storage: Path, data: Path) -> None:
    first = run_night("n1", 0.001)
    second = run_night("n2", 0.01, judge={"at_least": 0.9})
    assert first.train is not None
    judge = {"evaluate": f"{HERE}:score", "data": str(data), "metric": "auc", "mode": "max"}
    with pytest.raises(SpecError, match=r"trained .*, and the gate promoted"):
        run_judge(judge, second.sweep, first.train)
    assert released_night(storage) == "n1"


@pytest.mark.slow
def test_files_that_change_after_the_evaluation_are_not_released(
    run_night: Night, storage: Path, data: Path
) -> None:
    """The evaluation is stored, and the verdict not yet: as after a kill."""
    from raysweep.pipeline import prepare_judge
    from raysweep.run import run_sweep

    asked = run_night("n1", 0.01, judge={"evaluate": f"{HERE}:raising"})
    assert asked.train is not None
    judge = {"evaluate": f"{HERE}:score", "data": str(data), "metric": "auc", "mode": "max"}
    run = prepare_judge(judge, asked.sweep, asked.train)
    again = run_sweep(run.request.spec, key=run.request.run.key)
    file = Path(asked.train.model_uri or "", "model.json")
    file.write_text(json.dumps([0.99] * 5))
    swapped = run.settle(again)
    assert (swapped.verdict, swapped.reasons) == ("undecided", ("changed_model",))
    assert released_night(storage) == ""
