"""The three kinds of isolation: where user code runs, what it sees, what it shares."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.engine.conftest import wait_for

pytestmark = pytest.mark.ray
ROOT = Path(__file__).parents[2]
Run = Callable[..., rs.SweepOutcome]


def check_surroundings(outcome: rs.SweepOutcome, lines: list[list[str]]) -> None:
    assert outcome.counts == {"completed": len(outcome)}
    assert len(lines) == len(outcome)
    for trial in outcome.trials:
        seen = trial.metrics
        assert seen["is_main"] is True
        assert seen["gpus"] == ""
        assert seen["context"] == [trial.trial_id, 1, {"CPU": 1.0}]


def test_a_warm_worker_runs_its_trials_in_one_process(run: Run, lines: Callable[[], Any]) -> None:
    outcome = run("surroundings", num_samples=6, isolation="worker", max_concurrent_trials=1)
    check_surroundings(outcome, lines())
    assert len({trial.metrics["pid"] for trial in outcome.trials}) == 1
    assert [trial.metrics["calls"] for trial in outcome.trials] == [1, 2, 3, 4, 5, 6]
    assert len({trial.metrics["loaded_at"] for trial in outcome.trials}) == 1


def test_a_worker_with_a_limit_runs_so_many_trials(run: Run, lines: Callable[[], Any]) -> None:
    isolation = {"worker": {"max_trials": 2}}
    outcome = run("surroundings", num_samples=5, isolation=isolation, max_concurrent_trials=1)
    check_surroundings(outcome, lines())
    assert [trial.metrics["calls"] for trial in outcome.trials] == [1, 2, 1, 2, 1]
    assert len({trial.metrics["pid"] for trial in outcome.trials}) == 3
    assert not outcome.notes, "it was asked for"


def test_a_process_of_its_own_starts_from_what_the_module_loaded(run: Run, lines: Callable[[], Any]) -> None:
    outcome = run("surroundings", num_samples=6, isolation="process", max_concurrent_trials=1)
    check_surroundings(outcome, lines())
    assert len({trial.metrics["pid"] for trial in outcome.trials}) == 6
    assert {trial.metrics["calls"] for trial in outcome.trials} == {1}
    assert len({trial.metrics["loaded_at"] for trial in outcome.trials}) == 1


def test_a_fresh_actor_loads_the_module_again(run: Run, lines: Callable[[], Any]) -> None:
    outcome = run("surroundings", num_samples=3, isolation="actor", max_concurrent_trials=1)
    check_surroundings(outcome, lines())
    assert len({trial.metrics["pid"] for trial in outcome.trials}) == 3
    assert {trial.metrics["calls"] for trial in outcome.trials} == {1}
    assert len({trial.metrics["loaded_at"] for trial in outcome.trials}) == 3


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_trial_repeats_its_random_numbers_wherever_it_runs(isolation: str, run: Run) -> None:
    outcome = run("surroundings", num_samples=3, isolation=isolation, max_concurrent_trials=1)
    drawn = [(trial.metrics["random"], trial.metrics["numpy"]) for trial in outcome.trials]
    assert len(set(drawn)) == 3
    drawn_before = [
        (0.8711311774672734, 0.34328731574421456),
        (0.9934975078939172, 0.005283124802332839),
        (0.585219145762427, 0.6939542107708534),
    ]
    assert drawn == [pytest.approx(pair) for pair in drawn_before]


def test_user_code_in_a_worker_is_connected_to_ray_in_its_placement_group(run: Run) -> None:
    outcome = run("nested", resources={"bundles": [{"CPU": 1}, {"CPU": 1}]}, num_samples=1)
    (trial,) = outcome.trials
    assert trial.state == "completed", trial.error
    assert trial.metrics["task"] == trial.metrics["ours"]


def test_a_process_is_not_connected_to_ray(run: Run) -> None:
    (trial,) = run("is_connected", isolation="process").trials
    assert trial.metrics["connected"] is False


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_what_a_trial_starts_ends_with_it(isolation: str, run: Run, lines: Callable[[], Any]) -> None:
    assert run("leaves_children", isolation=isolation).counts == {"completed": 1}
    ((_, pid),) = lines()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or is_zombie(pid), 10)


def is_zombie(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
@pytest.mark.servers
def test_gpu_trials_get_a_process_and_a_gpu_each(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sys
        import ray
        import raysweep as rs

        def train(config):
            import os, time
            began = time.time()
            gpu = os.environ["CUDA_VISIBLE_DEVICES"]
            open(os.path.join(config["folder"], gpu), "w").close()
            # The first waits for one on the other GPU, whose worker may take its time to start.
            while len(os.listdir(config["folder"])) < 2 and time.time() < began + 60:
                time.sleep(0.05)
            time.sleep(0.5)
            return {"loss": 1.0, "gpu": gpu, "began": began, "ended": time.time(), "pid": os.getpid()}

        ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False,
                 _temp_dir=sys.argv[1])
        os.mkdir(sys.argv[3])
        spec = rs.SweepSpec(name="gpu", trainable=train,
                            param_space={"x": {"uniform": [0, 1]}, "folder": sys.argv[3]},
                            metric="loss", mode="min", num_samples=4, resources={"gpu": 1},
                            storage_path=sys.argv[2])
        assert spec.effective_isolation == "process"
        outcome = rs.run_sweep(spec)
        assert outcome.counts == {"completed": 4}, outcome.why
        seen = [trial.metrics for trial in outcome.trials]
        assert {one["gpu"] for one in seen} == {"0", "1"}, seen
        assert len({one["pid"] for one in seen}) == 4
        overlaps = sum(a["began"] < b["ended"] and b["began"] < a["ended"]
                       for a in seen for b in seen if a["gpu"] < b["gpu"])
        assert overlaps, seen
        apart = [(a, b) for a in seen for b in seen if a is not b and a["gpu"] == b["gpu"]]
        assert all(a["ended"] <= b["began"] or b["ended"] <= a["began"] for a, b in apart), seen
        ray.shutdown()
        """
    )
    # Ray's sockets are in it: pytest's own folder has too long a path.
    with tempfile.TemporaryDirectory(prefix="rst-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        arguments = [sys.executable, "-c", script, folder, str(tmp_path / "sweeps"), str(tmp_path / "gpus")]
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
