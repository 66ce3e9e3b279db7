"""Resources by config on a real Ray: what each trial's worker is given."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import raysweep as rs
from tests.engine.conftest import ROOT, Driver, wait_for
from tests.sampling import first_of

pytestmark = pytest.mark.ray


def test_each_trial_has_what_its_config_needs(run: Callable[..., rs.SweepOutcome]) -> None:
    resources = {"cpu": 1, "memory": 100_000_000, "by_config": {"memory": "1e8 * x"}}
    space = {"x": {"grid_search": [1, 3, 1, 2]}}
    outcome = run("tests.engine.trainables:assigned_memory", space, resources=resources)
    assert outcome.counts == {"completed": 4}
    given = [(trial.config["x"], trial.metrics["memory_mb"]) for trial in outcome.trials]
    assert all(memory_mb >= 100 * x for x, memory_mb in given), given
    assert max(memory_mb for _, memory_mb in given) == 300


def says_what_it_has(config: dict[str, Any]) -> dict[str, Any]:
    import os

    context = rs.get_context()
    return {
        "loss": 1.0,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "resources": dict(context.resources),
        "world_size": context.world_size,
    }


@pytest.mark.parametrize("isolation", first_of(["worker", "process", "actor"]))
def test_threads_follow_the_cpus_of_each_config(
    run: Callable[..., rs.SweepOutcome], isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    outcome = run(
        says_what_it_has,
        {"n": {"grid_search": [1, 2, 1, 2, 1]}},
        isolation=isolation,
        resources={"cpu": 1, "by_config": {"cpu": "n"}},
    )
    assert outcome.counts == {"completed": 5}
    for trial in outcome.trials:
        assert trial.metrics["threads"] == str(trial.config["n"])
        assert trial.metrics["resources"]["CPU"] == trial.config["n"]


@pytest.mark.parametrize("isolation", ["process", pytest.param("worker", marks=pytest.mark.slow)])
def test_a_gang_has_as_many_members_as_its_config_says(
    run: Callable[..., rs.SweepOutcome], isolation: str
) -> None:
    outcome = run(
        says_what_it_has,
        {"workers": {"grid_search": [2, 1, 2, 1]}},
        isolation=isolation,
        scaling={"num_workers": 1, "by_config": {"num_workers": "workers"}},
    )
    assert outcome.counts == {"completed": 4}
    assert [trial.metrics["world_size"] for trial in outcome.trials] == [2, 1, 2, 1]


# Of each size: how many workers, and the CPUs of each.
SIZES = {0: (1, 1), 1: (2, 1), 2: (1, 2)}
BY_SIZE = {"num_workers": "1 + size % 2", "resources": {"cpu": "1 + size // 2"}}
SHARES = "tests.engine.gangs:shares"
Lines = Callable[[], list[list[str]]]


def shares_of(lines: Lines) -> dict[int, list[list[str]]]:
    """By trial, of each rank: its number, threads, CPUs, memory, and on how many CPUs it may run."""
    shares: dict[int, list[list[str]]] = defaultdict(list)
    for _, trial, _, *share in sorted(line for line in lines() if line[0] == "share"):
        shares[int(trial)].append(share)
    return shares


@pytest.mark.slow
def test_each_worker_of_a_gang_has_what_its_config_says_also_after_a_kill(
    make_spec: Callable[..., rs.SweepSpec],
    drive: Callable[..., Driver],
    address: str,
    lines: Lines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    spec = make_spec(
        SHARES,
        {"size": {"grid_search": [0, 1, 2, 0, 2, 1, 0, 1, 2]}, "pause_s": 0.3},
        search="grid",
        isolation="worker",
        scaling={"by_config": BY_SIZE},
    )
    driver = drive(spec, address=address)
    wait_for(lambda: len(shares_of(lines)) >= 4 or driver.process.poll() is not None)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.generation == 2
    assert outcome.counts == {"completed": 9}
    told = shares_of(lines)
    for trial in outcome.trials:
        workers, cpus = SIZES[trial.config["size"]]
        assert trial.metrics["world_size"] == workers
        assert trial.metrics["total"]["CPU"] == workers * cpus
        given = {tuple(share[:3]) for share in told[trial.number]}
        assert given == {(str(rank), str(cpus), f"{cpus}.0") for rank in range(workers)}


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["process", "actor"])
def test_threads_of_each_worker_follow_its_cpus_and_its_memory_its_config(
    run: Callable[..., rs.SweepOutcome], lines: Lines, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    each = {**BY_SIZE["resources"], "memory": "1e8 + 1e8 * size"}  # type: ignore[dict-item]
    outcome = run(
        SHARES,
        {"size": {"grid_search": [0, 2, 1, 2, 0]}},
        isolation=isolation,
        scaling={
            "resources": {"cpu": 1, "memory": 100_000_000},
            "by_config": {**BY_SIZE, "resources": each},
        },
    )
    assert outcome.counts == {"completed": 5}
    told = shares_of(lines)
    for trial in outcome.trials:
        workers, cpus = SIZES[trial.config["size"]]
        shares = told[trial.number]
        assert [share[1] for share in shares] == [str(cpus)] * workers
        if isolation == "actor":  # a forked process has no Ray to ask
            assert [share[3] for share in shares] == [f"{100 + 100 * trial.config['size']}.0"] * workers


@pytest.mark.slow
def test_each_worker_is_pinned_to_as_many_cpus_as_its_config_says(
    run: Callable[..., rs.SweepOutcome], lines: Lines
) -> None:
    outcome = run(
        SHARES,
        {"size": {"grid_search": [0, 2, 1, 2, 0]}},
        scaling={"pin_cpus": True, "by_config": BY_SIZE},
    )
    assert outcome.counts == {"completed": 5}
    told = shares_of(lines)
    for trial in outcome.trials:
        workers, cpus = SIZES[trial.config["size"]]
        assert [share[4] for share in told[trial.number]] == [str(cpus)] * workers


@pytest.mark.slow
def test_a_gang_of_which_the_nodes_cannot_hold_all_fails_when_the_others_are_done(
    run: Callable[..., rs.SweepOutcome],
) -> None:
    outcome = run(
        SHARES,
        {"size": {"grid_search": [1, 3, 2]}},
        scaling={"by_config": BY_SIZE},
        failure={"placement_timeout_s": 1.0},
    )
    assert [trial.state for trial in outcome.trials] == ["completed", "failed", "completed"]
    error = outcome.trials[1].error
    assert error is not None
    said = "(scaling.by_config): it needs 2 workers of {CPU: 2}, for which no node has room"
    assert said in error.message


def test_what_no_node_has_fails_that_trial_when_the_others_are_done(
    run: Callable[..., rs.SweepOutcome],
) -> None:
    outcome = run(
        says_what_it_has,
        {"n": {"grid_search": [1, 64, 2]}},
        resources={"cpu": 1, "by_config": {"cpu": "n"}},
        failure={"placement_timeout_s": 1.0},
    )
    assert [trial.state for trial in outcome.trials] == ["completed", "failed", "completed"]
    error = outcome.trials[1].error
    assert error is not None
    assert "is large by its config (resources.by_config): it needs cpu=64, for which no node" in error.message


@pytest.mark.slow
def test_the_example_runs(ray_cluster: object, storage: Path) -> None:
    spec = yaml.safe_load((ROOT / "examples/memory_by_config.yaml").read_text())
    outcome = rs.run_sweep({**spec, "storage_path": str(storage)}, key="k")
    assert outcome.counts == {"completed": 16}
    assert all(trial.metrics["held_mb"] == trial.config["width"] for trial in outcome.trials)
