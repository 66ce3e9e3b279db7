"""More of a sweep that has ended, on a real Ray: its bug fixed, more samples, further, anew, removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cli import main
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import INLINE, ROOT, Driver, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
Lines = Callable[[], list[list[str]]]

SCRIPT = """
import sys
import raysweep as rs

def train(config):
    for step in range(1, 4):
        {body}
        rs.report({{"loss": config["x"] / step}})

if __name__ == "__main__":
    spec = rs.SweepSpec(
        name="quickstart", trainable=train, param_space={{"x": {{"uniform": [0, 1]}}}},
        metric="loss", mode="min", num_samples=4, seed=1,
        failure={{"max_failures": 0, "breaker_trials": 2}}, storage_path={storage!r},
        max_concurrent_trials=1,
    )
    print(rs.run_sweep(spec, key="first", address=sys.argv[1]).status)
"""
YAML = """
name: quickstart
trainable: quickstart:train
param_space: {{x: {{uniform: [0, 1]}}}}
metric: loss
mode: min
num_samples: {samples}
seed: 1
failure: {{max_failures: 0, breaker_trials: 2}}
storage_path: {storage}
max_concurrent_trials: 1
"""


def test_a_script_whose_bug_is_fixed_and_its_spec_file_are_one_sweep(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python quickstart.py` fails; once its bug is fixed, `raysweep` continues it from the spec file."""
    storage = str(tmp_path / "sweeps")
    script, spec = tmp_path / "quickstart.py", tmp_path / "quickstart.yaml"

    def run_script(body: str) -> subprocess.CompletedProcess[str]:
        script.write_text(SCRIPT.format(body=body, storage=storage))
        path = os.pathsep.join(
            each for each in (str(ROOT / "engine"), os.environ.get("PYTHONPATH", "")) if each
        )
        return subprocess.run(
            [sys.executable, str(script), address],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )

    def command(*arguments: str) -> tuple[int, rs.SweepOutcome, str]:
        capsys.readouterr()
        code = main([*arguments, "--json"])
        captured = capsys.readouterr()
        return code, rs.SweepOutcome.from_json(captured.out), captured.err

    first = run_script('raise ValueError("a bug")')
    assert first.stdout.split()[-1] == "failed"
    assert "nothing ran" not in first.stderr
    again = run_script('raise ValueError("a bug")')
    assert again.stdout.split()[-1] == "failed"
    assert "nothing ran: this is the sweep that failed" in again.stderr
    assert "raysweep retry quickstart-" in again.stderr

    run_script("pass")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    spec.write_text(YAML.format(samples=4, storage=storage))
    code, old, _ = command("sweep", "quickstart.yaml", "--key", "first")
    assert (code, old.status, old.generation) == (1, "failed", 1)
    code, fixed, _ = command("retry", "quickstart-", "--storage", storage)
    assert (code, fixed.status, fixed.counts) == (0, "completed", {"completed": 4})
    assert fixed.sweep_id == old.sweep_id
    assert any("code was changed" in note for note in fixed.notes)
    code, same, _ = command("sweep", "quickstart.yaml", "--key", "first")
    assert (code, same) == (0, fixed)

    spec.write_text(YAML.format(samples=6, storage=storage))
    assert main(["plan", "quickstart.yaml", "--key", "first"]) == 0
    assert "reopened" in capsys.readouterr().out
    code, more, _ = command("sweep", "quickstart.yaml", "--key", "first")
    assert (code, more.counts, more.generation) == (0, {"completed": 6}, 3)
    assert more.trials[:4] == fixed.trials, "what has ended stays as it was"

    code, anew, said = command("restart", "quickstart-", "--storage", storage)
    assert (code, anew.counts, anew.generation) == (0, {"completed": 6}, 1)
    assert f"now at {storage}/aside/{old.sweep_id}/001" in said
    assert [trial.config for trial in anew.trials] == [trial.config for trial in more.trials]
    aside = SweepFolder(open_store(f"{storage}/aside/{old.sweep_id}"), "001")
    kept = aside.read_outcome()
    assert kept is not None
    assert (kept.uri, kept.counts, kept.why) == (aside.uri, more.counts, more.why)
    assert main(["rm", "quickstart-", "--storage", storage]) == 2, "nobody can be asked"
    assert main(["rm", "quickstart-", "--storage", storage, "--yes"]) == 0
    assert not (tmp_path / "sweeps" / old.sweep_id / "sweep.json").exists()


def test_the_best_go_further_from_python(make_spec: Any, ray_cluster: object, lines: Lines) -> None:
    scheduler = {"asha": {"max_t": 3, "grace_period": 1, "reduction_factor": 3}}
    spec = make_spec("steps", {"steps": 9, "pause": 0.0}, num_samples=4, scheduler=scheduler, **INLINE)
    outcome = rs.run_sweep(spec, key="k")
    best = [trial.number for trial in outcome.top(2)]
    further = rs.run_sweep(spec, key="k", extend={"top": 2, "max_t": 7})
    assert {trial.number: trial.max_t for trial in further.trials if trial.max_t} == dict.fromkeys(best, 7.0)
    for number in best:
        assert further[number].metrics["training_iteration"] == 7
    steps = Counter(int(line[2]) for line in lines() if line[0] == "step" and int(line[1]) in best)
    assert max(steps) >= 7
    # One more may have begun before the scheduler's word had come.
    assert [steps[step] for step in (1, 2, 3)] == [2, 2, 2], "none began anew"
    assert rs.run_sweep(spec, key="k", extend={"top": 2, "max_t": 7}) == further


@pytest.mark.slow
def test_a_retry_that_is_killed_is_resumed_by_the_same_call(
    make_spec: Any, drive: Callable[..., Driver], address: str, lines: Lines
) -> None:
    """SIGKILL of the driver while the failed trials run again: nothing stored is run once more."""
    space = {"steps": 8, "pause": 0.1, "dies_at": 3, "how": "raise"}
    spec = make_spec("steps", space, num_samples=2, failure={"max_failures": 0})
    assert rs.run_sweep(spec, key="k").counts == {"failed": 2}

    retry = drive(spec, address=address, retry="failed")
    wait_for(lambda: max(int(line[2]) for line in lines() if line[0] == "step") >= 6)
    os.kill(retry.pid, signal.SIGKILL)
    retry.process.wait()
    before = Counter(int(line[1]) for line in lines() if line[0] == "resumed")
    assert set(before.values()) == {1}, "both resumed from where they had failed"

    outcome = rs.run_sweep(spec, key="k", retry="failed")
    assert outcome.counts == {"completed": 2}
    assert outcome.generation == 3
    steps = Counter((int(line[1]), int(line[2])) for line in lines() if line[0] == "step")
    assert set(steps) == {(trial, step) for trial in (0, 1) for step in range(1, 9)}
    assert all(count == 1 for (_, step), count in steps.items() if step <= 3), "they did not begin anew"
    assert sum(steps.values()) <= 2 * 8 + 2 * 4, "at most what was on its way has run twice"


def test_failed_trials_and_a_new_beginning_from_python(make_spec: Any, ray_cluster: object) -> None:
    spec = make_spec("always_raises", num_samples=3, failure={"max_failures": 0}, **INLINE)
    first = rs.run_sweep(spec, key="k")
    assert first.status == "failed"
    again = rs.run_sweep(spec, key="k", retry="failed")
    assert again.counts == {"failed": 3}
    assert [trial.num_attempts for trial in again.trials] == [2, 2, 2]
    one = rs.run_sweep(spec, key="k", retry=[1])
    assert [trial.num_attempts for trial in one.trials] == [2, 3, 2]
    anew = rs.run_sweep(spec, key="k", restart=True)
    assert [trial.num_attempts for trial in anew.trials] == [1, 1, 1]
    assert not anew.nothing_ran
