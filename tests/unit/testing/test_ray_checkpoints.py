"""Checkpoints of others: Ray's objects go in and come out, and torch's sharded directories survive."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import RaysweepError
from raysweep.testing import FaultPlan, run_trial

ROOT = Path(__file__).parents[3]


def test_a_checkpoint_of_rays_is_taken_and_comes_back_as_one(tmp_path: Path) -> None:
    from ray.train import Checkpoint

    seen: list[Any] = []

    def train(config: dict[str, Any]) -> None:
        step, found = 0, rs.get_checkpoint()
        if found is not None:
            given = found.to_ray()
            assert isinstance(given, Checkpoint)
            with given.as_directory() as folder:
                step = json.loads((Path(folder) / "at.json").read_text())
            seen.append((step, given.get_metadata(), given.path))
            with found as again:
                assert str(again) == given.path, "the same directory, however it is asked for"
            assert Path(given.to_directory()).is_dir()
        for at in range(step + 1, 4):
            folder = tmp_path / f"mine-{at}"
            folder.mkdir(exist_ok=True)
            (folder / "at.json").write_text(str(at))
            made = Checkpoint.from_directory(str(folder))
            made.set_metadata({"by": "me"})
            rs.report({"loss": 1 / at}, checkpoint=made)
            assert (folder / "at.json").exists(), "a directory of the user's stays the user's"

    plan = FaultPlan(str(tmp_path / "plan")).fail_at(step=3)
    with plan.active():
        attempts = run_trial(train, {}, max_failures=1)
    plan.assert_fired()
    assert [attempt.end for attempt in attempts] == ["failed", "returned"], attempts[-1].error
    ((step, metadata, path),) = seen
    assert (step, metadata) == (2, {"by": "me"})
    assert not Path(path).exists(), "it is removed at the end of the attempt"


def test_tunes_checkpoint_is_the_same() -> None:
    from ray.train import Checkpoint
    from ray.tune import Checkpoint as TuneCheckpoint

    assert issubclass(TuneCheckpoint, Checkpoint)
    assert hasattr(TuneCheckpoint, "as_directory")


def test_a_checkpoint_of_rays_that_lies_elsewhere_is_fetched(tmp_path: Path) -> None:
    """Whatever storage it names: here a file system of pyarrow's other than the local one."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
    from ray.train import Checkpoint

    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "weights").write_bytes(b"w" * 1000)
    remote = Checkpoint("there", filesystem=SubTreeFileSystem(str(tmp_path), LocalFileSystem()))

    def train(config: dict[str, Any]) -> None:
        rs.report({"loss": 1.0}, checkpoint=remote)
        found = rs.get_checkpoint()
        assert found is not None
        with found as folder:
            rs.report({"loss": 0.5, "size": (folder / "weights").stat().st_size})

    (attempt,) = run_trial(train, {})
    assert attempt.error is None
    assert attempt.reports[-1]["size"] == 1000


def test_what_is_neither_a_directory_nor_rays_is_refused() -> None:
    def train(config: dict[str, Any]) -> None:
        with pytest.raises((RaysweepError, TypeError)):
            rs.report({"loss": 1.0}, checkpoint=3)  # type: ignore[arg-type]
        rs.report({"loss": 1.0})

    (attempt,) = run_trial(train, {})
    assert attempt.error is None


# -- torch ----------------------------------------------------------------------------------------------

SHARDED = """
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from raysweep.storage.checkpoints.store import CheckpointStore, restore_uri
from raysweep.storage.objects.opening import open_store

here = sys.argv[1]
folder = os.path.join(here, "sharded")
WHOLE = torch.arange(4096 * 64, dtype=torch.float32).reshape(4096, 64)


def save(rank, world):
    rendezvous = f"file://{os.path.join(here, 'rendezvous')}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world)
    sharded = distribute_tensor(WHOLE, init_device_mesh("cpu", (world,)), [Shard(0)])
    dcp.save({"weights": sharded, "step": 7, "bias": torch.ones(3)}, checkpoint_id=folder)
    dist.destroy_process_group()


# Two ranks, forked before torch has a thread: to import it takes seconds.
ranks = []
for rank in range(2):
    ranks.append(os.fork())
    if not ranks[-1]:
        code = 1
        try:
            save(rank, 2)
            code = 0
        finally:
            os._exit(code)
ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
assert ended == [0, 0], ended
assert len([name for name in os.listdir(folder) if name.endswith(".distcp")]) == 2
assert os.path.isfile(os.path.join(folder, ".metadata"))

checkpoints = CheckpointStore(open_store(os.path.join(here, "store")), "s")
first = checkpoints.save("00000", 0, folder)
again = checkpoints.save("00000", 1, folder, parent=first.manifest)
assert again.manifest.new_bytes == 0, "shards that did not change are stored again"
checkpoints.delete(first)

restore_uri(again.uri, os.path.join(here, "out"))
found = {"weights": torch.zeros(4096, 64), "step": 0, "bias": torch.zeros(3)}
dcp.load(found, checkpoint_id=os.path.join(here, "out"))
assert torch.equal(found["weights"], WHOLE)
assert (found["step"], found["bias"].tolist()) == (7, [1.0, 1.0, 1.0])
print("the same")
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_directory_of_torch_distributed_checkpoint_survives(tmp_path: Path) -> None:
    """Two ranks write their shards; who restores it, without them, loads it on one rank."""
    if importlib.util.find_spec("torch") is None:  # not imported: it takes seconds, and nobody here needs it
        pytest.skip("torch is not installed here")
    said = subprocess.run(
        [sys.executable, "-c", SHARDED, str(tmp_path)],
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (said.returncode, said.stdout.strip()) == (0, "the same"), said.stderr[-3000:]


def _environment() -> dict[str, str]:
    paths = [str(ROOT / "engine"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
