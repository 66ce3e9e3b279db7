"""Checkpoints of trainings on a real local Ray: shards, ways of reporting, restarts, earlier versions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import TrainingFailedError
from raysweep.runs.training import CHECKPOINT_OWNER
from raysweep.storage.checkpoints.store import CheckpointStore, open_checkpoint
from raysweep.training.worker_session import get_warm_start

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]
FROZEN_BYTES = 1_000_000


def shards(config: dict[str, Any]) -> dict[str, Any]:
    """Each worker reports a shard; they fail at the third report, once, and continue from the second."""
    import ray.train

    rank, mark = rs.get_context().rank, Path(config["mark"])
    frozen, step = bytes([rank]) * FROZEN_BYTES, 0
    found = ray.train.get_checkpoint()
    if found is not None:
        with found.as_directory() as folder:
            assert sorted(os.listdir(folder)) == ["shard-0", "shard-1"]
            step = json.loads((Path(folder) / f"shard-{rank}" / "step").read_text())
            assert (Path(found.path) / f"shard-{rank}" / "frozen").read_bytes() == frozen
    elif mark.exists():
        raise AssertionError("began again from nothing")
    while step < 4:
        step += 1
        if step == 3 and not mark.exists():
            if rank == 0:
                mark.touch()
            raise RuntimeError("once")
        with rs.new_checkpoint() as top:
            folder = top / f"shard-{rank}"
            folder.mkdir()
            (folder / "frozen").write_bytes(frozen)
            (folder / "step").write_text(json.dumps(step))
            if step % 2:
                rs.report({"step": step}, checkpoint=top)
            else:
                ray.train.report({"step": step}, checkpoint=ray.train.Checkpoint.from_directory(top))
    newest = rs.get_checkpoint()
    assert newest is not None
    with newest as top:
        return {"seen": [json.loads((top / f"shard-{each}" / "step").read_text()) for each in (0, 1)]}


def warm(config: dict[str, Any]) -> dict[str, Any]:
    """On one worker, from the shards of two."""
    start = get_warm_start()
    assert start is not None
    with start as top:
        return {"sizes": [(top / f"shard-{each}" / "frozen").stat().st_size for each in (0, 1)]}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_shards_of_two_workers_are_one_checkpoint_for_restarts_warm_starts_and_pull(tmp_path: Path) -> None:
    spec = rs.TrainSpec(
        name="shards",
        trainable="tests.engine.test_train_store:shards",
        config={"mark": str(tmp_path / "mark")},
        scaling={"num_workers": 2},
        failure={"max_failures": 1},
        storage_path=str(tmp_path / "runs"),
    )
    outcome = rs.run_training(spec, key="k")

    assert outcome.metrics == {"step": 4, "seen": [4, 4]}
    assert outcome.checkpoint_uri is not None
    assert outcome.model_uri is not None
    with open_checkpoint(outcome.checkpoint_uri) as restored:
        for top in (restored, Path(outcome.model_uri)):
            assert [(top / f"shard-{rank}" / "step").read_text() for rank in (0, 1)] == ["4", "4"]
    store = CheckpointStore.at(str(tmp_path / "runs"), outcome.run_id)
    assert len(store.numbers(CHECKPOINT_OWNER)) == 2
    stored = sum(info.size_bytes for info in store.store.list(f"{outcome.run_id}/checkpoints"))
    assert stored < 2 * FROZEN_BYTES + 20_000  # what never changed, once

    from_it = spec.model_copy(update={"warm_start_checkpoint": outcome.checkpoint_uri, "name": "warm"})
    from_it = rs.TrainSpec.from_any(
        from_it.to_dict() | {"trainable": "tests.engine.test_train_store:warm", "scaling": {"num_workers": 1}}
    )
    assert rs.run_training(from_it, key="k").metrics == {"sizes": [FROZEN_BYTES] * 2}


def named(config: dict[str, Any]) -> None:
    """Stores folders under names of its own; the second attempt continues from the last one."""
    import ray.train

    found, begin = rs.get_checkpoint(), 0
    if found is not None:
        with found as folder:
            begin = int((folder / "step").read_text())
    for step in range(begin + 1, 4):
        with rs.new_checkpoint() as folder:
            (folder / "step").write_text(str(step))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"step": step}, checkpoint=checkpoint, checkpoint_dir_name=f"mine_{step}")
        if step == 2 and Path(config["fails"]).exists():
            raise RuntimeError("as it should")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_plain_folders_that_user_code_names_are_checkpoints_and_the_model(tmp_path: Path) -> None:
    fails = tmp_path / "fails"
    fails.touch()
    spec = rs.TrainSpec(
        name="plain",
        trainable=named,
        config={"fails": str(fails)},
        failure={"max_failures": 0},
        storage_path=str(tmp_path / "runs"),
    )
    with pytest.raises(TrainingFailedError, match="as it should"):
        rs.run_training(spec, key="k")
    fails.unlink()
    seen: list[int] = []
    outcome = rs.run_training(spec, key="k", on_progress=lambda each: seen.append(each.metrics["step"]))
    assert (outcome.resumed, seen) == (True, [3])
    assert outcome.model_uri == f"{outcome.uri}/mine_3"
    assert (Path(outcome.model_uri) / "step").read_text() == "3"
    with open_checkpoint(outcome.checkpoint_uri or "") as folder:
        assert (folder / "step").read_text() == "3"
