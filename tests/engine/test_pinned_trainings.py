"""`scaling.pin_cpus` on a real Ray Train run: the CPUs of each worker, and that they are free afterwards."""

from __future__ import annotations

import fcntl
import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.worker.host import pinning
from tests.engine.conftest import wait_for
from tests.sampling import first_of

pytest.importorskip("torch")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray_cluster"),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]


def says_its_cpus(config: dict[str, Any]) -> dict[str, Any]:
    """What the threads of each rank may run on, while all ranks are there; rank 1 may die first."""
    import torch.distributed as dist

    died = Path(config["died"])
    if config["dies"] and dist.get_rank() == 1 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    threads = [int(thread) for thread in os.listdir("/proc/self/task")]
    mine = sorted({tuple(sorted(os.sched_getaffinity(thread))) for thread in threads})
    of_all: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_all, mine)
    return {"cpus": of_all}


def free_cpus() -> int:
    """How many CPUs no process is pinned to, of those that one has been."""
    with ExitStack() as held:
        return sum(_is_free(path, held) for path in pinning.folder().iterdir())


def _is_free(path: Path, held: ExitStack) -> bool:
    lock = held.enter_context(path.open("rb"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("dies", first_of([False, True]))
def test_each_worker_of_a_training_has_cpus_of_its_own_until_it_ends(tmp_path: Path, dies: bool) -> None:
    spec = rs.TrainSpec(
        name="t",
        trainable=says_its_cpus,
        framework="torch",
        config={"died": str(tmp_path / "died"), "dies": dies},
        scaling={"num_workers": 2, "pin_cpus": True},
        failure={"max_failures": int(dies)},
        storage_path=str(tmp_path / "runs"),
    )
    outcome = rs.run_training(spec, key="k")
    assert (tmp_path / "died").exists() == dies
    (first,), (second,) = outcome.metrics["cpus"]
    assert len(first) == len(second) == 1
    assert first != second
    wait_for(lambda: free_cpus() >= 2, 30)
