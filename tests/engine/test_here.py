"""Sweeps on this machine without Ray: `address="here"`."""

from __future__ import annotations

import json
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
from raysweep.core.vocabulary.events import TrialReturned
from raysweep.errors import ClusterUnreachableError, InfeasibleResourcesError
from tests.engine.conftest import ROOT, Driver, wait_for
from tests.engine.results import shown

MODULE = "tests.engine.without_ray"
MakeSpec = Callable[..., rs.SweepSpec]
Drive = Callable[..., Driver]
Lines = Callable[[], list[list[str]]]

ALONE = """
import json, sys
sys.modules["ray"] = None  # as if it was not installed
import raysweep as rs
spec, address = json.loads(sys.argv[1]), sys.argv[2] or None
outcome = rs.run_sweep(spec, key="k", address=address)
assert not [name for name, module in sys.modules.items() if module and name.partition(".")[0] == "ray"]
print(outcome.to_json())
"""


def here(spec: rs.SweepSpec, **options: Any) -> rs.StoredSweep:
    return rs.run_sweep(spec, key="k", address="here", num_cpus=options.pop("num_cpus", 2), **options)


def starters_of(pid: int) -> list[int]:
    """The processes that start workers for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(parent) == pid and b"raysweep.cluster.here.starter" in command:
                found.append(int(entry.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("address", ["here", ""])
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_neither_controller_nor_worker_imports_ray(address: str, isolation: str, make_spec: MakeSpec) -> None:
    spec = make_spec(f"{MODULE}:modules", num_samples=2, isolation=isolation)
    command = [sys.executable, "-c", ALONE, json.dumps(spec.to_dict()), address]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    outcome = rs.SweepOutcome.from_json(done.stdout.splitlines()[-1])
    assert [trial.metrics["loss"] for trial in outcome.trials] == [0.0, 0.0]


@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_a_trial_that_calls_ray_fails_at_once_and_says_what_to_do(
    isolation: str, make_spec: MakeSpec
) -> None:
    outcome = here(make_spec(f"{MODULE}:calls_ray", num_samples=1, isolation=isolation))
    (trial,) = outcome.trials
    assert trial.state == "failed"
    assert len(trial.attempts) == 1, "a rerun cannot mend it"
    assert 'address="local"' in str(trial.error)


@pytest.mark.parametrize("isolation", ["worker", "process", "actor"])
def test_a_worker_that_is_killed_is_replaced_and_its_trial_continues(
    isolation: str, make_spec: MakeSpec, lines: Lines
) -> None:
    outcome = here(make_spec("one_dies", {"how": "sigkill"}, num_samples=3, isolation=isolation))
    assert outcome.counts == {"completed": 3}
    died = [attempt for trial in outcome.trials for attempt in trial.attempts if attempt.error is not None]
    assert len(died) == 1
    assert "SIGKILL" in str(died[0].error)


def test_a_starter_that_is_killed_costs_each_trial_one_attempt(
    make_spec: MakeSpec, drive: Drive, lines: Lines
) -> None:
    driver = drive(make_spec("slow", {"pause": 0.3}, num_samples=6), address="here", num_cpus=2)
    wait_for(lambda: len(lines()) >= 2, 60)
    (starter,) = starters_of(driver.pid)
    os.kill(starter, signal.SIGKILL)
    outcome = driver.outcome()
    assert outcome.counts == {"completed": 6}
    assert starters_of(driver.pid) == []


def test_nothing_outlives_a_controller_that_is_killed_and_the_sweep_continues(
    make_spec: MakeSpec, drive: Drive, lines: Lines, events: Callable[..., list[Any]]
) -> None:
    spec = make_spec("slow", {"pause": 0.1}, num_samples=16)
    driver = drive(spec, address="here", num_cpus=2)
    wait_for(lambda: sum(line[0] == "end" for line in lines()) >= 6, 60)
    (starter,) = starters_of(driver.pid)
    pids = {int(line[3]) for line in lines() if line[0] == "start"}
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    wait_for(lambda: not any(map(is_alive, [starter, *pids])), 10)
    ended = {event.trial for event in events(TrialReturned)}
    assert ended
    outcome = here(spec)
    assert outcome.counts == {"completed": 16}
    starts = Counter(int(line[1]) for line in lines() if line[0] == "start")
    assert all(starts[trial] == 1 for trial in ended), "what had ended is not run again"


def test_more_than_this_machine_has_is_refused_before_anything_is_stored(
    make_spec: MakeSpec, storage: Path
) -> None:
    with pytest.raises(InfeasibleResourcesError, match=r"asks for 3 CPU.*has 2"):
        here(make_spec("noop", resources={"cpu": 3}, num_samples=1))
    with pytest.raises(InfeasibleResourcesError, match="no node offers 'licence'"):
        here(make_spec("noop", resources={"custom": {"licence": 1}}, num_samples=1))
    assert not storage.exists() or not list(storage.iterdir())


def test_what_needs_ray_is_refused_with_the_fix(make_spec: MakeSpec, storage: Path) -> None:
    bundles = {"bundles": [{"cpu": 1}, {"cpu": 1}]}
    with pytest.raises(rs.SpecError, match=r"resources.bundles.*address=.local."):
        here(make_spec("noop", resources=bundles, num_samples=1))
    with pytest.raises(rs.SpecError, match=r"scaling.driver.*address=.local."):
        here(make_spec("noop", scaling={"num_workers": 2, "driver": {}}, num_samples=1))
    with pytest.raises(rs.SpecError, match="a training is a run of Ray Train"):
        rs.run_training({"name": "t", "trainable": f"{MODULE}:modules"}, address="here")


def test_an_address_without_ray_says_how_to_get_it(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raysweep.cluster.placing.has_ray", lambda: False)
    with pytest.raises(ClusterUnreachableError, match=r"raysweep\[ray\]"):
        rs.run_sweep(make_spec("noop", num_samples=1), address="auto")


def test_each_trial_has_its_part_of_the_gpus(make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    spec = make_spec(
        f"{MODULE}:devices",
        {"pause": 1.0},
        resources={"cpu": 0.1, "gpu": 0.5},
        num_samples=4,
        isolation="worker",
    )
    outcome = here(spec)
    assert Counter(str(trial.metrics["devices"]) for trial in outcome.trials) == {"3": 2, "5": 2}


def test_a_gang_runs_on_this_machine(make_spec: MakeSpec) -> None:
    scaling = {"num_workers": 2, "resources": {"cpu": 0.5}, "backend": None}
    outcome = here(make_spec(f"{MODULE}:ranks", scaling=scaling, num_samples=2))
    assert outcome.counts == {"completed": 2}
    assert {trial.metrics["loss"] for trial in outcome.trials} == {0.0}


def test_each_evaluation_is_answered_however_many_there_are(make_spec: MakeSpec) -> None:
    spec = make_spec(
        "steps",
        {"pause": 0.0, "steps": 6},
        num_samples=2,
        metric="judged",
        evaluate={"trainable": f"{MODULE}:judge", "resources": {"cpu": 0.5}},
        resources={"cpu": 0.5},
    )
    outcome = here(spec)
    assert outcome.counts == {"completed": 2}
    assert [trial.metrics["judged"] for trial in outcome.trials] == [6.0, 6.0]


def test_an_evaluation_whose_process_ends_without_an_answer_has_failed(make_spec: MakeSpec) -> None:
    evaluate = {"trainable": f"{MODULE}:leaves", "resources": {"cpu": 0.5}, "tries": 1}
    spec = make_spec("steps", {"pause": 0.0, "steps": 2}, num_samples=1, evaluate=evaluate)
    outcome = here(spec.replace(resources={"cpu": 0.5}))
    assert outcome.counts == {"completed": 1}
    assert any("ended with exit code 0" in note for note in outcome.notes), outcome.notes


def test_many_small_slots_run_at_once(make_spec: MakeSpec) -> None:
    small = {"resources": {"cpu": 0.05}, "num_samples": 30}
    outcome = here(make_spec(f"{MODULE}:meets_all", {"count": 30}, **small))
    assert outcome.counts == {"completed": 30}


@pytest.mark.ray
def test_a_sweep_that_moves_between_here_and_ray_is_the_undisturbed_one(
    make_spec: MakeSpec, drive: Drive, address: str, lines: Lines, tmp_path: Path
) -> None:
    def spec(folder: Path) -> rs.SweepSpec:
        return make_spec(
            "steps",
            {"pause": 0.02, "steps": 9, "y": {"loguniform": [1e-3, 1]}},
            num_samples=12,
            search={"tpe": {"n_startup_trials": 4}},
            scheduler={"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3}},
            max_concurrent_trials=1,
        ).replace(storage_path=str(folder))

    undisturbed = here(spec(tmp_path / "undisturbed"))
    before = len(lines())
    for number, place in enumerate(["here", address, "here", address]):
        driver = drive(spec(tmp_path / "moved"), address=place)
        steps = before + 15 * (number + 1)
        wait_for(
            lambda steps=steps, driver=driver: len(lines()) >= steps or driver.process.poll() is not None
        )
        assert driver.process.poll() is None, driver.finish()
        os.kill(driver.pid, signal.SIGKILL)
        driver.process.wait()
    moved = here(spec(tmp_path / "moved"))
    assert moved.generation == 5
    assert shown(moved) == shown(undisturbed)
