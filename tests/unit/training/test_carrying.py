"""The config of a sweep's best trial at the scale of the training: by rules, by the law, or as it is."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.pipeline.night import training_request, with_best
from raysweep.specs import TrainSpec
from raysweep.specs.pipeline import PipelineSpec
from raysweep.step import brief
from raysweep.training.model_card import make_card
from tests.unit.pages.sweeps import store
from tests.unit.training.drifting import SPACE, SWEEP, drifting

TRAIN: dict[str, Any] = {"trainable": "m:f", "scale": {"rows": 64000}}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepOutcome:
    folder, _ = store(tmp_path_factory.mktemp("swept"), drifting, **SWEEP)
    outcome = folder.read_outcome()
    assert outcome is not None
    return outcome


def train(**fields: Any) -> TrainSpec:
    return TrainSpec.model_validate(TRAIN | fields)


def test_a_law_moves_the_config_and_says_why(swept: SweepOutcome) -> None:
    assert swept.best is not None
    made = with_best(train(transfer={"lr": "law", "rounds": "law", "act": "same"}), swept)
    said = made.carried
    assert said is not None
    assert said.verdict == "carries"
    assert said.reasons
    assert made.config == said.config
    assert made.config["rows"] == 64000
    assert made.config["lr"] == pytest.approx(0.0125, rel=0.4)
    assert made.config["rounds"] == pytest.approx(400, rel=0.4)
    assert type(made.config["rounds"]) is int
    assert made.config["act"] == swept.best.config["act"] == "relu"
    assert said.best == swept.best.config
    assert said.proxy == swept.best.scale == {"rows": 16000}
    low, high = said.intervals["lr"]
    assert low < 0.0125 < high
    assert said.score_low is not None
    assert said.score_high is not None
    assert TrainSpec.from_json(made.to_json()) == made


def test_only_what_is_said_is_carried(swept: SweepOutcome) -> None:
    assert swept.best is not None
    made = with_best(train(transfer={"lr": "law", "rounds": "rounds * scale.rows / proxy.rows / 4"}), swept)
    assert made.config["rounds"] == swept.best.config["rounds"]
    assert made.config["lr"] != swept.best.config["lr"]
    assert made.carried is not None
    assert set(made.carried.intervals) == {"lr"}


def test_rules_know_the_workers(swept: SweepOutcome) -> None:
    assert swept.best is not None
    made = with_best(
        train(scaling={"num_workers": 4}, transfer={"lr": "lr * scale.workers / proxy.workers"}), swept
    )
    assert made.config["lr"] == pytest.approx(4 * swept.best.config["lr"])
    assert "workers" not in made.config


def test_a_rule_that_leaves_the_domain_is_refused_with_the_value(swept: SweepOutcome) -> None:
    with pytest.raises(SpecError, match=r"transfer.lr: .* outside of its domain"):
        with_best(train(transfer={"lr": "lr * 1000"}), swept)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({"num_samples": 6}, "too few"), ({"param_space": SPACE | {"lr": {"loguniform": [0.1, 1]}}}, "edge")],
)
def test_what_does_not_carry_is_the_best_of_the_largest_proxy_scale(
    changes: dict[str, Any], verdict: str, tmp_path: Path
) -> None:
    _, outcome = store(tmp_path, drifting, **SWEEP | changes)
    made = with_best(train(transfer={"lr": "law", "rounds": "law"}), outcome)
    assert outcome.best is not None
    assert made.carried is not None
    assert made.carried.verdict == verdict
    assert made.carried.reasons
    assert made.config == {**outcome.best.config, "rows": 64000}


def test_the_brief_of_a_sweep_gives_the_same_training(swept: SweepOutcome) -> None:
    asked = train(transfer={"lr": "law"})
    assert with_best(asked, brief(swept)) == with_best(asked, swept)
    entry = {**brief(swept)["top_k"][1], "uri": swept.uri}
    made = with_best(asked, entry)
    assert made.carried is not None
    assert made.carried.best == swept.top(2)[1].config


def test_another_carried_config_is_another_training(swept: SweepOutcome) -> None:
    keys = {
        training_request(train(transfer=transfer), swept, "2026-11-28").run.key
        for transfer in ({"lr": "law"}, {"lr": "lr / 2"}, {"lr": "lr / 2", "act": "same"})
    }
    assert len(keys) == 2


def test_nothing_about_transfer_is_one_line_of_warning(
    swept: SweepOutcome, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "raysweep"):
        made = with_best(train(), swept)
        with_best(train(scale={"rows": 16000}), swept)
        with_best(train(transfer={"lr": "same"}), swept)
    (record,) = caplog.records
    scales = "the training has rows=64000, the sweep rows=16000"
    assert record.getMessage() == f"{scales}, and transfer is not set: act, lr, rounds are copied"
    assert swept.best is not None
    assert made.config == {**swept.best.config, "rows": 64000}


def test_without_scale_and_transfer_the_config_is_that_of_the_sweep(swept: SweepOutcome) -> None:
    assert swept.best is not None
    made = with_best(TrainSpec(trainable="m:f"), swept)
    assert made.config == swept.best.config
    assert made.carried is None
    assert "carried" not in made.to_dict()


def test_outcome_brief_and_card_have_both_configs(swept: SweepOutcome) -> None:
    made = with_best(train(transfer={"lr": "law"}), swept)
    plain = TrainOutcome(run_id="r", name="full", status="completed", started_at=0, ended_at=1)
    outcome = plain.model_copy(update={"carried": made.carried})
    told = brief(outcome)["carried"]
    assert told["best"] == made.carried.best
    assert told["config"] == made.config
    assert told["verdict"] == "carries"
    assert told["scales"] == [{"rows": 1000}, {"rows": 4000}, {"rows": 16000}]
    assert told["optima"]["lr"] == sorted(told["optima"]["lr"], reverse=True)
    assert make_card(made, outcome)["carried"] == told
    assert "carried: from rows=16000 to rows=64000: lr " in str(outcome)
    assert "carried" not in brief(plain)


@pytest.mark.parametrize(
    ("sweep", "training", "message"),
    [
        ({}, {"transfer": {"lr": "lr * scale.lines"}}, "train.transfer.lr: the training has no scale"),
        (
            {},
            {"transfer": {"lr": "lr * proxy.lines"}},
            "train.transfer.lr: no config has the scale 'proxy.lines'",
        ),
        ({}, {"transfer": {"lr": "lr / (scale.rows - 64000)"}}, "divides by zero"),
        ({}, {"transfer": {"lr": "lr * scale.rows"}}, "outside of its domain"),
        ({}, {"scale": {"row": 64000}}, "train.scale.row: the sweep has no scale 'row'"),
        ({}, {"scale": {"row": 3}, "transfer": {"lr": "law"}}, "no rule of transfer names it"),
        ({}, {"transfer": {"lrr": "same"}}, "train.transfer.lrr: 'lrr' is not in param_space"),
        ({}, {"transfer": {"act": "law"}}, "a category is carried by its best level over scales"),
        ({}, {"transfer": {"lr": "lr *"}}, "train.transfer.lr: 'lr *' is not an expression"),
        ({}, {"transfer": {"lr": 3}}, "train.transfer.lr: expected same, law or a rule, got 3"),
        ({}, {"transfer": "law"}, "train.transfer: expected parameters and how they are carried"),
        ({}, {"transfer": {"lr": "law"}, "scale": {}}, "train.transfer: requires the scale of the training"),
        (
            {},
            {"transfer": {"lr": "law"}, "config": {"lr": 1}},
            "'lr' is in config, which is trained as it is",
        ),
        ({}, {"config": {"rows": 3}}, "'rows' is 3 in config and 64000 in scale"),
        ({}, {"scale": {"workers": 3}}, "workers is 3, and scaling.num_workers 1"),
        (
            {"scales": (), "scale": {"rows": 1000}},
            {"transfer": {"lr": "law"}},
            "train.transfer.lr: a law needs two proxy scales or more, got 1",
        ),
        ({"scales": ()}, {"transfer": {"lr": "law"}}, "a law needs two proxy scales or more"),
    ],
)
def test_bad_input_is_one_line_before_anything_starts(
    sweep: dict[str, Any], training: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as raised:
        PipelineSpec.from_parts(SWEEP | sweep, TRAIN | training)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_scores_that_are_no_numbers_are_one_line(tmp_path: Path) -> None:
    def diverges(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return {"loss": config["lr"] if config["rows"] == 16000 else math.nan} if iteration == 1 else None

    _, outcome = store(tmp_path, diverges, **SWEEP | {"num_samples": 12})
    with pytest.raises(SpecError, match="all trials with a score have one scale"):
        with_best(train(transfer={"lr": "law"}), outcome)


def test_diverged_trials_count_as_bad(tmp_path: Path) -> None:
    def diverges(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        found = drifting(config, iteration)
        return {"loss": math.nan} if found is not None and config["lr"] > 0.2 else found

    failure = {"max_failures": 0, "breaker_trials": 0}
    _, outcome = store(tmp_path, diverges, **SWEEP | {"failure": failure})
    assert outcome.counts["failed"]
    made = with_best(train(transfer={"lr": "law"}), outcome)
    assert made.config["lr"] == pytest.approx(0.0125, rel=0.5)


def test_trials_that_asha_stopped_count_at_equal_steps(tmp_path: Path) -> None:
    def long(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        found = drifting(config, 1)
        return {"loss": found["loss"] + 1 / iteration} if found is not None and iteration <= 8 else None

    asha = {"asha": {"max_t": 8, "grace_period": 1, "reduction_factor": 2}}
    _, outcome = store(tmp_path, long, **SWEEP | {"scheduler": asha})
    assert outcome.counts["stopped"]
    made = with_best(train(transfer={"lr": "law"}), outcome)
    assert made.carried is not None
    assert made.carried.verdict == "carries"
    assert made.config["lr"] == pytest.approx(0.0125, rel=0.6)
