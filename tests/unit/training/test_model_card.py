"""The model card: what it says, where it comes from, and that nobody waits for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.outcome import SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.pipeline import training_request, with_best
from raysweep.runs.training import RunFolder
from raysweep.specs import RunRequest, TrainSpec
from raysweep.step import best_trials, brief
from raysweep.storage.objects.opening import open_store
from raysweep.training.from_outcome import train_spec_for
from raysweep.training.model_card import installed_versions, make_card, source_of
from tests.begun_trainings import begin_training

TRIALS = [
    TrialOutcome(
        trial_id=f"0000{number}", number=number, state="completed", config={"x": number}, score=score
    )
    for number, score in enumerate((0.25, 0.5))
]
SWEPT = SweepOutcome(
    sweep_id="s",
    name="s",
    status="completed",
    metric="loss",
    mode="min",
    best=TRIALS[0],
    trials=TRIALS,
    uri="s3://bucket/s",
    started_at=1.0,
    ended_at=2.0,
)


def spec(**fields: Any) -> TrainSpec:
    return TrainSpec(name="full", trainable="math:sqrt", **fields)


@pytest.mark.parametrize(
    "trained",
    [
        lambda: with_best(spec(), SWEPT),
        lambda: with_best(spec(), brief(SWEPT)),
        lambda: with_best(spec(), json.loads(json.dumps(best_trials(brief(SWEPT))[0]))),
        lambda: train_spec_for(spec(), SWEPT),
        lambda: training_request(spec(), SWEPT, "night").spec,
    ],
    ids=["outcome", "brief", "one of the best", "command line", "step"],
)
def test_a_training_says_which_trial_its_config_is_from(trained: Any) -> None:
    source = source_of(trained())
    assert source is not None
    assert (source.sweep, source.trial_id, source.score) == ("s3://bucket/s", "00000", 0.25)
    assert source_of(TrainSpec.from_json(trained().to_json())) == source, "wherever it is submitted to"


def test_the_source_changes_no_digest_and_no_id_and_a_users_tags_stay() -> None:
    tagged = with_best(spec(tags={"team": "a", "raysweep.score": "my own"}), SWEPT)
    assert tagged.tags["team"] == "a"
    assert source_of(tagged) is not None
    assert source_of(tagged).score is None  # type: ignore[union-attr]
    assert tagged.digest() == spec(config={"x": 0}).digest()
    assert RunRequest.of(tagged, None).run.id == RunRequest.of(spec(config={"x": 0}), None).run.id


def test_a_training_of_a_config_that_somebody_wrote_has_no_source() -> None:
    assert source_of(spec(config={"x": 1})) is None
    assert source_of(with_best(spec(), None)) is None
    assert source_of(with_best(spec(), {"config": {"x": 1}})) is None


def test_the_card_says_how_the_model_came_to_be(tmp_path: Path) -> None:
    trained = with_best(spec(scaling={"num_workers": 2}, tags={"team": "a"}), SWEPT)
    outcome = TrainOutcome(
        run_id="r",
        name="full",
        status="completed",
        metrics={"auc": 0.9},
        config=trained.config,
        model_uri="s3://bucket/r/checkpoint_1",
        started_at=0.0,
        ended_at=90.0,
        source=source_of(trained),
        versions=installed_versions(),
    )
    folder = RunFolder(open_store(tmp_path), "r")
    folder.write_card(make_card(trained, outcome))
    card = json.loads((tmp_path / "r" / "model_card.json").read_bytes())
    assert card["model_uri"] == "s3://bucket/r/checkpoint_1"
    assert card["source"] == {"sweep": "s3://bucket/s", "trial_id": "00000", "score": 0.25}
    assert card["metrics"] == {"auc": 0.9}
    assert card["config"] == {"x": 0}
    assert (card["started_at"], card["took_s"]) == ("1970-01-01T00:00:00+00:00", 90.0)
    assert card["workers"] == {"number": 2, "each": {"CPU": 1.0}}
    assert card["tags"] == {"team": "a"}
    assert card["spec_digest"] == trained.digest()
    assert card["versions"]["raysweep"] == rs.__version__
    folder.write_card({"another": 1})
    assert json.loads((tmp_path / "r" / "model_card.json").read_bytes()) == card, "written once"


def test_a_card_that_was_not_written_is_written_by_the_next_call(tmp_path: Path) -> None:
    trained = spec(storage_path=str(tmp_path), config={"x": 1})
    request = RunRequest.of(trained, "k")
    folder = RunFolder(open_store(tmp_path), request.run.id)
    ended = TrainOutcome(
        run_id=request.run.id, name="full", key="k", status="completed", started_at=0, ended_at=1
    )
    begin_training(folder, request.spec, "k")
    folder.write_outcome(ended)
    assert rs.run_training(trained, key="k") == ended
    card = json.loads((tmp_path / request.run.id / "model_card.json").read_bytes())
    assert card["run"]["run_id"] == request.run.id
