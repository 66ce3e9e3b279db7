"""The training step on a real local Ray: resume by key, finished runs, frameworks, warm starts, refusals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import (
    CheckpointDamagedError,
    InfeasibleResourcesError,
    SpecChangedError,
    StorageNotWritableError,
    SweepInterrupted,
    TrainableImportError,
    TrainingFailedError,
)
from raysweep.raycompat.tokens import is_open
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.sweep_claim import find_holder
from raysweep.storage.checkpoints.store import CheckpointStore, open_checkpoint
from raysweep.storage.objects.opening import open_store
from raysweep.training import TrainProgress
from tests.engine.trainings import (
    actors_alive,
    actors_of_earlier_tests,  # noqa: F401  a fixture for each test
    spec_maker,
)

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., rs.TrainSpec]:
    return spec_maker(tmp_path)


@pytest.mark.usefixtures("ray_cluster")
def test_two_workers_report_checkpoint_and_leave_nothing_behind(
    make_spec: Callable[..., rs.TrainSpec], capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[TrainProgress] = []
    spec = make_spec(scaling={"num_workers": 2}, config={"steps": 5, "start": 16.0})
    outcome = rs.run_training(spec, key="k", on_progress=seen.append)

    assert outcome.status == "completed"
    assert outcome.metrics == {"loss": 0.5, "step": 5}
    assert not outcome.resumed
    assert [progress.metrics["step"] for progress in seen] == [1, 2, 3, 4, 5]
    assert outcome.model_uri is not None
    assert json.loads((Path(outcome.model_uri) / "at.json").read_text()) == outcome.metrics
    with open_checkpoint(outcome.checkpoint_uri or "") as restored:
        assert json.loads((restored / "at.json").read_text()) == outcome.metrics
    card = json.loads((Path(outcome.uri) / "model_card.json").read_text())
    assert (card["model_uri"], card["metrics"]) == (outcome.model_uri, outcome.metrics)
    assert card["versions"]["ray"] == ray.__version__
    assert actors_alive() == 0
    deadline = time.monotonic() + 20
    while ray.available_resources().get("CPU") != 2:  # Ray says so a moment later
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_finished_run_is_returned_at_once_and_another_spec_is_refused(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    marks = tmp_path / "marks"

    def once(config: dict[str, Any]) -> dict[str, float]:
        with marks.open("a") as file:
            file.write("x")
        return {"loss": config["lr"]}

    spec = make_spec(once, config={"lr": 0.5})
    first = rs.run_training(spec, key="k")
    started = time.monotonic()
    assert rs.run_training(spec, key="k") == first
    assert time.monotonic() - started < 5
    assert first.metrics == {"loss": 0.5}
    assert marks.read_text() == "x"

    with pytest.raises(SpecChangedError, match=r"config\.lr: 0\.5 -> 0\.6"):
        rs.run_training(make_spec(once, config={"lr": 0.6}), key="k")
    assert rs.run_training(make_spec(once, config={"lr": 0.5}, tags={"a": "b"}), key="k") == first


@pytest.mark.servers
def test_a_killed_run_goes_on_from_its_newest_checkpoint(
    address: str, make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    """The driver is killed with SIGKILL amid its run; a second call with the same key ends the run."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
            import json, sys, tempfile, time
            from pathlib import Path
            import raysweep as rs

            def walk(config):
                found = rs.get_checkpoint()
                step = 0
                if found is not None:
                    with found as folder:
                        step = json.loads((folder / "step.json").read_text())
                with open(config["log"], "a") as log:
                    log.write(f"from {step}\\n")
                while step < 12:
                    step += 1
                    if found is None:  # the first run is killed: its sixth step lasts until then
                        time.sleep(config["pause_s"] if step < 6 else 60)
                    with tempfile.TemporaryDirectory() as folder:
                        (Path(folder) / "step.json").write_text(json.dumps(step))
                        rs.report({"step": step}, checkpoint=folder)

            if __name__ == "__main__":
                address, storage_path, log = sys.argv[1:]
                spec = rs.TrainSpec(name="walk", trainable=walk, config={"log": log, "pause_s": 0.3},
                                    storage_path=storage_path, failure={"max_failures": 0})
                def tell(progress):
                    print("step", progress.metrics["step"], file=sys.stderr)

                outcome = rs.run_training(spec, key="k", address=address, on_progress=tell)
                print(outcome.to_json())
        """)
    )
    log, storage_path = tmp_path / "log", tmp_path / "runs"
    command = [sys.executable, str(program), address, str(storage_path), str(log)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    # From Ray 2.60 an embedded Ray has a token, which Ray takes by itself only for `auto`.
    mode = {} if is_open(address) else {"RAY_AUTH_MODE": "token"}
    environment = {**os.environ, "PYTHONPATH": path, **mode}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        seen = []
        for line in first.stderr:
            seen.append(line)
            if line.strip() == "step 4":
                break
        assert seen[-1].strip() == "step 4", "".join(seen)
        (folder,) = (path.parent for path in storage_path.glob("*/train.json"))
        holder, _ = find_holder(SweepFolder(open_store(storage_path), folder.name))
        assert holder is not None
        assert holder.holder.pid == first.pid
        first.send_signal(signal.SIGKILL)
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=240)

    outcome = rs.TrainOutcome.from_json(second.stdout)
    assert outcome.metrics == {"step": 12}
    assert outcome.resumed
    begins = [int(line.removeprefix("from ")) for line in log.read_text().splitlines()]
    assert begins[0] == 0
    assert begins[1] in (3, 4, 5)  # the report that was on its way may or may not have arrived
    reported = [int(line.split()[1]) for line in second.stderr.splitlines() if line.startswith("step ")]
    assert reported == list(range(begins[1] + 1, 13))
    assert not list(Path(outcome.uri).glob("checkpoint_*")), "what the crash left over is gone"
    assert len(list(Path(outcome.uri).glob("checkpoints/00000/*.json"))) == 2


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.slow
def test_ctrl_c_ends_the_workers_and_the_run_can_go_on(make_spec: Callable[..., rs.TrainSpec]) -> None:
    interrupted: list[int] = []

    def interrupt(progress: TrainProgress) -> None:
        # Several reports may come at once.
        if progress.reports >= 5 and not interrupted:
            interrupted.append(progress.reports)
            os.kill(os.getpid(), signal.SIGINT)

    spec = make_spec(config={"steps": 300, "rate": 0.01})
    with pytest.raises(SweepInterrupted, match="same key"):
        rs.run_training(spec, key="k", on_progress=interrupt)
    assert actors_alive() == 0
    outcome = rs.run_training(spec, key="k")
    assert outcome.resumed
    assert outcome.metrics["step"] == 300


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.slow
def test_failures_are_retried_then_raised_with_the_last_line_and_a_later_call_goes_on(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def brittle(config: dict[str, Any]) -> None:
        import tempfile
        from pathlib import Path

        import raysweep

        lives = Path(config["lives"])
        left = int(lives.read_text())
        lives.write_text(str(left - 1))
        with tempfile.TemporaryDirectory() as folder:
            raysweep.report({"left": left, "nan": float("nan")}, checkpoint=folder)
        if left:
            raise ValueError(f"{left} lives left")

    lives = tmp_path / "lives"
    lives.write_text("2")
    spec = make_spec(brittle, config={"lives": str(lives)}, failure={"max_failures": 1})
    with pytest.raises(TrainingFailedError, match=r"ValueError: 1 lives left.*/runs/t-") as caught:
        rs.run_training(spec, key="k")
    outcome = caught.value.outcome
    assert outcome.error.kind == "user_error"
    assert "in brittle" in outcome.error.traceback
    assert lives.read_text() == "0"

    assert rs.run_training(spec, key="k").resumed
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.slow
def test_a_worker_that_dies_is_said_so(make_spec: Callable[..., rs.TrainSpec]) -> None:
    def dies(config: dict[str, Any]) -> None:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TrainingFailedError, match="a worker died") as caught:
        rs.run_training(make_spec(dies), key="k")
    assert caught.value.outcome.error.kind == "worker_died"
    assert actors_alive() == 0


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_torch_workers_share_a_process_group(make_spec: Callable[..., rs.TrainSpec]) -> None:
    pytest.importorskip("torch")

    def add_ranks(config: dict[str, Any]) -> dict[str, Any]:
        import torch
        import torch.distributed as dist

        total = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(total)
        return {"total": total.item(), "backend": dist.get_backend(), "size": dist.get_world_size()}

    outcome = rs.run_training(make_spec(add_ranks, framework="torch", scaling={"num_workers": 2}), key="k")
    assert outcome.metrics == {"total": 3.0, "backend": "gloo", "size": 2}


@pytest.mark.slow  # a night's own training step is of this kind: tests/prefect
@pytest.mark.usefixtures("ray_cluster")
def test_lightgbm_workers_train_one_model_from_a_warm_start(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    lightgbm = pytest.importorskip("lightgbm")

    def boost(config: dict[str, Any]) -> dict[str, Any]:
        import lightgbm as lgb
        import numpy as np
        from ray.train.lightgbm import get_network_params

        from raysweep.training import get_warm_start
        from raysweep.training.worker_session import train_rank

        rank, size = train_rank()
        x = np.random.default_rng(0).normal(size=(2000, 4))
        y = x[:, 0] + 2 * x[:, 1]
        params = {"verbosity": -1, "num_threads": 1, "tree_learner": "data_parallel", "pre_partition": True}
        begin = get_warm_start()
        assert begin is not None
        with begin as folder:
            old = lgb.Booster(model_file=folder / "model.txt")
        rows = slice(rank, None, size)
        model = lgb.train(params | get_network_params(), lgb.Dataset(x[rows], y[rows]), 20, init_model=old)
        return {
            "trees": model.num_trees(),
            "machines": get_network_params()["num_machines"],
            "error": float(np.mean((model.predict(x) - y) ** 2)),
        }

    import numpy as np

    x = np.random.default_rng(1).normal(size=(500, 4))
    data = lightgbm.Dataset(x, x[:, 0] + 2 * x[:, 1])
    (tmp_path / "best").mkdir()
    lightgbm.train({"verbosity": -1}, data, 5).save_model(tmp_path / "best" / "model.txt")
    best = CheckpointStore.at(str(tmp_path / "runs"), "sweep-1").save("00007", 3, tmp_path / "best")

    spec = make_spec(boost, framework="lightgbm", scaling={"num_workers": 2}, warm_start_checkpoint=best.uri)
    outcome = rs.run_training(spec, key="k")
    assert (outcome.metrics["trees"], outcome.metrics["machines"]) == (25, 2)
    assert outcome.metrics["error"] < 0.1

    with pytest.raises(rs.SpecError, match="there is no checkpoint"):
        rs.run_training(make_spec(boost, warm_start_checkpoint=best.uri.replace("00007", "00008")), key="k2")


def test_workers_that_fit_nowhere_are_refused_before_ray_starts(
    make_spec: Callable[..., rs.TrainSpec],
) -> None:
    program = textwrap.dedent("""
        import raysweep as rs
        from raysweep.errors import InfeasibleResourcesError
        try:
            rs.run_training({"name": "big", "trainable": "examples.quick:steps", "storage_path": "/dev/null",
                             "scaling": {"num_workers": 3, "resources": {"cpu": 1000}}})
        except InfeasibleResourcesError as error:
            print(error)
        import ray
        print(ray.is_initialized())
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=240
    )
    first, second = done.stdout.splitlines()
    assert "3 workers of {CPU: 1000}" in first
    assert "room for 0 on 1 node" in first
    assert second == "False"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_workers_that_fit_nowhere_in_the_cluster_are_refused(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    for scaling, room in (
        ({"num_workers": 3}, "room for 2"),
        (
            {"num_workers": 2, "placement_strategy": "STRICT_SPREAD"},
            "on nodes of their own: there is room for 1",
        ),
        ({"num_workers": 1, "resources": {"custom": {"magic": 1}}}, "magic: 0"),
    ):
        with pytest.raises(InfeasibleResourcesError, match=room):
            rs.run_training(make_spec(scaling=scaling), key="k")  # each mends the one before
    assert not list(tmp_path.rglob("*"))


def test_what_cannot_be_imported_or_written_is_said_before_anything_starts(
    make_spec: Callable[..., rs.TrainSpec],
) -> None:
    with pytest.raises(TrainableImportError, match="nowhere"):
        rs.run_training(make_spec("nowhere.to:be_found"))
    with pytest.raises(StorageNotWritableError, match="Ray Train cannot write"):
        rs.run_training(make_spec(storage_path="memory://x"))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_damaged_checkpoint_is_named_and_nothing_starts_over(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    def once(config: dict[str, Any]) -> None:
        assert rs.get_checkpoint() is None
        with rs.new_checkpoint() as folder:
            rs.report({"step": 1}, checkpoint=folder)
        raise ValueError("as the test asks")

    spec = make_spec(once)
    with pytest.raises(TrainingFailedError, match="as the test asks"):
        rs.run_training(spec, key="k")
    (manifest,) = tmp_path.glob("runs/*/checkpoints/00000/*.json")
    manifest.write_text(manifest.read_text().replace("workers", "warkers"))
    for _ in range(2):
        with pytest.raises(CheckpointDamagedError, match=r"00000/1\.json: the manifest is damaged"):
            rs.run_training(spec, key="k")
