"""What a trial sees of CPUs and GPUs, in each isolation: threads, visible devices, processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.worker.host.cpus import VARIABLES
from tests.sampling import first_of

pytestmark = pytest.mark.ray
Run = Callable[..., rs.SweepOutcome]
ISOLATIONS = ["process", *(pytest.param(each, marks=pytest.mark.slow) for each in ("worker", "actor"))]


def counts_threads(config: dict[str, Any]) -> dict[str, Any]:
    import os

    import numpy  # noqa: F401  loads its pool
    import threadpoolctl
    import torch

    pools = {each["num_threads"] for each in threadpoolctl.threadpool_info()}
    return {
        "loss": 1.0,
        "variables": [os.environ.get(name) for name in VARIABLES],
        "torch": torch.get_num_threads(),
        "pools": sorted(pools),
    }


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_threads_follow_the_trials_cpus(run: Run, isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    outcome = run(counts_threads, isolation=isolation, resources={"cpu": 1}, num_samples=2)
    for trial in outcome.trials:
        assert trial.state == "completed", trial.error
        assert trial.metrics["variables"] == ["1"] * len(VARIABLES)
        assert trial.metrics["torch"] == 1
        assert trial.metrics["pools"] == [1]


def says_its_cpus(config: dict[str, Any]) -> dict[str, Any]:
    """Both trials run at once: each waits for the other."""
    import os
    import time

    mine, trial = Path(config["folder"]), rs.get_context().number
    (mine / str(trial)).touch()
    while len(list(mine.iterdir())) < 2:
        time.sleep(0.01)
    return {"loss": 1.0, "cpus": sorted(os.sched_getaffinity(0))}


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_pinned_trials_that_run_at_once_have_cpus_of_their_own(
    run: Run, isolation: str, tmp_path: Path
) -> None:
    (tmp_path / "seen").mkdir()
    outcome = run(
        says_its_cpus,
        {"folder": str(tmp_path / "seen")},
        isolation=isolation,
        resources={"cpu": 1, "pin_cpus": True},
        num_samples=2,
    )
    first, second = (trial.metrics["cpus"] for trial in outcome.trials)
    assert len(first) == len(second) == 1
    assert first != second


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_threads_that_the_user_has_set_stand(
    run: Run, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    (trial,) = run(counts_threads, isolation=isolation, resources={"cpu": 1}).trials
    assert trial.metrics["variables"] == ["2"] * len(VARIABLES)
    assert trial.metrics["torch"] == 2


START = """
    import json, os, sys
    import ray
    import raysweep as rs
    from raysweep.raycompat.patience import patient_start

    with patient_start():
        ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False,
                 _temp_dir=sys.argv[1])
    said = {}
"""

GPUS = """
    def train(config):
        gpus = os.environ.get("CUDA_VISIBLE_DEVICES")
        return {"loss": 1.0, "gpus": gpus, "pid": os.getpid()}

    CASES = {
        "none": {"cpu": 1},
        "one": {"gpu": 1},
        "half": {"gpu": 0.5, "cpu": 0.5},
        "two": {"gpu": 2},
        "of others": {"bundles": [{"CPU": 1}, {"GPU": 1}]},
    }
    for isolation in json.loads(sys.argv[3]):
        for case, resources in CASES.items():
            outcome = rs.run_sweep(
                dict(name=f"g-{isolation}-{case}", trainable=train, param_space={"x": 1}, metric="loss",
                     mode="min", num_samples=3, resources=resources, isolation=isolation,
                     storage_path=sys.argv[2]))
            assert outcome.counts == {"completed": 3}, (isolation, case, outcome.why)
            seen = [one.metrics for one in outcome.trials]
            said[f"{isolation} {case}"] = [[one["gpus"], one["pid"]] for one in seen]
    outcome = rs.run_sweep(
        dict(name="sized", trainable=train, param_space={"g": {"grid_search": [0, 1, 2, 0.5, 0]}},
             metric="loss", mode="min", resources={"cpu": 1, "by_config": {"gpu": "g"}},
             storage_path=sys.argv[2]))
    assert outcome.counts == {"completed": 5}, outcome.why
    said["sized"] = [one.metrics["gpus"] for one in outcome.trials]
    print(json.dumps(said))
"""


def run_with_gpus(script: str, folder: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    """What a script prints last, as JSON; it has a Ray of its own, with GPUs that only Ray knows."""
    path = folder / "script.py"
    path.write_text(textwrap.dedent(START) + textwrap.dedent(script))
    # Ray's sockets are in it: pytest's own folder has too long a path.
    with tempfile.TemporaryDirectory(prefix="rst-", dir="/tmp", ignore_cleanup_errors=True) as temporary:
        command = [sys.executable, str(path), temporary, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env=os.environ | variables
        )
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def put_driver(folder: Path) -> Path:
    """An `nvidia-smi`, as this machine may have none: a GPU is used until a second after its file changed.

    Returns: the folder of those files, named by number.
    """
    used = folder / "used"
    used.mkdir()
    look = f'$(find {used} -name GPU -newermt "1 second ago" -printf 5)000'
    rows = "".join(
        f'echo "{gpu}, GPU-{gpu}, {look.replace("GPU", str(gpu))}, 80000, H100"\n' for gpu in range(2)
    )
    program = folder / "driver" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{rows}")
    program.chmod(0o755)
    return used


GANG = """
    import os

    import torch
    import torch.distributed as dist

    chosen = []
    # There may be no GPU: these two stand in for it.
    torch.cuda.is_available = lambda: True
    torch.cuda.set_device = chosen.append

    def train(config):
        each = [None, None]
        dist.all_gather_object(each, (dist.get_backend(), os.environ["CUDA_VISIBLE_DEVICES"], *chosen))
        return {"loss": 1.0, "each": each}
"""


@pytest.mark.servers
@pytest.mark.timeout(600)
@pytest.mark.parametrize("isolations", first_of([[None], ["worker", "process", "actor"]]))
def test_each_trial_sees_its_gpus_and_no_other(isolations: list[str | None], tmp_path: Path) -> None:
    said = run_with_gpus(GPUS, tmp_path, str(tmp_path / "sweeps"), json.dumps(isolations))
    sized = [len([gpu for gpu in gpus.split(",") if gpu]) for gpus in said.pop("sized")]
    assert sized == [0, 1, 2, 1, 0], "as many as each config says"
    for isolation in isolations:
        seen = {case: [gpus for gpus, _ in said[f"{isolation} {case}"]] for case in ("none", "of others")}
        assert seen == {"none": [""] * 3, "of others": [""] * 3}, isolation
        for case in ("one", "half"):
            assert {gpus for gpus, _ in said[f"{isolation} {case}"]} <= {"0", "1"}, (isolation, case)
        assert {gpus for gpus, _ in said[f"{isolation} two"]} == {"0,1"}, isolation
        # By default, and wherever it is asked for, a trial with a GPU has a process of its own.
        for case in ("one", "half", "two") if isolation != "worker" else ():
            assert len({pid for _, pid in said[f"{isolation} {case}"]}) == 3, (isolation, case)


GANG_AND_MEMORY = """
    def lingers(config):
        import time
        from pathlib import Path

        gpu = os.environ["CUDA_VISIBLE_DEVICES"]
        used = Path(config["used"]) / gpu
        is_used = used.exists() and time.time() < used.stat().st_mtime + 1
        used.touch()
        return {"loss": 1.0, "is_used": is_used, "gpu": gpu}

    outcome = rs.run_sweep(
        dict(name="gang", trainable="gpu_gang:train", param_space={"x": 1}, metric="loss", mode="min",
             scaling={"num_workers": 2, "resources": {"cpu": 0, "gpu": 1}, "backend": "gloo"},
             storage_path=sys.argv[2]))
    assert outcome.counts == {"completed": 1}, outcome.why
    said["gang"] = outcome.trials[0].metrics

    def devices(config):
        total = rs.get_context().resources.get("GPU")
        return {"loss": 1.0, "gpus": os.environ["CUDA_VISIBLE_DEVICES"], "total": total}

    configs = [{"workers": w, "each": g} for w, g in json.loads(sys.argv[4])]
    space = {"workers": {"randint": [1, 9]}, "each": {"uniform": [0, 9]}}
    outcome = rs.run_sweep(
        dict(name="sized", trainable=devices, param_space=space, search={"configs": {"configs": configs}},
             metric="loss", mode="min", storage_path=sys.argv[2],
             scaling={"num_workers": 1, "resources": {"cpu": 0, "gpu": 0.5},
                      "by_config": {"num_workers": "workers", "resources": {"gpu": "each"}}}))
    said["sized"] = [[one.state, one.metrics or one.error.message] for one in outcome.trials]

    for isolation in ("process", "actor"):
        outcome = rs.run_sweep(
            dict(name=f"lingers-{isolation}", trainable=lingers, param_space={"used": sys.argv[3]},
                 metric="loss", mode="min", num_samples=3, max_concurrent_trials=1, resources={"gpu": 1},
                 isolation=isolation, storage_path=sys.argv[2]))
        assert outcome.counts == {"completed": 3}, (isolation, outcome.why)
        each = [one.metrics for one in outcome.trials]
        said[f"lingers {isolation}"] = {name: [one[name] for one in each] for name in ("is_used", "gpu")}
    print(json.dumps(said))
"""


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_each_rank_is_on_its_gpu_and_a_trial_begins_when_the_memory_of_the_last_one_is_free(
    tmp_path: Path,
) -> None:
    (tmp_path / "gpu_gang.py").write_text(textwrap.dedent(GANG))
    used = put_driver(tmp_path)
    path = f"{tmp_path / 'driver'}:{os.environ['PATH']}"
    sizes = [(1, 0.5), (1, 2), (2, 1), (1, 1.5), (1, 1)]
    said = run_with_gpus(
        GANG_AND_MEMORY, tmp_path, str(tmp_path / "sweeps"), str(used), json.dumps(sizes), PATH=path
    )
    ranks = said.pop("gang")["each"]
    assert [rank[0] for rank in ranks] == ["gloo"] * 2
    assert {rank[1] for rank in ranks} <= {"0,1", "1,0"}, "the GPUs of both"
    assert [rank[2:] for rank in ranks] == [[0], [1]], "each is on its own"
    sized = dict(zip(sizes, said["sized"], strict=True))
    state, why = sized.pop((1, 1.5))
    assert (state, "scaling.by_config.resources.gpu" in why) == ("failed", True), why
    for (workers, gpus), (state, seen) in sized.items():
        assert state == "completed", seen
        assert seen["total"] == workers * gpus
        assert len(seen["gpus"].split(",")) == (workers * gpus if gpus >= 1 else 1)
    for isolation in ("process", "actor"):
        lingers = said[f"lingers {isolation}"]
        assert lingers["is_used"] == [False] * 3, isolation
        assert len(set(lingers["gpu"])) < 3, "some GPU was used again"
