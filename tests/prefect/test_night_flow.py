"""The order of a night in `nightly_sweep`, its tasks called as functions; sweep and gate ended before it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest
from prefect.states import Completed, State

import raysweep as rs
from raysweep.hooks.model_registry import RegistrySpec
from raysweep.outcome import Decision
from raysweep.outcome.judgement import Judgement
from raysweep.pipeline.candidate import find_candidate
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.storage.objects.opening import open_store
from raysweep_prefect import flows, signals
from raysweep_prefect.flows import NightOutcome, nightly_sweep
from tests.engine import six_nights
from tests.orchestrators.prefect import PrefectOrchestrator
from tests.prefect.desk import Desk, store_training

TASKS = ("sweep", "told_gate", "approval_task", "train", "judge", "release", "register", "roll_back")


class Direct:
    """A task that is called without Prefect."""

    def __init__(self, task: Any, states: dict[str, State[Any]]) -> None:
        self._task, self._states = task, states

    def with_options(self, **_: Any) -> Direct:
        return self

    def __call__(self, *given: Any, return_state: bool = False, **more: Any) -> Any:
        result = self._task.fn(*given, **more)
        is_state = isinstance(result, State)
        state = result if is_state else Completed(data=result)
        self._states[self._task.name] = state
        return Ended(state) if return_state else state.data


class Ended:
    """A state with its result at hand."""

    def __init__(self, state: State[Any]) -> None:
        self.name, self.message, self._data = state.name, state.message, state.data

    def result(self) -> Any:
        return self._data


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, State[Any]]:
    """How each task ended."""
    found: dict[str, State[Any]] = {}
    for name in TASKS:
        monkeypatch.setattr(flows, name, Direct(getattr(flows, name), found))
    return found


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events."""
    found: list[str] = []
    monkeypatch.setattr(signals, "emit_event", lambda **event: found.append(event["event"]))
    return found


def run(parameters: dict[str, Any]) -> NightOutcome:
    given = nightly_sweep.validate_parameters(parameters)
    return nightly_sweep.fn(**given)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(cast(PrefectOrchestrator, None), tmp_path)


@pytest.mark.parametrize("approved", [True, False])
def test_what_is_decided_is_one_truth_in_tasks_champion_registry_and_evidence(
    approved: bool,
    desk: Desk,
    states: dict[str, State[Any]],
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wait(outcome: rs.SweepOutcome) -> None:
        candidate = find_candidate(signals.named_night(outcome))
        assert candidate is not None
        candidate.decide(Decision(approved=approved, by="ann", at=time.time()))

    monkeypatch.setattr(flows, "wait_for_decision", wait)
    night = run(desk.night("n1", approval={"timeout": 3600.0}))
    assert states["approval"].name == ("Approved" if approved else "Rejected")
    assert night.sweep.promoted is approved
    shelved = ["n1"] if approved else []
    assert desk.truth("n1") == ("n1" if approved else "", [("ann", approved)], shelved)
    assert night.registered == ("registered: version v-n1" if approved else "")
    champions = [each.rpartition(".")[2] for each in told if ".champion." in each]
    assert champions == ["proposed", *(["approved", "promoted"] if approved else ["rejected"])]


def test_a_training_too_late_is_skipped_and_a_rollback_reaches_the_registry(
    desk: Desk, states: dict[str, State[Any]], told: list[str]
) -> None:
    for key, score in (("n1", 2.0), ("n2", 1.0)):
        run(desk.night(key, score))
    ends = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() + 3600))
    training = store_training(desk.storage, "before", 86_400.0)
    night = run(desk.night("n2", 1.0, train_spec=training, deadline=ends))
    assert night.train is None
    assert night.skipped.startswith("training not begun: the one before took ")
    assert states["train"].name == "Skipped"
    registry = RegistrySpec.of(desk.night("n2", 1.0)["registry"])
    for changed in (True, False):
        shown = flows.roll_back("night", str(desk.storage), by="ann", why="slow", registry=registry)
        assert (shown["changed"], shown["champion"]["key"]) == (changed, "n1")
        assert shown["registry"] == "registered: version v-n1"
    assert desk.truth("n1") == ("n1", [], ["n1", "n1"])
    assert told.count("raysweep.champion.rolled_back") == 2, "with one id, which the server keeps once"


@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")
def test_a_night_carries_its_config_to_the_scale_of_the_training(
    tmp_path: Path, states: dict[str, State[Any]], told: list[str]
) -> None:
    spec = rs.SweepSpec(
        name="scaled",
        trainable="examples.quick:quadratic",
        param_space={"x": {"uniform": [0, 5]}},
        metric="loss",
        mode="min",
        num_samples=6,
        scales=[{"rows": 10}, {"rows": 20}, {"rows": 40}],
        isolation="inline",
        max_concurrent_trials=1,
        storage_path=str(tmp_path),
    )
    train = rs.TrainSpec(
        trainable="examples.quick:steps",
        config={"steps": 2},
        scale={"rows": 160},
        transfer={"x": "min(x * sqrt(scale.rows / proxy.rows), 4.999)"},
        bridge={"scale": {"rows": 80}},
        storage_path=str(tmp_path),
    )
    night = run({"spec": spec, "train_spec": train, "key": "n1"})
    assert night.train is not None
    assert night.sweep.best is not None
    carried = night.train.carried
    assert carried is not None
    assert carried.best == night.sweep.best.config
    assert carried.bridge is not None
    assert [(each.way, len(each.scores)) for each in carried.bridge.ran] == [("carried", 2), ("copied", 2)]
    copied = night.sweep.best.config["x"]
    x = min(copied * 2, 4.999) if carried.bridge.won == "carried" else copied
    assert night.train.config == {"x": x, "rows": 160, "steps": 2}
    assert night.sweep.best.scale == {"rows": 40}
    lawful = train.replace(bridge=None, transfer={"x": "law"}, name="lawful")
    again = run({"spec": spec, "train_spec": lawful, "key": "n1"})
    told = again.train.carried
    assert told is not None
    assert (told.best, told.config["rows"]) == (night.sweep.best.config, 160)
    assert told.verdict
    assert told.scales == [{"rows": 10}, {"rows": 20}, {"rows": 40}]
    assert len(told.optima["x"]) == 3
    assert again.train.predicted is not None


JUDGED = "tests.engine.judged"


def judged_night(storage: Path, key: str, gain: float, **fields: Any) -> NightOutcome:
    """A night whose config and model gain this."""
    spec = rs.SweepSpec(
        name="churn",
        trainable=f"{JUDGED}:search",
        param_space={"gain": {"grid_search": [gain]}},
        metric="auc",
        mode="max",
        isolation="inline",
        max_concurrent_trials=1,
        storage_path=str(storage),
    )
    data = storage / "holdout.json"
    data.write_text("0.0")
    train = rs.TrainSpec(trainable=f"{JUDGED}:train", storage_path=str(storage))
    judge = {"evaluate": f"{JUDGED}:score", "data": str(data), "metric": "auc", "mode": "max", "retries": 0}
    judge |= fields.pop("judge", {})
    given = {"spec": spec, "train_spec": train, "gate_spec": {"confirm_top_k": 1, "seeds": 2}, "key": key}
    return run({**given, "judge_spec": judge, **fields})


@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")
def test_only_what_the_judge_passes_is_released(
    tmp_path: Path, states: dict[str, State[Any]], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def champions() -> list[str]:
        found = [each.rpartition(".")[2] for each in told if ".champion." in each]
        told.clear()
        return found

    raised = judged_night(tmp_path, "n1", 0.002, judge={"evaluate": f"{JUDGED}:raising"})
    assert raised.judged is not None
    assert (raised.judged.reasons, raised.released) == (("no_figures",), False)
    assert champions() == ["proposed", "undecided"]
    assert (states["judge"].message or "").startswith("undecided: the evaluation of the new model failed")
    again = judged_night(tmp_path, "n1", 0.002)
    assert again.judged is not None
    assert (again.judged.verdict, again.released) == ("passed", True)
    assert champions() == ["proposed", "promoted"]
    assert again.train == raised.train

    def wait(outcome: rs.SweepOutcome, judgement: Judgement) -> Decision | None:
        candidate = find_candidate(signals.named_night(outcome), is_judged=True)
        assert candidate is not None
        return candidate.decide(Decision(approved=True, by="ann", at=time.time()))

    monkeypatch.setattr(flows, "wait_for_release", wait)  # the form needs a server: test_judged_nights.py
    better = judged_night(tmp_path, "n2", 0.01, approval={"after": "judge", "timeout": 3600.0})
    assert better.released is True
    assert champions() == ["proposed", "proposed", "approved", "promoted"]
    assert states["approval"].name == "Approved"
    record = read_champion(open_store(tmp_path), Line(name="churn", metric="auc", mode="max"))
    assert better.train is not None
    assert record.released is not None
    assert record.released.source == better.train.model_uri


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")
def test_of_nine_nights_the_three_good_ones_are_released(
    tmp_path: Path, states: dict[str, State[Any]], told: list[str]
) -> None:
    def play(night: six_nights.Night) -> six_nights.Ended:
        specs = {"spec": night.sweep, "gate_spec": night.gate, "train_spec": night.train}
        given = {name: dict(each) for name, each in (specs | {"judge_spec": night.judge}).items()}
        outcome = run({**given, "key": night.key})
        assert outcome.train is not None
        assert outcome.judged is not None
        verdict, reasons = outcome.judged.verdict, outcome.judged.reasons
        where = outcome.train.model_uri or ""
        return six_nights.Ended(verdict=verdict, reasons=reasons, released=outcome.released, model_uri=where)

    six_nights.six_bad_nights(play, tmp_path / "sweeps")
    assert told.count("raysweep.champion.promoted") == 3
