"""What the tests of programs as trials share: programs of several kinds, specs, kills, and exact reports."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pytest

import raysweep as rs
from raysweep.core import decode
from raysweep.core.vocabulary.events import Event
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import reports_of
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import wait_for

EventT = TypeVar("EventT", bound=Event)
EPOCHS = 6
ASHA = {"asha": {"max_t": EPOCHS, "grace_period": 4, "reduction_factor": 2, "time_attr": "epoch"}}

SHELL = """
first=1
[ -n "$4" ] && first=$(( $(cat $4/epoch) + 1 ))
for epoch in $(seq $first 6); do
    echo "$$ $((epoch - 1))" > $2/$RAYSWEEP_TRIAL
    while [ $epoch -ge 3 ] && [ -e $2/hold ]; do sleep 0.05; done
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
        while epoch >= 2 and pathlib.Path(pids, "hold").exists():
            time.sleep(0.05)
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


TRAINER = """
import os, pathlib, time, torch
from transformers import HfArgumentParser, PretrainedConfig, PreTrainedModel, Trainer
from transformers import TrainerCallback, TrainingArguments

class Config(PretrainedConfig):
    model_type = "line"

class Line(PreTrainedModel):
    config_class = Config
    def __init__(self, config):
        super().__init__(config)
        self.line = torch.nn.Linear(1, 1)
        self.post_init()
    def _init_weights(self, module):
        torch.nn.init.zeros_(module.weight)
    def forward(self, x, labels=None):
        found = self.line(x)
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}

class Watched(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        pids = pathlib.Path(os.environ["PIDS"])
        (pids / os.environ["RAYSWEEP_TRIAL"]).write_text(f"{os.getpid()} {state.global_step}")
        while state.global_step >= 2 and (pids / "hold").exists():
            time.sleep(0.05)
        time.sleep(0.2)

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
data = [{"x": [n / 8], "labels": [n / 4]} for n in range(8)]
sets = {"train_dataset": data, "eval_dataset": data}
trainer = Trainer(model=Line(Config()), args=arguments, callbacks=[Watched()], **sets)
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
"""
TRAINER_ARGUMENTS = [
    *("--eval_strategy", "steps", "--eval_steps", "1", "--save_steps", "1", "--logging_steps", "1"),
    *("--num_train_epochs", "6", "--per_device_train_batch_size", "8", "--use_cpu", "--report_to", "none"),
]

KINDS = ["shell", "hydra", "torchrun", "hugging_face"]
ABOVE = {"shell": 1, "hydra": 1, "torchrun": 2, "hugging_face": 2}
"""How far above the process that writes its pid a worker is: torchrun and accelerate start it."""


def program_of(kind: str, folder: Path) -> tuple[dict[str, Any], Path]:
    """The fields of a spec for a program of this kind, and its file.

    It writes its pid and epoch to `folder/pids`. After two epochs it waits while there is `folder/pids/hold`.
    """
    pids = folder / "pids"
    pids.mkdir()
    fields = {
        "shell": _shell,
        "python": _python,
        "hydra": _hydra,
        "torchrun": _torchrun,
        "hugging_face": _hugging_face,
    }[kind](folder, str(pids))
    script = folder / ("train.sh" if kind == "shell" else "train.py")
    return {"param_space": {"x": {"uniform": [0, 1]}}, "program": WATCHED} | fields, script


def _shell(folder: Path, pids: str) -> dict[str, Any]:
    script = folder / "train.sh"
    script.write_text(SHELL)
    command = ["bash", str(script), "{x}", pids, "more", "{resume}"]
    return {"command": command, "program": {"checkpoints": {"resume": "{checkpoint}"}}}


def _python(folder: Path, pids: str) -> dict[str, Any]:
    script = folder / "train.py"
    script.write_text(PLAIN)
    return {"command": ["{python}", str(script), "--pids", pids, *PLACES]}


def _hydra(folder: Path, pids: str) -> dict[str, Any]:
    pytest.importorskip("hydra")
    script = folder / "train.py"
    script.write_text(HYDRA)
    (folder / "conf").mkdir()
    (folder / "conf" / "config.yaml").write_text("x: 0.0\npids: none\nout: none\nresume: none\n")
    checkpoints = WATCHED["checkpoints"] | {"resume": "resume={checkpoint}"}
    own = ["out={output_dir}", "hydra.run.dir={output_dir}/hydra", f"pids={pids}", "{args}", "{resume}"]
    return {
        "command": ["{python}", str(script), *own],
        "program": {**WATCHED, "arguments": "hydra", "checkpoints": checkpoints},
    }


def _torchrun(folder: Path, pids: str) -> dict[str, Any]:
    pytest.importorskip("torch")
    script = folder / "train.py"
    script.write_text(RANKS)
    launch = ["torchrun", "--nproc_per_node", "2", "--master_port", "{master_port}", str(script)]
    return {"command": [*launch, "--pids", pids, *PLACES]}


def _hugging_face(folder: Path, pids: str) -> dict[str, Any]:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    script = folder / "train.py"
    script.write_text(TRAINER)
    launch = ["accelerate", "launch", "--num_processes", "1", "--cpu", str(script)]
    checkpoints = {
        "folder": "checkpoint-*",
        "marker": "trainer_state.json",
        "resume": "--resume_from_checkpoint {checkpoint}",
    }
    return {
        "command": [*launch, "--output_dir", "{output_dir}", *TRAINER_ARGUMENTS, "{args}", "{resume}"],
        "program": {
            "metrics": {"trainer_state": "."},
            "checkpoints": checkpoints,
            "environment": {"PIDS": pids},
        },
        "param_space": {"learning_rate": {"loguniform": [1e-3, 1e-1]}},
        "metric": "eval_loss",
    }


def rows_of(storage: Path, number: int) -> list[dict[str, Any]]:
    """The reports of one trial of the sweep `t` with the key `k`."""
    folder = SweepFolder(open_store(str(storage)), sweep_id("t", "k"))
    return [row for row in reports_of(folder) if row["number"] == number]


def events_of(storage: Path, kind: type[EventT]) -> list[EventT]:
    """The events of one type in the journal of that sweep; none while it is not there yet."""
    try:
        records = SweepFolder(open_store(str(storage)), sweep_id("t", "k")).journal().contents().records
    except (rs.RaysweepError, OSError):
        return []
    return [event for event in map(decode, records) if isinstance(event, kind)]


def spec_of(storage: Path, **fields: Any) -> rs.SweepSpec:
    failure = {"backoff_initial_s": 0.05, "breaker_trials": 0} | fields.pop("failure", {})
    plain: dict[str, Any] = {"name": "t", "metric": "loss", "mode": "min", "seed": 7, "search": "random"}
    return rs.SweepSpec(storage_path=str(storage), failure=failure, **plain | fields)


def running(*parts: str) -> list[int]:
    """The processes whose command line or environment has one of these texts."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            held = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
            if any(part.encode() in held for part in parts):
                found.append(int(entry.name))
    return found


def programs_running() -> list[int]:
    """The processes of programs that trials of this process have started; another one may test beside it."""
    names = ("PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER")
    ours = [f"{name}={os.environ[name]}\0".encode() for name in names if name in os.environ]
    found = []
    for pid in running("RAYSWEEP_EMIT="):
        with suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
            if all(each in variables for each in ours):
                found.append(pid)
    return found


def are_exact(rows: list[dict[str, Any]]) -> bool:
    """Whether report n is of epoch n, in each attempt without a gap.

    What was reported after the checkpoint that a retry begins from is reported again.
    """
    attempts = groupby(rows, key=lambda row: row["attempt"])
    made = [[int(row["epoch"]) for row in group] for _, group in attempts]
    return all(row["epoch"] == row["iteration"] for row in rows) and all(
        epochs == list(range(epochs[0], epochs[-1] + 1)) for epochs in made
    )


def kill_at(path: Path, epoch: int, *, above: int = 0) -> None:
    """Kill the program that writes this file, once it has made so many epochs; or its `above`th parent."""
    pid = wait_for(lambda: reached(path, epoch))
    for _ in range(above):
        pid = parent_of(pid)
    os.kill(pid, signal.SIGKILL)


def reached(path: Path, epoch: int) -> int:
    """The pid of the program that writes this file, once it has made so many epochs; else 0."""
    with suppress(OSError, ValueError):
        pid, made = map(int, path.read_text().split())
        return pid if made >= epoch else 0
    return 0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
