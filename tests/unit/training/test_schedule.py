"""A population's schedule of configs: from the outcome to what a training's code is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import SpecError
from raysweep.outcome import GateOutcome, SweepOutcome, TrainOutcome, TrialOutcome
from raysweep.pipeline import training_request, with_best
from raysweep.runs.folder import SweepFolder
from raysweep.specs import TrainSpec
from raysweep.specs.scheduled_config import ScheduledConfig
from raysweep.step import best_schedule, best_trials
from raysweep.step.brief import brief, size_bytes
from raysweep.storage.objects.opening import open_store
from raysweep.training.from_outcome import train_spec_for
from raysweep.training.model_card import make_card
from raysweep.trial.session import TrialContext

SCHEDULE = [{"from": 0, "config": {"lr": 0.5, "rows": 9}}, {"from": 4, "config": {"lr": 0.1, "rows": 9}}]
BEST = TrialOutcome(
    trial_id="00000",
    number=0,
    state="completed",
    config={"lr": 0.1, "rows": 9},
    score=0.25,
    schedule=SCHEDULE,
)
PLAIN = TrialOutcome(trial_id="00001", number=1, state="completed", config={"lr": 0.2, "rows": 9}, score=0.5)
SWEPT = SweepOutcome(
    sweep_id="s-1",
    name="s",
    status="completed",
    metric="loss",
    mode="min",
    best=BEST,
    trials=(BEST, PLAIN),
    uri="s3://bucket/s-1",
    started_at=1.0,
    ended_at=2.0,
)


def spec(**fields: Any) -> TrainSpec:
    return TrainSpec(name="full", trainable="math:sqrt", **fields)


def shown(trained: TrainSpec) -> list[dict[str, Any]]:
    return [each.model_dump() for each in trained.schedule]


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
def test_the_schedule_of_the_best_trial_goes_into_the_training(trained: Callable[[], TrainSpec]) -> None:
    found = trained()
    assert shown(found) == SCHEDULE
    assert found.config == {"lr": 0.1, "rows": 9}
    assert TrainSpec.from_json(found.to_json()) == found, "wherever it is submitted to"
    assert TrainSpec.from_yaml(found.to_yaml()) == found


def test_what_the_training_says_itself_wins_in_each_config() -> None:
    trained = with_best(spec(config={"rows": 100}), SWEPT)
    assert [each.config["rows"] for each in trained.schedule] == [100, 100]
    assert [each.config["lr"] for each in trained.schedule] == [0.5, 0.1]
    own = [{"from": 0, "config": {"lr": 7}}]
    assert shown(with_best(spec(schedule=own), SWEPT)) == own


def test_a_gate_that_prefers_another_trial_hands_on_that_ones() -> None:
    def gated(*trials: TrialOutcome) -> SweepOutcome:
        candidates = [{"config": each.config, "trial_id": each.trial_id} for each in trials]
        gate = GateOutcome.model_validate({"promoted": True, "why": "better", "candidates": candidates})
        return SWEPT.model_copy(update={"gate": gate, "uri": ""})

    assert shown(with_best(spec(), gated(PLAIN, BEST))) == []
    assert shown(with_best(spec(), gated(BEST, PLAIN))) == SCHEDULE


def test_two_schedules_that_end_alike_are_two_trainings_and_without_one_the_key_is_as_before() -> None:
    def key(*schedule: Any) -> str:
        best = BEST.model_copy(update={"schedule": tuple(map(ScheduledConfig.model_validate, schedule))})
        given = SWEPT.model_copy(update={"best": best, "uri": ""})
        of_brief = training_request(spec(), brief(given), "night").run.key
        assert of_brief == training_request(spec(), given, "night").run.key
        return of_brief

    other = [SCHEDULE[0] | {"config": {"lr": 0.9}}, SCHEDULE[1]]
    assert len({key(*SCHEDULE), key(*other), key()}) == 3
    assert key() == key()


def test_a_spec_without_a_schedule_is_written_and_digested_as_before() -> None:
    assert spec(schedule=[]).digest() == spec().digest()
    assert spec(schedule=SCHEDULE).digest() != spec().digest()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"from": 1, "config": {}}], "schedule: begins from 1; let the first config be from 0"),
        ([*SCHEDULE, {"from": 4, "config": {}}], r"schedule\[2\].from: 4 comes after 4; give the configs in"),
        ({"from": 0}, "schedule: expected a list"),
        ([{"from": -1, "config": {}}], r"schedule\[0\].from: must be >= 0"),
        ([{"from": 0, "config": 3}], r"schedule\[0\].config: expected a mapping"),
        ([{"from": 0, "config": {"x": object()}}], r"schedule\[0\].config"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(given: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        spec(schedule=given)


def test_a_schedule_too_large_for_the_brief_is_read_where_it_is_stored(tmp_path: Path) -> None:
    long = [{"from": step, "config": {"lr": step / 7, "text": "x" * 80}} for step in range(300)]
    best = BEST.model_copy(update={"schedule": tuple(map(ScheduledConfig.model_validate, long))})
    folder = SweepFolder(open_store(str(tmp_path)), "s-1")
    outcome = SWEPT.model_copy(update={"best": best, "trials": (best, PLAIN), "uri": folder.uri})
    folder.write_outcome_if_absent(outcome)
    small = json.loads(json.dumps(brief(outcome)))
    assert size_bytes(small) <= 16_384
    assert small["cut"] == ["top_k.schedule", "best.schedule"]
    assert (small["best"]["schedule"], small["best"]["config"]) == (None, BEST.config)
    assert best_schedule(small) == best.schedule
    assert with_best(spec(), small) == with_best(spec(), outcome)
    assert best_schedule(small["top_k"][1]) == ()


def test_a_context_says_which_config_makes_a_step() -> None:
    fields: dict[str, Any] = {"sweep_id": "s", "trial_id": "t", "number": 0, "attempt": 1, "seed": 0}
    schedule = with_best(spec(), SWEPT).schedule
    context = TrialContext(**fields, schedule=schedule)
    made = [context.config_at(step, {"lr": 3})["lr"] for step in (0, 3, 4, 5, 1000)]
    assert made == [0.5, 0.5, 0.1, 0.1, 0.1]
    assert TrialContext(**fields).config_at(7, {"lr": 3}) == {"lr": 3}, "a trial has its own"
    context.config_at(0, {})["lr"] = 9
    assert context.config_at(0, {})["lr"] == 0.5, "what it gives may be changed"


def test_the_card_says_the_schedule() -> None:
    trained = with_best(spec(), SWEPT)
    outcome = TrainOutcome(run_id="r", name="full", status="completed", started_at=0, ended_at=1)
    assert make_card(trained, outcome)["schedule"] == SCHEDULE
    assert "schedule" not in make_card(spec(), outcome)


def test_an_outcome_with_a_schedule_is_read_again() -> None:
    assert rs.SweepOutcome.from_json(SWEPT.to_json()) == SWEPT
