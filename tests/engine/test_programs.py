"""Programs that know nothing of raysweep as trials of a sweep: reports, kills, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.core.vocabulary.events import TrialFailed
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import reports_of
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import INLINE, ROOT, Driver, wait_for
from tests.engine.programs import are_exact, kill_at, programs_running, reached, running, spec_of

pytestmark = [
    pytest.mark.ray,
    # Of Ray Train, in this process.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]
ISOLATIONS = ["worker", pytest.param("process", marks=pytest.mark.slow)]

LOOP = """
first=1
[ -n "$RAYSWEEP_CHECKPOINT" ] && first=$(( $(cat $RAYSWEEP_CHECKPOINT/step) + 1 ))
sleep 300 & setsid sleep 300 &
for step in $(seq $first 4); do
    mkdir -p $RAYSWEEP_OUTPUT_DIR/saved
    echo $step > $RAYSWEEP_OUTPUT_DIR/saved/step
    raysweep emit loss=$2.$step step=$step --checkpoint $RAYSWEEP_OUTPUT_DIR/saved || exit $?
done
"""

TRAIN = """
import argparse, json, os, pathlib, pickle, time
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

parser = argparse.ArgumentParser()
parser.add_argument("--alpha", type=float)
parser.add_argument("--eta0", type=float)
parser.add_argument("--pids", type=pathlib.Path)
parser.add_argument("--out", type=pathlib.Path)
parser.add_argument("--resume", type=pathlib.Path)
args = parser.parse_args()
features, labels = load_digits(return_X_y=True)
epoch, model = 0, SGDClassifier(alpha=args.alpha, eta0=args.eta0, learning_rate="constant", random_state=0)
if args.resume:
    epoch, model = pickle.loads((args.resume / "model").read_bytes())
number = os.environ["RAYSWEEP_TRIAL"]
while epoch < 9:
    (args.pids / number).write_text(f"{os.getpid()} {epoch}")
    epoch += 1
    model.partial_fit(features[:1000], labels[:1000], classes=range(10))
    with open(args.out / "metrics.jsonl", "a") as file:
        accuracy = model.score(features[1000:], labels[1000:])
        file.write(json.dumps({"epoch": epoch, "accuracy": accuracy}) + "\\n")
    folder = args.out / f"checkpoint-{epoch}"
    folder.mkdir()
    (folder / "model").write_bytes(pickle.dumps((epoch, model)))
    (folder / "done").touch()
    time.sleep(0.3)
"""

WATCHED = {
    "metrics": {"jsonl": "metrics.jsonl"},
    "checkpoints": {"folder": "checkpoint-*", "marker": "done", "resume": "--resume {checkpoint}"},
}


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_shell_script_is_a_trial_and_leaves_no_process(
    isolation: str, ray_cluster: RayConnection, storage: Path
) -> None:
    command = ["bash", "-c", LOOP, "loop", "{args}"]
    space = {"x": {"grid_search": [1, 2, 3]}}
    spec = spec_of(storage, command=command, param_space=space, search="grid", isolation=isolation)
    outcome = rs.run_sweep(spec, key="k")
    outcome.raise_for_status()
    assert [trial.reports for trial in outcome.trials] == [4, 4, 4]
    assert sorted(trial.score for trial in outcome.trials) == [1.4, 2.4, 3.4]
    assert outcome.best is not None
    assert outcome.best.config == {"x": 1}
    assert not programs_running()


@pytest.mark.slow
def test_killed_programs_and_workers_resume_from_their_checkpoints_and_reports_are_exact(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path, events: Callable[..., list[Any]]
) -> None:
    script, pids = tmp_path / "train.py", tmp_path / "pids"
    script.write_text(TRAIN)
    pids.mkdir()
    spec = spec_of(
        storage,
        command=["python", str(script), "--out", "{output_dir}", "--pids", str(pids), "{args}", "{resume}"],
        program=WATCHED,
        param_space={"alpha": {"loguniform": [1e-5, 1e-1]}, "eta0": {"loguniform": [1e-4, 1e-1]}},
        metric="accuracy",
        mode="max",
        num_samples=4,
        scheduler={"asha": {"max_t": 9, "grace_period": 3, "time_attr": "epoch"}},
    )
    killers = [
        threading.Thread(target=kill_at, args=(pids / "0", 4), daemon=True),
        threading.Thread(target=kill_at, args=(pids / "1", 2), kwargs={"above": 1}, daemon=True),
    ]
    for killer in killers:
        killer.start()
    outcome = rs.run_sweep(spec, key="k")
    for killer in killers:
        killer.join(60)
    outcome.raise_for_status()
    failures = [event.failure.type for event in events(TrialFailed)]
    assert failures == ["ProgramFailedError"]  # the death of a worker is an event of its own
    attempts = {trial.number: trial.num_attempts for trial in outcome.trials}
    assert (attempts[0], attempts[1]) == (2, 2)
    folder = SweepFolder(open_store(str(storage)), sweep_id("t", "k"))
    for trial in outcome.trials:
        rows = [row for row in reports_of(folder) if row["number"] == trial.number]
        assert are_exact(rows)
        assert rows[-1]["epoch"] == 9 or trial.state == "stopped"
    assert not running(str(script))


RANKS = """
import json, os, pathlib, subprocess, sys
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
found = {name: os.environ[name] for name in names}
folder = pathlib.Path(sys.argv[sys.argv.index("--folder") + 1])
(folder / f"{os.environ['RAYSWEEP_TRIAL']}-{found['RANK']}").write_text(json.dumps(found))
if found["RANK"] == "0":
    subprocess.run(["raysweep", "emit", "loss=1"], check=True)
"""


def test_a_gang_has_a_program_for_each_rank_with_the_variables_of_torchrun(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    command = ["{python}", str(script), "--folder", str(tmp_path), "{args}"]
    scaling = {"num_workers": 2}
    spec = spec_of(storage, command=command, param_space={"x": {"uniform": [0, 1]}}, scaling=scaling)
    rs.run_sweep(spec, key="k").raise_for_status()
    first, second = (json.loads((tmp_path / f"0-{rank}").read_text()) for rank in range(2))
    assert (first["RANK"], second["RANK"], first["WORLD_SIZE"]) == ("0", "1", "2")
    assert (first["MASTER_ADDR"], first["MASTER_PORT"]) == (second["MASTER_ADDR"], second["MASTER_PORT"])


REDUCES = """
import os, subprocess, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
if dist.get_rank() == 0:
    subprocess.run([sys.executable, "-m", "raysweep.cli", "emit", f"loss={total.item()}"], check=True)
dist.barrier()
dist.destroy_process_group()
"""


def test_torchrun_starts_the_ranks_of_a_trial(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "reduces.py"
    script.write_text(REDUCES)
    spec = spec_of(
        storage,
        command=[
            "torchrun",
            "--nproc_per_node",
            "2",
            "--master_port",
            "{master_port}",
            str(script),
            "{args}",
        ],
        param_space={"x": {"uniform": [0, 1]}},
    )
    outcome = rs.run_sweep(spec, key="k")
    outcome.raise_for_status()
    assert [trial.score for trial in outcome.trials] == [3.0]
    assert not running(str(script))


def test_a_command_is_the_full_scale_training_of_a_sweep(ray_cluster: RayConnection, storage: Path) -> None:
    command = ["bash", "-c", LOOP, "loop", "--x", "{x}"]
    train = rs.TrainSpec(command=command, config={"x": 5}, storage_path=str(storage))
    outcome = rs.run_training(train, key="k")
    outcome.raise_for_status()
    assert outcome.metrics == {"loss": 5.4, "step": 4}
    assert outcome.model_uri is not None
    assert not programs_running()


def test_a_program_runs_inline(ray_cluster: RayConnection, storage: Path) -> None:
    spec = spec_of(
        storage, command=["bash", "-c", LOOP, "loop", "{args}"], param_space={"x": {"choice": [3]}}, **INLINE
    )
    assert [trial.score for trial in rs.run_sweep(spec, key="k").trials] == [3.4]
    assert not programs_running()


def test_what_cannot_run_is_refused_before_anything_starts(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = {"x": {"uniform": [0, 1]}}
    with pytest.raises(rs.SpecError, match="command: there is no program 'no-such-program' on PATH"):
        rs.run_sweep(spec_of(storage, command=["no-such-program"], param_space=space), key="k")
    monkeypatch.setenv("RAYSWEEP_PROGRAMS", "torchrun python*")
    with pytest.raises(
        rs.SpecError, match=r"command: 'bash' is not among the programs that RAYSWEEP_PROGRAMS"
    ):
        rs.run_sweep(spec_of(storage, command=["bash", "x.sh"], param_space=space), key="k")
    monkeypatch.delenv("RAYSWEEP_PROGRAMS")
    monkeypatch.setenv("RAYSWEEP_TRAINABLES", "my_project")
    with pytest.raises(rs.SpecError, match="RAYSWEEP_TRAINABLES is set and RAYSWEEP_PROGRAMS is not"):
        rs.run_sweep(spec_of(storage, command=["bash", "x.sh"], param_space=space), key="k")
    assert not list(storage.glob("*/sweep.json"))


def test_a_program_that_reports_nothing_ends_the_sweep_with_one_line(
    ray_cluster: RayConnection, storage: Path
) -> None:
    spec = spec_of(storage, command=["true", "{args}"], param_space={"x": {"uniform": [0, 1]}}, num_samples=9)
    with pytest.raises(
        rs.SpecError, match="true ended without reporting anything: it never called raysweep emit"
    ):
        rs.run_sweep(spec, key="k")


HYDRA = """
import os, subprocess, hydra
from omegaconf import DictConfig

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config: DictConfig) -> None:
    assert isinstance(config.note, str) and config.model.width == 3
    loss = config.lr * config.model.width
    subprocess.run(["raysweep", "emit", f"loss={loss}", f"note={config.note}"], check=True)

main()
"""


def test_a_hydra_app_gets_overrides(ray_cluster: RayConnection, storage: Path, tmp_path: Path) -> None:
    pytest.importorskip("hydra")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("lr: 1.0\nnote: none\nmodel: {width: 1}\n")
    script = tmp_path / "app.py"
    script.write_text(HYDRA)
    spec = spec_of(
        storage,
        command=["python", str(script), "{args}", "hydra.run.dir={output_dir}/hydra"],
        program={"arguments": "hydra"},
        param_space={"lr": {"choice": [0.5]}, "model": {"width": 3}, "note": "it's, a=[b]"},
    )
    (trial,) = rs.run_sweep(spec, key="k").trials
    assert trial.score == 1.5
    assert trial.metrics["note"] == "it's, a=[b]"


@pytest.mark.timeout(900)
def test_the_example_of_hugging_face_learns(
    ray_cluster: RayConnection, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.chdir(ROOT)
    spec = rs.SweepSpec.from_yaml((ROOT / "examples/finetune/sweep.yaml").read_text())
    points = [{"learning_rate": 0.001, "weight_decay": 0.0, "per_device_train_batch_size": 32}]
    spec = spec.replace(storage_path=str(storage), num_samples=2, points=points, seed=1)
    outcome = rs.run_sweep(spec, key="k")
    outcome.raise_for_status()
    assert outcome.best is not None
    assert outcome.best.score > 0.7, "a guess has 0.5"
    assert outcome.best.checkpoint_uri is not None
    assert not running("examples/finetune/finetune.py")


@pytest.mark.slow
def test_a_killed_controller_takes_its_programs_along_and_they_resume(
    address: str, storage: Path, tmp_path: Path, drive: Callable[..., Driver]
) -> None:
    script, pids = tmp_path / "train.py", tmp_path / "pids"
    script.write_text(TRAIN)
    pids.mkdir()
    spec = spec_of(
        storage,
        command=["python", str(script), "--out", "{output_dir}", "--pids", str(pids), "{args}", "{resume}"],
        program=WATCHED,
        param_space={"alpha": {"loguniform": [1e-5, 1e-1]}, "eta0": {"loguniform": [1e-4, 1e-1]}},
        metric="accuracy",
        mode="max",
        num_samples=1,
    )
    driver = drive(spec, address=address)
    wait_for(lambda: reached(pids / "0", 4))
    os.kill(driver.pid, signal.SIGKILL)
    wait_for(lambda: not running(str(script)), 60)
    outcome = drive(spec, address=address, takeover=True).outcome()
    assert [trial.state for trial in outcome.trials] == ["completed"]
    folder = SweepFolder(open_store(str(storage)), sweep_id("t", "k"))
    assert are_exact(rows := list(reports_of(folder)))
    assert rows[-1]["epoch"] == 9
