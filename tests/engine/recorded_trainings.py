"""Short trainings, and what a user sees of each: outcome, model card, model, errors and texts as JSON.

`test_recorded_trainings.py` compares them with `tests/golden/trainings/`. What differs from run to run is
masked: times, versions, the numbers of checkpoints and the storage.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

import raysweep as rs
from raysweep.errors import RaysweepError
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.threads import start_thread
from tests.engine.conftest import ROOT, wait_for
from tests.engine.trainables import note
from tests.engine.trainings import taken

HERE: Final = "tests.engine.recorded_trainings"
HALF: Final = {"num_workers": 2, "resources": {"cpu": 0.5}}
_TIMES: Final = frozenset({"started_at", "ended_at", "at", "took_s", "active_s", "usage", "used"})
_VERSIONS: Final = frozenset({"raysweep_version", "versions", "spec_digest", "code_digest"})


def walk(config: dict[str, Any]) -> dict[str, Any]:
    """`steps` reports, each `every`-th with a checkpoint, from the newest one; then what it returns.

    `pause_s` is slept before each, `fails` are steps at which it raises once, `dies` kills the worker. With
    `asks` it also stores when it is asked for a checkpoint.
    """
    here, begin = rs.get_context(), 0
    if (found := rs.get_checkpoint()) is not None:
        with found as folder:
            begin = int((folder / "step").read_text())
    note(config, "begin", here.rank, here.world_size, begin)
    for step in range(begin + 1, config["steps"] + 1):
        time.sleep(config.get("pause_s", 0.0))
        _interfere(config, step)
        is_asked = config.get("asks") and rs.should_checkpoint()
        metrics = {"loss": 1.0 / step, "step": step, "inner": {"rank": here.rank}}
        if step % config.get("every", 1) and not is_asked:
            rs.report(metrics)
            continue
        with rs.new_checkpoint() as folder:
            (folder / "step").write_text(str(step))
            rs.report(metrics, checkpoint=folder if here.rank == 0 else None)
    return {"returned": config["steps"]}


def _interfere(config: dict[str, Any], step: int) -> None:
    mark = Path(f"{config['log']}.{step}")
    if step not in (*config.get("fails", ()), *config.get("dies", ())) or mark.exists():
        return
    if rs.get_context().rank == 0:
        mark.touch()
        if step in config.get("dies", ()):
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError(f"step {step} as the test asks")
    time.sleep(60)


def warm(config: dict[str, Any]) -> dict[str, Any]:
    """What lies in the checkpoint that the training begins from, and in its own."""
    from raysweep.training import get_warm_start

    begin = get_warm_start()
    assert begin is not None
    with begin as folder:
        return {"found": (folder / "step").read_text(), "own": rs.get_checkpoint() is not None}


class Trainings:
    """Runs trainings that are stored in one folder, and records what is seen of them.

    `train`: what is called with a spec, `key` and `on_progress`.
    """

    def __init__(self, folder: Path, train: Callable[..., rs.TrainOutcome] = rs.run_training) -> None:
        self.folder = folder
        self.train = train
        self.log = folder / "log"
        self.log.touch()
        self.seen: list[dict[str, Any]] = []

    def spec(self, trainable: Any = walk, **fields: Any) -> rs.TrainSpec:
        """A spec; `config` has the log."""
        config = {"log": str(self.log), "steps": 4} | fields.pop("config", {})
        fields = {"name": "t", "failure": {"max_failures": 0}, "scaling": HALF} | fields
        return rs.TrainSpec(
            trainable=trainable, config=config, storage_path=str(self.folder / "runs"), **fields
        )

    def run(self, spec: rs.TrainSpec, key: str = "k") -> Any:
        """Run it, and record what comes back; the outcome, also that of a failure."""
        steps: list[int] = []
        try:
            outcome = self.train(
                spec, key=key, on_progress=lambda now: steps.append(now.metrics.get("step", 0))
            )
        except RaysweepError as error:
            outcome = getattr(error, "outcome", None)
            self.seen.append({"raised": type(error).__name__, "text": str(error), "steps": steps})
        else:
            self.seen.append({"returned": outcome.status, "text": str(outcome), "steps": steps})
        if outcome is not None:
            self.keep(outcome)
        return outcome

    def keep(self, outcome: rs.TrainOutcome) -> None:
        """Record an outcome, with its model and its card."""
        self.seen.append({"outcome": json.loads(outcome.to_json())})
        if outcome.model_uri is not None:
            files = sorted(path for path in Path(outcome.model_uri).rglob("*") if path.is_file())
            self.seen.append({"model": {path.name: path.read_text() for path in files}})
        card = Path(outcome.uri) / "model_card.json"
        if card.exists():
            self.seen.append({"card": json.loads(card.read_text())})

    def begins(self) -> list[str]:
        """The rank, the number of workers and the first step of each worker that began, sorted by run."""
        words = [line.split() for line in self.log.read_text().splitlines()]
        return [" ".join(each[1:]) for each in words if each[0] == "begin"]

    def record(self) -> bytes:
        """All that was seen, masked."""
        begins = sorted(self.begins(), key=lambda line: [int(word) for word in line.split()][::-1])
        seen = _masked({"seen": self.seen, "begins": begins})
        text = json.dumps(seen).replace(str(self.folder), "<folder>").replace(str(ROOT), "<root>")
        text = re.sub(r"checkpoints/(\w+)/\d+", "checkpoints/<trial>/<number>", text)
        text = re.sub(r"model_\d{6}", "model_<number>", text)
        return orjson.dumps(json.loads(text), option=orjson.OPT_INDENT_2) + b"\n"


def _masked(value: Any, name: str = "") -> Any:
    if name in _TIMES | _VERSIONS and value is not None:
        return "<masked>"
    if name == "traceback" and value is not None:
        return "<with the frame that raised>" if "in _interfere" in value else "<without it>"
    if isinstance(value, dict):
        return {key: _masked(each, key) for key, each in value.items()}
    return [_masked(each) for each in value] if isinstance(value, list) else value


# --- the trainings


def ends(at: Trainings) -> None:
    """Two workers to their end; asked again, with another tag, and with another config."""
    (at.folder / "data").write_text("1,2")
    swept = str(at.folder / "runs" / "s-1")
    source = {"raysweep.sweep": swept, "raysweep.trial": "00003", "raysweep.score": "0.25", "team": "a"}
    spec = at.spec(config={"every": 2}, data={"train": str(at.folder / "data")}, tags=source)
    first = at.run(spec)
    assert at.train(spec.replace(tags={"team": "b"}), key="k") == first
    at.run(spec.replace(config={**spec.config, "steps": 5}))


def fails(at: Trainings) -> None:
    """Raises at two steps, and may once: it fails, and the same call again ends it from its checkpoint."""
    spec = at.spec(config={"fails": [2, 4], "steps": 5}, failure={"max_failures": 1})
    at.run(spec)
    at.run(spec)


def dies(at: Trainings) -> None:
    """A worker is killed, and may not be; then it may."""
    at.run(at.spec(config={"dies": [3]}, scaling={}))
    failure = {"max_failures": 0, "max_worker_deaths": 1}
    at.run(at.spec(config={"dies": [2], "steps": 3}, scaling={}, failure=failure), key="again")


def begins_warm(at: Trainings) -> None:
    """From the checkpoint of a sweep's trial, and from one that is not there."""
    (at.folder / "best").mkdir()
    (at.folder / "best" / "step").write_text("7")
    best = CheckpointStore.at(str(at.folder / "runs"), "sweep-1").save("00007", 3, at.folder / "best")
    at.run(at.spec(warm, scaling={}, warm_start_checkpoint=best.uri))
    missing = best.uri.replace("00007", "00008")
    at.run(at.spec(warm, scaling={}, warm_start_checkpoint=missing), key="missing")


def meets_deadline(at: Trainings) -> None:
    """Asked for a checkpoint, it ends with it."""
    deadline = datetime.now(UTC) + timedelta(seconds=600)
    config = {"steps": 1000, "every": 10_000, "asks": True, "pause_s": 0.02}
    stop = {"deadline": deadline.isoformat(), "grace_s": 599.9}
    outcome = at.run(at.spec(config=config, stop=stop))
    # How far it came differs from run to run: what it is the model of does not.
    step = outcome.metrics["step"]
    stored = int((Path(outcome.model_uri) / "step").read_text())
    assert (step, len(outcome.history)) == (stored, stored)
    ended = {"status": outcome.status, "ended_by": outcome.ended_by, "metrics": sorted(outcome.metrics)}
    text = str(outcome).replace(f"'step': {step}", "'step': <n>").replace(str(1.0 / step), "<loss>")
    at.seen = [
        {"ended": ended, "text": re.sub(r"(loss['\"]?[:=] ?)[\d.e-]+", r"\1<n>", text).splitlines()[0]}
    ]


def runs_out_of_time(at: Trainings) -> None:
    """A time budget without a checkpoint; what is left of it is nothing; with more it would go on."""
    config = {"steps": 1000, "every": 10_000, "pause_s": 0.05}
    spec = at.spec(config=config, stop={"time_budget_s": 3, "grace_s": 1})
    begun = []
    for _ in range(2):
        try:
            at.train(spec, key="k")
        except RaysweepError as error:
            outcome = error.outcome  # type: ignore[attr-defined]
            found = {name: getattr(outcome, name) for name in ("status", "ended_by", "resumed", "model_uri")}
            at.seen.append({"raised": type(error).__name__, "text": str(error), **found})
        begun.append(len(at.begins()))
    assert begun[0] == begun[1], "nothing is left of it: the second call starts no worker"
    at.log.write_text("")


RUN: Final = """
import sys
import raysweep as rs

def tell(progress):
    print("step", progress.metrics["step"], file=sys.stderr, flush=True)

if __name__ == "__main__":
    outcome = rs.run_training(sys.argv[1], key="k", address=sys.argv[2], on_progress=tell)
    print(outcome.to_json())
"""


def is_killed(at: Trainings, address: str) -> None:
    """The process that runs it is killed after step 4; the same command ends it."""
    spec = at.spec(config={"steps": 8, "pause_s": 0.3}, scaling={})
    (at.folder / "train.json").write_text(spec.to_json())
    command = [sys.executable, "-c", RUN, str(at.folder / "train.json"), address]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        for line in first.stderr:
            if line.strip() == "step 4":
                break
        first.send_signal(signal.SIGKILL)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    outcome = rs.TrainOutcome.from_json(done.stdout.splitlines()[-1])
    first_begin, second_begin = (int(line.split()[-1]) for line in at.begins())
    assert first_begin == 0
    assert second_begin in (3, 4, 5)
    assert [each.metrics["step"] for each in outcome.history] == list(range(1, 9)), "each step once"
    at.keep(outcome)
    at.log.write_text("")


def is_elastic(at: Trainings) -> None:
    """One worker while there is room for one, two from the next checkpoint after there is more."""
    config = {"steps": 400, "every": 10, "pause_s": 0.05}
    spec = at.spec(config=config, scaling={"num_workers": [1, 2], "resize_interval_s": 0})
    with taken(1) as give_back:
        running = start_thread(lambda: at.train(spec, key="k"), "training")
        wait_for(lambda: at.begins() or running.done(), timeout_s=120)
        give_back()
        wait_for(lambda: len(at.begins()) == 3 or running.done(), timeout_s=120)
        outcome = running.result(200)
    sizes = [each.workers for each in outcome.history]
    steps = [each.metrics["step"] for each in outcome.history]
    assert steps == list(range(1, 401)), "each step once"
    (grown,) = {int(line.split()[-1]) for line in at.begins()[1:]}
    assert grown % 10 == 0
    changes = [size for size, before in zip(sizes, [None, *sizes], strict=False) if size != before]
    at.seen = [{"sizes": changes, "status": outcome.status, "metrics": outcome.metrics}]
    at.log.write_text("")


def by_command(at: Trainings, cli: Callable[..., tuple[int, str, str]]) -> None:
    """`raysweep train`: what ends well, what fails, and what cannot be read."""
    for name, config, more in (
        ("good", {}, {}),
        ("bad", {"fails": [2]}, {}),
        ("wrong", {}, {"framework": "torhc"}),
    ):
        path = at.folder / f"{name}.json"
        path.write_text(json.dumps(at.spec(config=config).to_dict() | {"name": name} | more))
        code, out, err = cli("train", path, "--key", "k", "--json")
        lines = [line for line in err.splitlines() if not line.startswith(("[", "  took"))]
        said = json.loads(out) if out else None
        if said is not None:
            del said["schema_version"]
        at.seen.append({"code": code, "err": lines, "out": said})


SCENARIOS: Final[dict[str, Callable[[Trainings], None]]] = {
    "ends": ends,
    "fails": fails,
    "dies": dies,
    "begins-warm": begins_warm,
    "meets-deadline": meets_deadline,
    "runs-out-of-time": runs_out_of_time,
    "is-elastic": is_elastic,
}
