"""`address="local"`: sweep, gate and training in the process of the task. Airflow itself is put aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from raysweep.cluster.ray.connection import connect
from raysweep.runs.across_runs.champions import Line, read_champion, read_records
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import GateOperator, JudgeOperator, SweepOperator, TrainOperator
from tests.airflow.contexts import BEST, Store, context_of
from tests.engine.six_nights import Ended, Night, six_bad_nights

pytestmark = [
    pytest.mark.ray,
    pytest.mark.servers,
    pytest.mark.timeout(600),
    # Of Ray Train, in this process.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]
JUDGED = "tests.engine.judged"


@pytest.fixture(scope="module")
def embedded_ray() -> Iterator[None]:
    with connect(num_cpus=2):
        yield


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    return {
        "name": "local",
        "trainable": "examples.quick:quadratic",
        "param_space": {"x": {"uniform": [0, 5]}},
        "metric": "loss",
        "mode": "min",
        "num_samples": 4,
        "storage_path": str(tmp_path),
    }


def test_sweep_gate_and_training(embedded_ray: None, spec: dict[str, Any], tmp_path: Path) -> None:
    with DAG("d", schedule=None):
        sweep = SweepOperator(task_id="sweep", spec=spec, address="local", outlets=[BEST])
    context = context_of(sweep)
    outcome = sweep.execute(context)
    assert outcome["counts"] == {"completed": 4}
    assert context["outlet_events"][BEST].extra["best"] == outcome["best"]
    assert context["task_state_store"]["raysweep_outcome"]["status"] == "completed"
    with DAG("d", schedule=None):
        gate = GateOperator(
            task_id="gate",
            spec=spec,
            outcome=outcome,
            address="local",
            gate={"confirm_top_k": 1, "seeds": 1, "test": "mean"},
        )
    promoted = gate.execute(context_of(gate))
    assert promoted["promoted"] is True
    assert gate.execute(context_of(gate)) == promoted, "a gate that has decided decides the same again"
    train = {"trainable": "examples.quick:steps", "config": {"steps": 2}, "storage_path": str(tmp_path)}
    with DAG("d", schedule=None):
        trained = TrainOperator(task_id="train", spec=train, outcome=promoted, address="local")
        skipped = TrainOperator(task_id="skip", spec=train, outcome=promoted | {"promoted": False})
    result = trained.execute(context_of(trained))
    assert result["status"] == "completed"
    assert result["config"] == {**outcome["best"]["config"], "steps": 2}
    with pytest.raises(AirflowSkipException, match=r"training skipped: promoted: .*there was no champion"):
        skipped.execute(context_of(skipped))


def test_a_small_sweep_and_its_gate_need_no_ray(spec: dict[str, Any], tmp_path: Path) -> None:
    with DAG("d", schedule=None):
        sweep = SweepOperator(task_id="sweep", spec=spec, address="here")
    outcome = sweep.execute(context_of(sweep))
    assert outcome["counts"] == {"completed": 4}
    settings = {"confirm_top_k": 1, "seeds": 1, "test": "mean"}
    train = {"trainable": "examples.quick:steps", "config": {"steps": 2}, "storage_path": str(tmp_path)}
    with DAG("d", schedule=None):
        gate = GateOperator(task_id="gate", spec=spec, outcome=outcome, address="here", gate=settings)
        trained = TrainOperator(task_id="train", spec=train, outcome=outcome, address="here")
    assert gate.execute(context_of(gate))["promoted"] is True
    with pytest.raises(AirflowFailException, match="a training is a run of Ray Train"):
        trained.execute(context_of(trained))


def judged_night(key: str, storage: Path, gain: float, **training: Any) -> dict[str, Any]:
    """A night of sweep, gate, training and judge, whose model gains this."""
    (data := storage / "holdout.json").write_text("0.0")
    sweep = {
        "name": "churn",
        "trainable": f"{JUDGED}:search",
        "param_space": {"gain": {"grid_search": [gain]}},
        "metric": "auc",
        "mode": "max",
        "storage_path": str(storage),
        "isolation": "inline",
        "max_concurrent_trials": 1,
    }
    train = {"trainable": f"{JUDGED}:train", "config": training, "storage_path": str(storage)}
    judge = {"evaluate": f"{JUDGED}:score", "data": str(data), "metric": "auc", "mode": "max"}
    gate = {"confirm_top_k": 1, "seeds": 2}
    return played(Night(key=key, sweep=sweep, gate=gate, train=train, judge=judge))


def played(night: Night) -> dict[str, Any]:
    """The judge's result, after all tasks of a night, each by what those before it handed on."""
    with DAG("judged", schedule=None) as dag:
        sweep = SweepOperator(task_id="sweep", address="local", spec=dict(night.sweep))
        how: dict[str, Any] = {"spec": dict(night.sweep), "address": "local"}
        gate = GateOperator(task_id="gate", outcome=sweep.output, gate=dict(night.gate), **how)
        train = TrainOperator(task_id="train", address="local", outcome=gate.output, spec=dict(night.train))
        JudgeOperator(
            task_id="judge", outcome=gate.output, trained=train.output, judge=dict(night.judge), **how
        )
    made: dict[str, Any] = {}
    for name, upstream in (("sweep", {}), ("gate", {"outcome": "sweep"}), ("train", {"outcome": "gate"})):
        handed = {each: made[of] for each, of in upstream.items()}
        made[name] = _executed(dag.get_task(name), night.key, handed)
    judge, handed = dag.get_task("judge"), {"outcome": made["gate"], "trained": made["train"]}
    judged = _executed(judge, night.key, handed)
    if judged["released"]:
        assert _executed(judge, night.key, handed) == judged, "a model that is released is not judged again"
    return judged


def _executed(operator: Any, key: str, handed: dict[str, Any]) -> dict[str, Any]:
    for name, value in handed.items():
        setattr(operator, name, value)
    context = context_of(operator)
    context["ti"].run_id = key
    result: dict[str, Any] = operator.execute(context)
    return result


def test_a_judge_releases_what_passed_and_nothing_else(embedded_ray: None, tmp_path: Path) -> None:
    first = judged_night("n1", tmp_path, 0.002)
    assert (first["released"], first["judgement"]["reasons"]) == (True, ["first"])
    shuffled = judged_night("n2", tmp_path, 0.004, shuffled=True)
    assert (shuffled["released"], shuffled["judgement"]["reasons"]) == (False, ["not_better"])
    better = judged_night("n3", tmp_path, 0.01)
    assert (better["released"], better["judgement"]["test"]) == (True, "permutation")
    record = read_champion(open_store(tmp_path), Line(name="churn", metric="auc", mode="max"))
    assert record.released is not None
    assert record.released.source == better["model_uri"]


@pytest.mark.slow
def test_of_nine_nights_the_three_good_ones_are_released(embedded_ray: None, tmp_path: Path) -> None:
    def play(night: Night) -> Ended:
        judged = played(night)
        verdict, reasons = judged["judgement"]["verdict"], tuple(judged["judgement"]["reasons"])
        where = judged["model_uri"]
        return Ended(verdict=verdict, reasons=reasons, released=judged["released"], model_uri=where)

    six_bad_nights(play, tmp_path / "sweeps")


def test_a_mistake_in_user_code_fails_for_good(
    embedded_ray: None, spec: dict[str, Any], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.touch()
    broken = spec | {
        "trainable": "tests.engine.trainables:always_raises",
        "param_space": spec["param_space"] | {"log": str(log)},
        "failure": {"max_failures": 0},
    }
    with DAG("d", schedule=None):
        sweep = SweepOperator(task_id="sweep", spec=broken, address="local", retries=3)
    with pytest.raises(
        AirflowFailException, match=r"ValueError: as asked second line \(trainables\.py:\d+ in"
    ):
        sweep.execute(context_of(sweep))


def test_a_command_is_swept_and_trained_without_a_trainable(
    embedded_ray: None, spec: dict[str, Any], tmp_path: Path
) -> None:
    """Braces of one kind are raysweep's, of two Airflow's."""
    emit = "raysweep emit loss=$2 --checkpoint $RAYSWEEP_OUTPUT_DIR"
    command = ["bash", "-c", emit, "{{ task.task_id }}", "--x", "{x}"]
    del spec["trainable"]
    with DAG("d", schedule=None):
        sweep = SweepOperator(task_id="sweep", spec=spec | {"command": command}, address="local")
    outcome = sweep.execute(context_of(sweep))
    assert outcome["counts"] == {"completed": 4}
    train = {"command": command, "storage_path": str(tmp_path)}
    with DAG("d", schedule=None):
        trained = TrainOperator(task_id="train", spec=train, outcome=outcome, address="local")
    result = trained.execute(context_of(trained))
    assert result["status"] == "completed"
    assert result["metrics"] == {"loss": outcome["best"]["config"]["x"]}


@pytest.mark.slow
def test_a_cleared_sweep_that_finds_more_is_gated_and_trained_anew(
    embedded_ray: None, spec: dict[str, Any], tmp_path: Path
) -> None:
    """Its budget ended it; cleared with more, and all behind it too, by the defaults of the operators."""
    go = tmp_path / "go"
    spec |= {
        "trainable": "tests.engine.trainables:waits_below_one",
        "param_space": {"x": {"grid_search": [3.0, 0.5]}, "go": str(go)},
        "num_samples": 1,
        "max_concurrent_trials": 1,
    }
    train = {"trainable": "examples.quick:steps", "config": {"steps": 1}, "storage_path": str(tmp_path)}
    stores: dict[str, Any] = {name: Store() for name in ("sweep", "gate", "train")}

    def night(budget_s: float, number: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        def run(operator: Any) -> dict[str, Any]:
            context = context_of(operator) | {"task_state_store": stores[operator.task_id]}
            context["ti"].try_number, context["ti"].max_tries = number, number - 1
            result: dict[str, Any] = operator.execute(context)
            return result

        with DAG("d", schedule=None):
            asked = spec | {"stop": {"time_budget_s": budget_s, "grace_s": 1}}
            sweep = run(SweepOperator(task_id="sweep", spec=asked, address="local", on_clear="resume"))
            settings = {"confirm_top_k": 1, "seeds": 1, "test": "mean"}
            gate = run(
                GateOperator(task_id="gate", spec=asked, outcome=sweep, address="local", gate=settings)
            )
            return sweep, gate, run(TrainOperator(task_id="train", spec=train, outcome=gate, address="local"))

    first, _, trained = night(20.0, 1)
    assert (first["status"], first["best"]["config"]["x"]) == ("budget", 3.0)
    assert trained["config"] == {"x": 3.0, "go": str(go), "steps": 1}
    go.touch()
    second, better, again = night(600.0, 2)
    assert (second["status"], second["best"]["config"]["x"]) == ("completed", 0.5)
    assert second["sweep_id"] == first["sweep_id"]
    assert (better["promoted"], better["best"]["config"]["x"]) == (True, 0.5)
    assert again["status"] == "completed"
    assert again["config"] == {"x": 0.5, "go": str(go), "steps": 1}
    assert again["run_id"] != trained["run_id"]
    assert night(600.0, 3) == (second, better, again), "cleared once more, nothing is run"


def test_a_config_is_carried_to_the_scale_of_the_training(
    embedded_ray: None, spec: dict[str, Any], tmp_path: Path
) -> None:
    spec |= {"num_samples": 9, "scales": [{"rows": 10}, {"rows": 20}, {"rows": 40}]}
    with DAG("d", schedule=None):
        sweep = SweepOperator(task_id="sweep", spec=spec, address="local")
    outcome = sweep.execute(context_of(sweep))
    best = outcome["best"]["config"]
    assert best["rows"] == 40
    with DAG("d", schedule=None):
        gate = GateOperator(
            task_id="gate",
            spec=spec,
            outcome=outcome,
            address="local",
            gate={"confirm_top_k": 2, "seeds": 1, "test": "mean"},
        )
    promoted = gate.execute(context_of(gate))
    assert promoted["best"]["config"]["rows"] == 40
    train = {
        "trainable": "examples.quick:steps",
        "config": {"steps": 2},
        "scale": {"rows": 160},
        "transfer": {"x": "min(x * sqrt(scale.rows / proxy.rows), 5)"},
        "bridge": {"scale": {"rows": 80}},
        "storage_path": str(tmp_path),
    }
    with DAG("d", schedule=None):
        trained = TrainOperator(task_id="train", spec=train, outcome=promoted, address="local")
    result = trained.execute(context_of(trained))
    handed = promoted["best"]["config"]
    assert result["carried"]["best"] == handed
    bridged = result["carried"]["bridge"]
    assert [each["way"] for each in bridged["ran"]] == ["carried", "copied"]
    assert bridged["ran"][1]["config"] == {**handed, "rows": 80}
    assert bridged["won"] in ("carried", "copied")
    x = min(handed["x"] * 2, 5.0) if bridged["won"] == "carried" else handed["x"]
    assert result["config"] == {"x": x, "rows": 160, "steps": 2}
    assert result["carried"]["config"] == result["config"]
    del train["bridge"]
    with DAG("d", schedule=None):
        lawful = TrainOperator(
            task_id="law", spec={**train, "transfer": {"x": "law"}}, outcome=promoted, address="local"
        )
    told = lawful.execute(context_of(lawful))
    carried = json.loads(json.dumps(told["carried"]))
    assert (carried["best"], carried["verdict"] != "") == (handed, True)
    assert {**carried["config"], "steps": 2} == told["config"]
    assert carried["scales"] == [{"rows": 10}, {"rows": 20}, {"rows": 40}]
    assert len(carried["optima"]["x"]) == 3
    [record], _ = read_records(open_store(tmp_path))
    recorded = [night.predicted for night in record.history if night.predicted is not None]
    assert [each.model_dump(mode="json") for each in recorded] == [told["predicted"]]
