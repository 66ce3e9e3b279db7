"""Trainings by framework, data set, limit and policy, on a real local Ray."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import InfeasibleResourcesError, SpecError, TrainingFailedError

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray_cluster"),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]

HALF = {"num_workers": 2, "resources": {"cpu": 0.5}}


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., rs.TrainSpec]:
    def make(trainable: Any, **fields: Any) -> rs.TrainSpec:
        fields = {
            "name": "t",
            "storage_path": str(tmp_path / "runs"),
            "failure": {"max_failures": 0},
            **fields,
        }
        return rs.TrainSpec(trainable=trainable, **fields)

    return make


@pytest.mark.slow
def test_xgboost_boosts_one_model_on_parts_of_a_data_set(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("xgboost")
    fields = rs.TrainSpec.from_file("examples/xgboost_train.yaml").to_dict()
    spec = rs.TrainSpec.from_any({**fields, "storage_path": str(tmp_path), "config": {"rounds": 10}})
    outcome = rs.run_training(spec, key="k")

    assert outcome.status == "completed"
    assert outcome.metrics["trees"] == 10  # two workers' trees would be 20
    assert outcome.metrics["rows"] == 1000
    assert outcome.metrics["rmse"] < 0.6
    assert (Path(outcome.model_uri or "") / "model.ubj").exists()
    card = json.loads((Path(outcome.uri) / "model_card.json").read_text())
    assert {"xgboost", "xgboost-cpu"} & set(card["versions"])
    assert outcome.usage is not None
    assert outcome.usage.cpu_hours > 0
    assert outcome.usage.active_s > 1
    assert capfd.readouterr() == ("", "")


def read_shards(config: dict[str, Any]) -> dict[str, Any]:
    """What this worker sees of both data sets, put beside what the others see."""
    import ray.train
    import ray.train.collective

    seen = {
        name: sorted(row["n"] for row in ray.train.get_dataset_shard(name).iter_rows())
        for name in ("train", "valid")
    }
    rank = ray.train.get_context().get_world_rank()
    (Path(config["folder"]) / f"{rank}.json").write_text(json.dumps(seen))
    return {"rows": len(seen["train"])}


def count_to(config: dict[str, Any]) -> Any:
    return ray.data.range(config["valid"]).rename_columns({"id": "n"})


@pytest.mark.slow
def test_files_are_shared_out_and_what_is_not_split_goes_to_all(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    import pandas as pd

    data = tmp_path / "data"
    data.mkdir()
    for part in range(4):
        pd.DataFrame({"n": range(part * 10, part * 10 + 10)}).to_parquet(data / f"{part}.parquet")
    spec = make_spec(
        read_shards,
        config={"folder": str(tmp_path), "valid": 6},
        datasets={"train": {"files": str(data)}, "valid": {"function": count_to, "split": False}},
        scaling=HALF,
    )
    outcome = rs.run_training(spec, key="k")
    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert sorted(seen[0]["train"] + seen[1]["train"]) == list(range(40))
    assert (len(seen[0]["train"]), len(seen[1]["train"])) == (20, 20)
    assert seen[0]["valid"] == seen[1]["valid"] == list(range(6))
    assert [(each.name, each.uri, each.has_changed) for each in outcome.data] == [("train", str(data), False)]


def test_workers_that_leave_ray_data_no_cpu_are_refused(make_spec: Callable[..., rs.TrainSpec]) -> None:
    spec = make_spec(read_shards, datasets={"train": count_to}, scaling={"num_workers": 2})
    with pytest.raises(InfeasibleResourcesError, match=r"datasets: .* leave 0 of 2; ask for fewer workers"):
        rs.run_training(spec, key="k")


def give_nothing(config: dict[str, Any]) -> dict[str, Any]:
    return {}


def test_a_data_set_that_cannot_be_made_is_named(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    missing = {"train": {"files": str(tmp_path / "no"), "format": "csv"}}
    with pytest.raises(SpecError, match=r"data\.train: there is nothing at"):
        rs.run_training(make_spec(read_shards, datasets=missing, scaling=HALF), key="a")
    spec = make_spec(read_shards, datasets={"train": give_nothing}, scaling=HALF)
    with pytest.raises(SpecError, match=r"datasets\.train: its function returned a dict; return a ray.data"):
        rs.run_training(spec, key="b")
    with pytest.raises(SpecError, match=r"datasets\.train: .* has no 'nobody'"):
        rs.run_training(
            make_spec(read_shards, datasets={"train": f"{__name__}:nobody"}, scaling=HALF), key="c"
        )


def cluster_of(config: dict[str, Any]) -> dict[str, Any]:
    """What TF_CONFIG says; TensorFlow itself is not needed for that."""
    return {"config": os.environ["TF_CONFIG"]}


def test_tensorflow_finds_the_other_workers(make_spec: Callable[..., rs.TrainSpec]) -> None:
    outcome = rs.run_training(make_spec(cluster_of, framework="tensorflow", scaling=HALF), key="k")
    found = json.loads(outcome.metrics["config"])
    assert found["task"] == {"type": "worker", "index": 0}
    assert len(set(found["cluster"]["worker"])) == 2


def make_trainer(loop: Any, **arguments: Any) -> Any:
    """A trainer of one's own: each worker has a variable."""
    from ray.train.backend import BackendConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    class Config(BackendConfig):
        @property
        def train_func_context(self) -> Any:
            from contextlib import contextmanager

            @contextmanager
            def around() -> Any:
                os.environ["MADE_BY"] = "me"
                yield

            return around

    return DataParallelTrainer(loop, backend_config=Config(), **arguments)


def make_none(loop: Any, **arguments: Any) -> Any:
    return None


def variable(config: dict[str, Any]) -> dict[str, Any]:
    return {"made_by": os.environ.get("MADE_BY")}


def test_a_trainer_of_ones_own(make_spec: Callable[..., rs.TrainSpec]) -> None:
    outcome = rs.run_training(make_spec(variable, framework=f"{__name__}:make_trainer"), key="k")
    assert outcome.metrics == {"made_by": "me"}
    with pytest.raises(
        SpecError, match=r"framework: .*:make_none' made a NoneType, no trainer of Ray Train V2"
    ):
        rs.run_training(make_spec(variable, framework=f"{__name__}:make_none"), key="k2")
    with pytest.raises(SpecError, match=r"framework: .* has no 'nobody'"):
        rs.run_training(make_spec(variable, framework=f"{__name__}:nobody"), key="k3")


# --- limits


def patient(config: dict[str, Any]) -> None:
    """Report each 0.1 s; a checkpoint only where one is asked for, or with `every`."""
    from raysweep.training.worker_session import train_rank

    rank, _ = train_rank()
    step, found = 0, rs.get_checkpoint()
    if found is not None:
        with found as folder:
            step = json.loads((folder / "step.json").read_text())
    while step < config.get("steps", 10_000):
        step += 1
        time.sleep(0.1)
        if config.get("saves", True) and (rs.should_checkpoint() or config.get("every")):
            with rs.new_checkpoint() as folder:
                (folder / "step.json").write_text(json.dumps(step))
                rs.report({"step": step}, checkpoint=folder if rank == 0 else None)
        else:
            rs.report({"step": step})


@pytest.mark.slow
def test_a_deadline_asks_for_a_checkpoint_and_that_is_the_model(
    make_spec: Callable[..., rs.TrainSpec],
) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=240)
    stop = {"deadline": deadline.isoformat(), "grace_s": 239}
    outcome = rs.run_training(make_spec(patient, scaling=HALF, stop=stop), key="k")
    assert (outcome.status, outcome.ended_by) == ("completed", "deadline")
    assert datetime.fromtimestamp(outcome.ended_at, UTC) < deadline  # once a checkpoint is stored it is over
    stored = json.loads((Path(outcome.model_uri or "") / "step.json").read_text())
    assert outcome.metrics == {"step": stored}
    assert stored >= 1
    assert rs.run_training(make_spec(patient, scaling=HALF, stop=stop), key="k") == outcome
    card = json.loads((Path(outcome.uri) / "model_card.json").read_text())
    assert card["ended_by"] == "deadline"


@pytest.mark.slow
def test_a_time_budget_counts_all_attempts_and_more_of_it_goes_on(
    make_spec: Callable[..., rs.TrainSpec],
) -> None:
    """Without a checkpoint a run that met its limit has failed; the same key with more continues."""
    spec = make_spec(patient, config={"saves": False}, stop={"time_budget_s": 4, "grace_s": 1})
    with pytest.raises(
        TrainingFailedError, match=r"stop\.time_budget_s came before the first checkpoint"
    ) as found:
        rs.run_training(spec, key="k")
    assert found.value.outcome.ended_by == "time_budget"
    used = found.value.outcome.usage
    assert used is not None
    assert used.active_s >= 4
    with pytest.raises(TrainingFailedError):  # nothing is left of it: it starts no worker
        rs.run_training(spec, key="k")
    more = spec.replace(config={"saves": False, "steps": 3}, stop={"time_budget_s": 300})
    with pytest.raises(rs.RaysweepError, match=r"config\.steps"):  # that is another training
        rs.run_training(more, key="k")
    with pytest.raises(TrainingFailedError) as again:
        rs.run_training(spec.replace(stop={"time_budget_s": used.active_s + 6, "grace_s": 1}), key="k")
    later = again.value.outcome.usage
    assert later is not None
    assert later.active_s >= used.active_s + 6


def test_a_deadline_that_has_passed_is_refused_before_anything_is_written(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=r"stop\.deadline: .* has passed"):
        rs.run_training(make_spec(patient, stop={"deadline": "2020-01-01T00:00:00+00:00"}), key="k")
    assert not list((tmp_path / "runs").rglob("*.json"))


# --- policies


def die_twice(config: dict[str, Any]) -> dict[str, Any]:
    marks = Path(config["marks"])
    marks.mkdir(exist_ok=True)
    tempfile.mkdtemp(dir=marks)
    if len(list(marks.iterdir())) <= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"starts": len(list(marks.iterdir())), "at": time.time()}


@pytest.mark.slow
def test_deaths_of_workers_have_a_number_of_their_own_and_a_pause(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    config = {"marks": str(tmp_path / "marks")}
    failure = {"max_failures": 0, "max_worker_deaths": 2, "backoff_initial_s": 1.5}
    began = time.time()
    outcome = rs.run_training(make_spec(die_twice, config=config, failure=failure), key="k")
    assert outcome.metrics["starts"] == 3
    assert outcome.metrics["at"] - began > 1.5 + 3.0
    spec = make_spec(
        die_twice, config={"marks": str(tmp_path / "b")}, failure={"max_failures": 0, "max_worker_deaths": 1}
    )
    with pytest.raises(TrainingFailedError, match="a worker died"):
        rs.run_training(spec, key="k2")
