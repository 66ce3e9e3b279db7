"""Programs of several kinds under a scheduler: killed, exploited and cut off, and resumed exactly."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import reports_of
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.programs import are_exact, kill_at, running, spec_of

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    # Of Ray Train, in this process.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]
EPOCHS = 6
ASHA = {"asha": {"max_t": EPOCHS, "grace_period": 2, "reduction_factor": 2, "time_attr": "epoch"}}

SHELL = """
first=1
[ -n "$4" ] && first=$(( $(cat $4/epoch) + 1 ))
for epoch in $(seq $first 6); do
    echo "$$ $((epoch - 1))" > $2/$RAYSWEEP_TRIAL
    mkdir -p $RAYSWEEP_OUTPUT_DIR/saved
    echo $epoch > $RAYSWEEP_OUTPUT_DIR/saved/epoch
    raysweep emit loss=$RAYSWEEP_TRIAL.$epoch epoch=$epoch --checkpoint $RAYSWEEP_OUTPUT_DIR/saved || exit $?
    sleep 0.2
done
"""

PYTHON = """
import json, os, pathlib, time

def train(x, pids, out, resume, is_first=True, sync=lambda: None):
    epoch, states = 0, pathlib.Path(resume or "none", "state")
    if states.exists():
        epoch = json.loads(states.read_text())["epoch"]
    while epoch < 6:
        if is_first:
            pathlib.Path(pids, os.environ["RAYSWEEP_TRIAL"]).write_text(f"{os.getpid()} {epoch}")
        epoch += 1
        sync()
        if is_first:
            folder = pathlib.Path(out, f"checkpoint-{epoch}")
            folder.mkdir()
            (folder / "state").write_text(json.dumps({"epoch": epoch, "x": x}))
            with open(pathlib.Path(out, "metrics.jsonl"), "a") as file:
                file.write(json.dumps({"epoch": epoch, "loss": x / epoch, "x": x}) + "\\n")
            (folder / "done").touch()
        time.sleep(0.2)
"""

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
for name in ("--pids", "--out", "--resume"):
    parser.add_argument(name)
args = parser.parse_args()
"""

PLAIN = PYTHON + ARGPARSE + "train(args.x, args.pids, args.out, args.resume)"

RANKS = (
    PYTHON
    + ARGPARSE
    + """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([1.0])
train(args.x, args.pids, args.out, args.resume, dist.get_rank() == 0, lambda: dist.all_reduce(total))
dist.destroy_process_group()
"""
)

HYDRA = (
    PYTHON
    + """
import hydra
from omegaconf import DictConfig

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config: DictConfig) -> None:
    train(config.x, config.pids, config.out, config.resume)

main()
"""
)

WATCHED: dict[str, Any] = {
    "metrics": {"jsonl": "metrics.jsonl"},
    "checkpoints": {"folder": "checkpoint-*", "marker": "done", "resume": "--resume {checkpoint}"},
}
PLACES = ["--out", "{output_dir}", "{args}", "{resume}"]


def rows_of(storage: Path, number: int) -> list[dict[str, Any]]:
    folder = SweepFolder(open_store(str(storage)), sweep_id("t", "k"))
    return [row for row in reports_of(folder) if row["number"] == number]


def program_of(kind: str, folder: Path) -> tuple[list[str], dict[str, Any], Path]:
    """Its command, how it is read, and its file."""
    pids = str(folder / "pids")
    script = folder / "train.py"
    if kind == "shell":
        script = folder / "train.sh"
        script.write_text(SHELL)
        read = {"checkpoints": {"resume": "{checkpoint}"}}
        return ["bash", str(script), "{x}", pids, "more", "{resume}"], read, script
    if kind == "hydra":
        pytest.importorskip("hydra")
        script.write_text(HYDRA)
        (folder / "conf").mkdir()
        (folder / "conf" / "config.yaml").write_text("x: 0.0\npids: none\nout: none\nresume: none\n")
        read = {**WATCHED, "arguments": "hydra"}
        read["checkpoints"] = {**read["checkpoints"], "resume": "resume={checkpoint}"}
        own = ["out={output_dir}", "hydra.run.dir={output_dir}/hydra", f"pids={pids}", "{args}", "{resume}"]
        return ["{python}", str(script), *own], read, script
    pytest.importorskip("torch")
    script.write_text(RANKS)
    launch = ["torchrun", "--nproc_per_node", "2", "--master_port", "{master_port}", str(script)]
    return [*launch, "--pids", pids, *PLACES], WATCHED, script


@pytest.mark.parametrize("kind", ["shell", "hydra", "torchrun"])
def test_under_asha_killed_programs_and_workers_resume_exactly_and_leave_nothing(
    kind: str, ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    command, program, script = program_of(kind, tmp_path)
    spec = spec_of(
        storage,
        command=command,
        program=program,
        param_space={"x": {"uniform": [0, 1]}},
        num_samples=3,
        scheduler=ASHA,
    )
    worker = {"above": 2 if kind == "torchrun" else 1}  # the parent of a rank is torchrun
    killers = [
        threading.Thread(target=kill_at, args=(pids / "0", 2), daemon=True),
        threading.Thread(target=kill_at, args=(pids / "1", 1), kwargs=worker, daemon=True),
    ]
    for killer in killers:
        killer.start()
    outcome = rs.run_sweep(spec, key="k")
    for killer in killers:
        killer.join(60)
    outcome.raise_for_status()
    attempts = [trial.num_attempts for trial in outcome.trials]
    assert attempts[: len(killers)] == [2] * len(killers)
    for trial in outcome.trials:
        rows = rows_of(storage, trial.number)
        assert are_exact(rows)
        assert rows[-1]["epoch"] == EPOCHS or trial.state == "stopped"
    assert not running(str(script))


def test_pbt_resumes_a_program_from_another_trials_checkpoint_under_a_changed_config(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    pids, script = tmp_path / "pids", tmp_path / "train.py"
    pids.mkdir()
    script.write_text(PLAIN)
    spec = spec_of(
        storage,
        command=["{python}", str(script), "--pids", str(pids), *PLACES],
        program=WATCHED,
        param_space={"x": {"uniform": [0, 1]}},
        num_samples=2,
        max_concurrent_trials=2,
        scheduler={
            "pbt": {
                "perturbation_interval": 2,
                "quantile_fraction": 0.5,
                "time_attr": "epoch",
                "synch": True,
                "max_t": EPOCHS,
            }
        },
    )
    killer = threading.Thread(target=kill_at, args=(pids / "0", 3), daemon=True)
    killer.start()
    outcome = rs.run_sweep(spec, key="k")
    killer.join(60)
    outcome.raise_for_status()
    used = [{row["x"] for row in rows_of(storage, trial.number)} for trial in outcome.trials]
    assert max(map(len, used)) > 1, "a program began again with another config"
    for trial in outcome.trials:
        rows = rows_of(storage, trial.number)
        assert rows[-1]["epoch"] == EPOCHS
        assert all(row["loss"] == row["x"] / row["epoch"] for row in rows)
    assert not running(str(script))


def test_a_deadline_ends_a_program_and_the_reopened_sweep_resumes_it(
    ray_cluster: RayConnection, storage: Path, tmp_path: Path
) -> None:
    pids, script = tmp_path / "pids", tmp_path / "train.py"
    pids.mkdir()
    script.write_text(PLAIN.replace("time.sleep(0.2)", "time.sleep(5)"))
    fields: dict[str, Any] = {
        "command": ["{python}", str(script), "--pids", str(pids), *PLACES],
        "program": WATCHED,
        "param_space": {"x": {"uniform": [0, 1]}},
        "num_samples": 1,
    }
    begun = time.monotonic()
    cut = rs.run_sweep(spec_of(storage, **fields, stop={"time_budget_s": 20.0, "grace_s": 2.0}), key="k")
    assert cut.status == "budget"
    assert time.monotonic() - begun < 90
    assert not running(str(script)), "at the end of the sweep nothing of it is left"
    before = rows_of(storage, 0)
    script.write_text(PLAIN)
    outcome = rs.run_sweep(spec_of(storage, **fields, stop={"time_budget_s": 600.0, "grace_s": 2.0}), key="k")
    outcome.raise_for_status()
    rows = rows_of(storage, 0)
    assert are_exact(rows)
    assert rows[-1]["epoch"] == EPOCHS
    assert rows[: len(before)] == before
    assert not running(str(script))
