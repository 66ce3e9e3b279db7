"""The commands on a real Ray: outputs, exit codes, interrupts and what continues from them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raysweep.cli import main
from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.specs import sweep_id

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
HERE = "tests.engine.trainables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def cli(ray_cluster: object, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command in this process, on the shared Ray."""

    def run(*arguments: Any) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def write_spec(tmp_path: Path, storage: Path, log: Path) -> Callable[..., Path]:
    """A spec file for a trainable of `trainables.py`."""

    def write(trainable: str, space: dict[str, Any] | None = None, **fields: Any) -> Path:
        given: dict[str, Any] = {
            "name": "cli",
            "trainable": trainable if ":" in trainable else f"{HERE}:{trainable}",
            "param_space": {"log": str(log), "x": {"uniform": [0, 1]}, **(space or {})},
            "metric": "loss",
            "mode": "min",
            "seed": 7,
            "storage_path": str(storage),
        }
        path = tmp_path / "spec.yaml"
        path.write_text(json.dumps({**given, **fields}))
        return path

    return write


@dataclass(slots=True, kw_only=True)
class Running:
    """A command in a process of its own, on the shared Ray."""

    process: subprocess.Popen[str]

    def end(self, number: signal.Signals) -> Ran:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=240)
        return Ran(code=self.process.returncode, out=out, err=err)


@pytest.fixture
def start(address: str) -> Iterator[Callable[..., Running]]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: Any) -> Running:
        command = [sys.executable, "-m", "raysweep.cli", *map(str, arguments), "--address", address]
        process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        started.append(process)
        return Running(process=process)

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def wait_for(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.1)


def starts(lines: Callable[[], list[list[str]]]) -> Counter[str]:
    """How often each trial was started."""
    return Counter(line[1] for line in lines() if line[0] == "start")


def test_a_sweep_shows_its_summary_and_the_next_command(
    cli: Callable[..., Ran], write_spec: Callable[..., Path], storage: Path
) -> None:
    spec = write_spec("noop")
    ran = cli("sweep", spec, "--key", "k", "--set", "num_samples=5", "--set", "tags.team=a")
    assert (ran.code, ran.err) == (0, "")
    name = sweep_id("cli", "k")
    assert f"completed {name}" in ran.out
    assert "trials   5 of 5 trials ended: 5 completed" in ran.out
    assert re.search(r"best     loss 0\.\d+ \(trial 0000\d\)", ran.out)
    assert f"outcome  {storage}/{name}/outcome.json" in ran.out
    following = f"best {name} --storage {storage}"
    assert f"next     raysweep {following}" in ran.out
    assert cli(*following.split()).code == 0
    again = cli("sweep", spec, "--key", "k", "--set", "num_samples=5", "--json")
    assert SweepOutcome.from_json(again.out).trials == SweepOutcome.from_json(again.out).trials
    assert SweepOutcome.from_json(again.out).counts == {"completed": 5}


def test_a_failed_sweep_ends_with_1(cli: Callable[..., Ran], write_spec: Callable[..., Path]) -> None:
    failure = {"max_failures": 0, "backoff_initial_s": 0.05}
    ran = cli("sweep", write_spec("always_raises", num_samples=5, failure=failure), "--key", "k", "--json")
    assert ran.code == 1
    outcome = SweepOutcome.from_json(ran.out)
    assert outcome.status == "failed"
    assert len(ran.out.splitlines()) == 1
    assert re.search(r"error +trial 0000\d: ValueError: as asked\n", ran.err)
    assert re.search(r"at +\S+trainables\.py:\d+ in always_raises\n", ran.err)
    assert f"next     raysweep trials {outcome.sweep_id}" in ran.err
    assert "Traceback" not in ran.err


def test_train_from_a_sweep(
    cli: Callable[..., Ran], write_spec: Callable[..., Path], tmp_path: Path, storage: Path
) -> None:
    space = {"start": {"choice": [16.0, 64.0]}, "steps": 3}
    spec = write_spec("examples.quick:steps", space, num_samples=2, search="random")
    swept = SweepOutcome.from_json(cli("sweep", spec, "--key", "k", "--json").out)
    assert swept.best is not None
    full = tmp_path / "full.yaml"
    full.write_text(
        "name: full\ntrainable: examples.quick:steps\nconfig: {rate: 0.75}\nfailure: {max_failures: 0}\n"
        f"storage_path: {storage}\n"
    )
    command = ["train", full, "--from-sweep", "cli-", "--config", '{"steps": 4}', "--json"]
    ran = cli(*command)
    assert ran.code == 0, ran
    outcome = TrainOutcome.from_json(ran.out)
    assert outcome.config == {**swept.best.config, "rate": 0.75, "steps": 4}
    assert outcome.metrics["step"] == 4
    assert "model" in ran.err
    # Without a key the spec is the key.
    assert TrainOutcome.from_json(cli(*command).out) == outcome


@pytest.mark.slow
def test_a_failed_training_ends_with_1_and_its_outcome(
    cli: Callable[..., Ran], tmp_path: Path, storage: Path, log: Path
) -> None:
    full = tmp_path / "full.yaml"
    config = json.dumps({"log": str(log)})
    full.write_text(f"trainable: {HERE}:type_error\nconfig: {config}\nfailure: {{max_failures: 0}}\n")
    ran = cli("train", full, "--storage", storage, "--json", "--key", "k")
    assert ran.code == 1
    outcome = TrainOutcome.from_json(ran.out)
    assert outcome.status == "failed"
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_interrupted_killed_and_gone_on_with(
    start: Callable[..., Running],
    cli: Callable[..., Ran],
    write_spec: Callable[..., Path],
    storage: Path,
    lines: Callable[[], list[list[str]]],
) -> None:
    """SIGKILL, the same command again, SIGINT, `resume`: no finished trial runs twice."""
    spec = write_spec("slow", {"pause": 0.3}, num_samples=24, max_concurrent_trials=1)
    name = sweep_id("cli", "k")
    at = ["--storage", str(storage)]

    def ended() -> int:
        return sum(line[0] == "end" for line in lines())

    def finished() -> dict[str, int]:
        """How often the trials were started that the journal knows to have ended."""
        trials = json.loads(cli("trials", name, "--json", *at).out)["trials"]
        ended = [str(trial["number"]) for trial in trials if trial["state"] == "completed"]
        return {trial: starts(lines)[trial] for trial in ended}

    first = start("sweep", spec, "--key", "k")
    wait_for(lambda: ended() >= 3)
    shown = cli("status", name, *at).out
    assert f"{name}  running" in shown
    assert first.end(signal.SIGKILL).code == -signal.SIGKILL
    shown = cli("status", name, *at).out
    assert f"interrupted {name}" in shown
    assert "not running: its controller is gone" in shown
    done = finished()
    assert done

    before = ended()
    second = start("sweep", spec, "--key", "k", "--json")
    wait_for(lambda: ended() >= before + 3)
    interrupted = second.end(signal.SIGINT)
    assert (interrupted.code, interrupted.out) == (3, "")
    last = interrupted.err.splitlines()[-1]
    assert last.startswith(f"interrupted: {name} stopped cleanly; ")
    assert "of 24 trials ended" in last
    assert "best loss" in last
    assert f"; resume it with: raysweep sweep {spec} --key k --json" in last
    assert "Traceback" not in interrupted.err
    done |= finished()
    assert len(done) >= 4

    ran = cli("resume", name, *at, "--json")
    assert ran.code == 0, ran
    outcome = SweepOutcome.from_json(ran.out)
    assert outcome.counts == {"completed": 24}
    assert outcome.generation == 3
    again = starts(lines)
    assert {trial: again[trial] for trial in done} == done


@pytest.mark.slow
def test_with_a_ray_of_its_own_stdout_is_the_outcome_and_nothing_is_noise(
    write_spec: Callable[..., Path],
) -> None:
    command = [sys.executable, "-m", "raysweep.cli", "sweep", str(write_spec("noop", num_samples=4))]
    done = subprocess.run(
        [*command, "--key", "k", "--num-cpus", "2", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert SweepOutcome.from_json(done.stdout).counts == {"completed": 4}
    ours = re.compile(r"\[cli \d+:\d\d\] |completed cli-|  (ended|why|trials|best|outcome|next) ")
    assert [line for line in done.stderr.splitlines() if not ours.match(line)] == []
    plain = subprocess.run([*command, "--key", "k"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (plain.returncode, plain.stderr) == (0, "")
    assert plain.stdout.startswith("completed cli-")
