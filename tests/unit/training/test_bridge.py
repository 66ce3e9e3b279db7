"""The bridge of a training: what runs at a scale between, what wins, and what is trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecChangedError, SpecError
from raysweep.outcome import SweepOutcome
from raysweep.pipeline.night import training_request
from raysweep.runs.training import RunFolder
from raysweep.simulate import simulate
from raysweep.specs import RunRequest, TrainSpec
from raysweep.specs.carried import CarriedConfig
from raysweep.specs.outline import outline, outline_changes
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store
from raysweep.training.bridge import Bridge, bridge_of, decided_spec
from tests.begun_trainings import begin_training
from tests.unit.pages.sweeps import store
from tests.unit.training.drifting import SWEEP, drifting

Curve = Callable[[dict[str, Any], int], dict[str, Any] | None]
TRAIN: dict[str, Any] = {
    "trainable": "m:f",
    "name": "full",
    "scale": {"rows": 256000},
    "transfer": {"lr": "law", "rounds": "law"},
    "bridge": {"scale": {"rows": 64000}},
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepOutcome:
    folder, _ = store(tmp_path_factory.mktemp("swept"), drifting, **SWEEP)
    outcome = folder.read_outcome()
    assert outcome is not None
    return outcome


def asked(swept: SweepOutcome, **fields: Any) -> RunRequest[TrainSpec]:
    spec = TrainSpec.model_validate(TRAIN | {"storage_path": swept.uri.rpartition("/")[0]} | fields)
    return training_request(spec, swept, "n1")


def run(bridge: Bridge, curve: Curve = drifting, **changes: Any) -> CarriedConfig:
    """What a bridge decides whose trials have this curve, simulated."""
    configs = bridge.ways()
    spec = bridge.sweep_request(configs).spec
    ended = simulate({**spec.to_dict(), **changes}, curve, slots=2, step_s=1.0).outcome
    return bridge.settle(configs, ended)


def test_four_ways_run_at_the_scale_between_and_the_carried_one_stays(swept: SweepOutcome) -> None:
    request = asked(swept)
    bridge = bridge_of(request)
    configs = bridge.ways()
    assert list(configs) == ["carried", "copied", "lower", "upper"]
    assert {config["rows"] for config in configs.values()} == {64000}
    assert swept.best is not None
    assert configs["copied"] == {**swept.best.config, "rows": 64000}
    carried = configs["carried"]
    assert configs["lower"]["lr"] < carried["lr"] < configs["upper"]["lr"]
    made = run(bridge)
    assert made.bridge is not None
    assert (made.bridge.won, made.bridge.scale) == ("carried", {"rows": 64000})
    assert [len(each.scores) for each in made.bridge.ran] == [2, 2, 2, 2]
    assert made.config["rows"] == 256000
    # The law of all trials, those at 64,000 rows too, knows the optimum at 256,000 better.
    before = request.spec.carried
    assert before is not None
    assert before.score_low is not None
    assert before.score_high is not None
    assert made.score_low is not None
    assert made.score_high is not None
    assert made.score_high - made.score_low < before.score_high - before.score_low
    assert made.bridge.asked["carried"]["score"] == before.score


def test_the_sweep_of_a_bridge_has_the_key_and_the_limits_of_its_training(swept: SweepOutcome) -> None:
    stop = {"deadline": "2099-01-01T06:00:00Z", "time_budget_s": 100}
    request = asked(swept, stop=stop, bridge={"scale": {"rows": 64000}, "seeds": 3})
    bridge = bridge_of(request)
    found = bridge.sweep_request(bridge.ways())
    assert found == bridge.sweep_request(bridge.ways())
    assert found.run.key.startswith(f"{request.run.key}/bridge-")
    assert found.spec.name == "full-bridge"
    assert found.spec.stop.deadline == request.spec.stop.deadline
    assert found.spec.stop.time_budget_s == 50
    assert found.spec.num_samples == 12
    assert found.spec.scale == {"rows": 64000}


def turned(good: dict[str, Any]) -> Curve:
    """The nearer a config is to this one, the better."""

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return None if iteration > 1 else {"loss": abs(math.log(config["lr"] / good["lr"]))}

    return curve


@pytest.mark.parametrize("way", ["copied", "lower", "upper"])
def test_what_beats_the_carried_config_is_trained(way: Any, swept: SweepOutcome) -> None:
    request = asked(swept)
    bridge = bridge_of(request)
    made = run(bridge, turned(bridge.ways()[way]))
    assert made.bridge is not None
    assert made.bridge.won == way
    assert "better than carried by" in made.bridge.why
    assert made.is_predicted, "the law of all trials knows what is trained"
    before = request.spec.carried
    assert before is not None
    assert swept.best is not None
    if way == "copied":
        assert made.config == {**swept.best.config, "rows": 256000}
    else:
        sign = 1 if way == "upper" else -1
        assert sign * made.config["lr"] > sign * before.config["lr"]


def test_noise_does_not_unseat_the_carried_config(swept: SweepOutcome) -> None:
    seen: list[float] = []

    def noisy(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        if iteration > 1:
            return None
        seen.append((len(seen) * 0.618) % 1)
        return {"loss": seen[-1]}

    made = run(bridge_of(asked(swept)), noisy)
    assert made.bridge is not None
    assert made.bridge.won == "carried"
    assert all(each.error for each in made.bridge.ran[1:])


def test_where_no_trial_has_a_score_the_copied_config_is_trained(swept: SweepOutcome) -> None:
    def broken(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        raise ValueError("out of memory at this scale")

    made = run(bridge_of(asked(swept)), broken)
    assert made.bridge is not None
    assert made.bridge.won == "copied"
    assert "out of memory at this scale" in made.bridge.why
    assert swept.best is not None
    assert made.config == {**swept.best.config, "rows": 256000}


def test_where_only_the_carried_config_fails_the_copied_one_is_to_be_beaten(swept: SweepOutcome) -> None:
    bridge = bridge_of(asked(swept))
    carried = bridge.ways()["carried"]["lr"]

    def broken(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        if config["lr"] == carried:
            raise ValueError("diverged")
        return None if iteration > 1 else {"loss": 1.0}

    made = run(bridge, broken)
    assert made.bridge is not None
    assert made.bridge.won == "copied"
    assert made.bridge.why.startswith("the carried config has no scores of 2 seeds")


def test_own_values_of_the_training_stay(swept: SweepOutcome) -> None:
    bridge = bridge_of(asked(swept, config={"act": "gelu", "device": "gpu"}))
    made = run(bridge, turned(bridge.ways()["copied"]))
    assert (made.config["act"], made.config["device"]) == ("gelu", "gpu")


def test_rules_alone_have_two_ways_and_one_where_they_agree(swept: SweepOutcome) -> None:
    bridge = bridge_of(asked(swept, transfer={"lr": "lr / sqrt(scale.rows / proxy.rows)"}))
    assert list(bridge.ways()) == ["carried", "copied"]
    made = run(bridge)
    assert made.bridge is not None
    assert made.bridge.won == "carried"
    assert bridge_of(asked(swept, transfer={"lr": "lr"})).run(None).bridge is not None


def test_the_first_part_of_the_full_run(swept: SweepOutcome) -> None:
    def long(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        first = drifting(config, 1)
        return None if iteration > 20 or first is None else {"loss": first["loss"] + 1 / iteration}

    bridge = bridge_of(asked(swept, bridge={"until": {"training_iteration": 3}}))
    spec = bridge.sweep_request(bridge.ways()).spec
    assert spec.scale == {"rows": 256000}
    ended = simulate(spec.to_dict(), long, slots=2, step_s=1.0).outcome
    assert {trial.metrics["training_iteration"] for trial in ended.trials} == {3}
    made = bridge.settle(bridge.ways(), ended)
    assert made.bridge is not None
    assert made.bridge.won == "carried"


def test_the_training_has_what_the_bridge_left_of_its_time(swept: SweepOutcome) -> None:
    request = asked(swept, stop={"deadline": "06:00 Europe/Berlin", "time_budget_s": 100})
    made = run(bridge_of(request), stop={})
    assert made.bridge is not None
    assert made.bridge.active_s > 0
    spec = decided_spec(request.spec, made)
    assert spec.stop.time_budget_s == pytest.approx(100 - made.bridge.active_s)
    assert spec.stop.deadline is not None
    assert not isinstance(spec.stop.deadline, str), "it counts from when the bridge began"
    assert spec.config == made.config


def test_a_retry_is_the_same_training_and_another_spec_is_not(swept: SweepOutcome, tmp_path: Path) -> None:
    request = asked(swept)
    bridge = bridge_of(request)
    spec = decided_spec(request.spec, run(bridge, turned(bridge.ways()["upper"])))
    assert spec.config != request.spec.config
    folder = RunFolder(open_store(str(tmp_path)), request.run.id)
    begin_training(folder, spec, request.run.key)
    folder.check_spec(request.spec)
    folder.check_spec(spec)
    assert folder.read_spec() == spec
    assert not outline_changes(outline(spec), outline(request.spec)).unsafe
    other = request.spec.replace(config={**request.spec.config, "act": "gelu"})
    with pytest.raises(SpecChangedError, match=r"config\.act"):
        folder.check_spec(other)


def test_what_the_bridge_did_is_on_the_line(swept: SweepOutcome) -> None:
    made = run(bridge_of(asked(swept)))
    assert "; bridge at rows=64000: carried won: no other config beats carried" in made.line
    assert CarriedConfig.model_validate(made.model_dump(mode="json")) == made


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"bridge": {"scale": {"rows": 8000}}}, r"bridge.scale.rows: 8000 is not between the sweep's 16000"),
        ({"bridge": {"scale": {"rows": 300000}}}, r"bridge.scale.rows: 300000 is not between"),
        ({"bridge": {"scale": {"rows": 16000}}}, r"bridge.scale: rows=16000 is the scale of the sweep"),
        ({"bridge": {"scale": {"rows": 256000}}}, r"bridge.scale: rows=256000 is the scale of the training"),
        ({"bridge": {"scale": {"row": 64000}}}, r"bridge.scale.row: .*no such scale; did you mean 'rows'"),
        ({"bridge": {"scale": {"rows": 64000}, "seeds": 0}}, r"bridge.seeds: .* 2"),
        ({"bridge": {"scale": {"rows": 64000}, "seeds": 1}}, r"bridge.seeds: .* 2"),
        ({"bridge": {"seeds": 2}}, r"bridge: requires one of scale and until"),
        ({"bridge": {"scale": {"rows": 64000}, "until": {"loss": 1}}}, r"requires one of scale and until"),
        ({"transfer": {}}, r"bridge: requires transfer"),
        ({"bridge": {"scale": {"rows": "many"}}}, r"bridge.scale.rows: expected a number > 0, got 'many'"),
    ],
)
def test_bad_input_is_one_line_before_anything_runs(fields: dict[str, Any], match: str) -> None:
    train = {name: value for name, value in (TRAIN | fields).items() if value}
    with pytest.raises(SpecError, match=match) as error:
        PipelineSpec.from_parts(SWEEP, train)
    assert "\n" not in str(error.value)


def test_a_sweep_without_a_scale_has_no_bridge() -> None:
    sweep = {name: value for name, value in SWEEP.items() if name != "scales"}
    with pytest.raises(SpecError, match=r"bridge: the sweep names no scale"):
        PipelineSpec.from_parts(sweep, TRAIN | {"transfer": {"lr": "lr / 2"}})
