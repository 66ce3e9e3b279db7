"""`raysweep plan` of sweeps whose trials take different amounts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

Cli = Callable[..., Any]
SPEC: dict[str, Any] = {
    "name": "sized",
    "trainable": "examples.quick:steps",
    "param_space": {"threads": {"choice": [1, 2]}, "width": {"randint": [1, 9]}},
    "metric": "loss",
    "mode": "min",
    "num_samples": 6,
    "search": "random",
}


@pytest.fixture
def plan(cli: Cli, tmp_path: Path) -> Cli:
    def run(*flags: str, **more: Any) -> Any:
        path = tmp_path / "spec.json"
        path.write_text(json.dumps({**SPEC, "storage_path": str(tmp_path / "sweeps"), **more}))
        ran = cli("plan", path, *flags)
        assert ran.code == 0, ran.err
        return ran.out

    return run


def test_what_follows_from_the_config_is_said(plan: Cli) -> None:
    resources = {"cpu": 1, "memory": 1000, "by_config": {"cpu": "threads", "memory": "1e3 + 8 * width"}}
    said = plan(resources=resources)
    assert "each takes  at least {CPU: 1, memory: 1000}" in said
    assert "by config   cpu: threads" in said
    assert "by config   memory: 1e3 + 8 * width" in said
    assert "at once     at most " in said
    assert json.loads(plan("--json", resources=resources))["by_config"] == resources["by_config"]


def test_so_are_custom_resources(plan: Cli) -> None:
    by_config = {"cpu": "threads", "custom": {"licence": "2 * threads"}}
    said = plan(resources={"cpu": 1, "by_config": by_config})
    assert "by config   cpu: threads" in said
    assert "by config   custom.licence: 2 * threads" in said
    found = json.loads(plan("--json", resources={"cpu": 1, "by_config": by_config}))["by_config"]
    assert found == {"cpu": "threads", "custom.licence": "2 * threads"}


def test_so_is_how_many_workers_a_gang_has(plan: Cli) -> None:
    scaling = {"num_workers": 1, "backend": None, "by_config": {"num_workers": "threads"}}
    assert "by config   num_workers: threads" in plan(scaling=scaling)


def test_so_is_what_each_of_them_takes(plan: Cli) -> None:
    by_config = {"num_workers": "threads", "resources": {"cpu": "2 * threads"}}
    scaling = {"num_workers": 2, "by_config": by_config}
    said = plan(scaling=scaling)
    assert "each takes  at least {CPU: 1} + {CPU: 1}" in said
    assert "by config   num_workers: threads" in said
    assert "by config   resources.cpu: 2 * threads" in said
    found = json.loads(plan("--json", scaling=scaling))["by_config"]
    assert found == {"num_workers": "threads", "resources.cpu": "2 * threads"}


def test_an_inline_trial_needs_no_room(plan: Cli) -> None:
    large = {"cpu": 4096, "custom": {"licence": 3}}
    said = plan(resources=large, isolation="inline", max_concurrent_trials=1)
    assert "each takes  {CPU: 4096, licence: 3}" in said
    assert "at once     1 on this machine" in said


def test_nothing_is_said_where_all_are_alike(plan: Cli) -> None:
    said = plan()
    assert "each takes  {CPU: 1}" in said
    assert "by config" not in said
    assert "at most" not in said
    assert json.loads(plan("--json"))["by_config"] == {}


def test_so_is_how_many_trials_share_a_gpu(
    plan: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nvidia-smi` stands in for itself, and Ray counts one GPU."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, GPU-a, 9, 81559, H100'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("raysweep.raycompat.machine.count_gpus", lambda: 1.0)
    monkeypatch.setattr("raysweep.raycompat.machine.count_cpus", lambda: 16.0)
    said = " ".join(plan(resources={"cpu": 1, "gpu_memory": "10GiB"}).split())
    assert "each takes {CPU: 1, GPU: 0.125}" in said
    assert "at once 8 on this machine" in said
    assert (
        "shares 8 trials share each GPU (resources.gpu_memory: 10 GiB): the smallest, of this machine,"
        in said
    )
    assert json.loads(plan("--json", resources={"cpu": 1, "gpu": 1}))["shares"] == ""
    program.write_text("#!/bin/sh\nexit 9\n")
    assert "shares" not in plan(resources={"cpu": 1, "gpu_memory": "10GiB"})


# --- what is wrong before it runs


@pytest.fixture
def refused(cli: Cli, tmp_path: Path) -> Cli:
    def run(*flags: str, **more: Any) -> Any:
        path = tmp_path / "spec.json"
        path.write_text(json.dumps({**SPEC, "storage_path": str(tmp_path / "sweeps"), **more}))
        return cli("plan", path, *flags)

    return run


def test_the_trainable_is_imported(refused: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken_here.py").write_text("import no_such_module_anywhere\ndef f(config): ...\n")
    for trainable, problem in (
        ("examples.quick:stepz", "steps"),
        ("broken_here:f", "no_such_module_anywhere"),
    ):
        ran = refused(trainable=trainable)
        assert (ran.code, ran.err.startswith("error: trainable: ")) == (2, True), ran.err
        assert problem in ran.err


def test_how_many_trials_are_distinct_is_said(plan: Cli) -> None:
    small = {"x": {"choice": [1, 2, 3]}, "y": {"choice": [1, 2, 3, 4]}}
    said = plan(param_space=small, num_samples=30)
    assert "trials      30, about 11 distinct of 12 configs: samples are drawn with replacement" in said
    found = json.loads(plan("--json", param_space=small, num_samples=30))
    assert (found["trials"], found["distinct_configs"]) == (30, 12)
    said = plan(param_space=small, num_samples=30, search={"random": {"distinct": True}})
    assert "trials      12 of 12 distinct configs\n" in said
    said = plan(param_space={"x": {"grid_search": [1, 2, 3]}}, num_samples=2)
    assert "trials      6 of 3 distinct configs, each 2 times" in said
    assert "trials      6\n" in plan(param_space={"x": {"uniform": [0, 1]}})


def test_what_limits_the_concurrency_is_said(plan: Cli) -> None:
    assert ", limited by CPU (" in plan(resources={"cpu": 1}, num_samples=1000)
    assert "at once     1 on this machine, limited by max_concurrent_trials" in plan(max_concurrent_trials=1)
    inline = plan(isolation="inline", max_concurrent_trials=1)
    assert "limited by isolation: inline" in inline


@pytest.mark.parametrize("space", [{"x": [1, 2, 3]}, {"x": {"min": 0, "max": 1}}, {"x": 3}])
def test_a_space_in_which_nothing_is_searched_is_warned_of(plan: Cli, space: dict[str, Any]) -> None:
    said = plan(param_space=space)
    assert "warning     nothing is searched: every trial has the same config" in said
    assert "warning" not in plan()
    assert len(json.loads(plan("--json", param_space=space))["warnings"]) == 1


def test_a_pipeline_is_planned(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "night.json"
    train = {"name": "full", "trainable": "examples.quick:steps", "scaling": {"num_workers": 2}}
    night = {"sweep": SPEC, "gate": {"min_improvement": 0.01}, "train": train}
    path.write_text(json.dumps(night))
    ran = cli("plan", path, "--set", "sweep.num_samples=3", "--storage", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "trials      3," in ran.out
    assert (
        "then        gate: the best 3 configs and the champion, 3 seeds each, test paired, 0.01 better"
        in ran.out
    )
    assert "then        train: examples.quick:steps, 2 workers" in ran.out
    path.write_text(json.dumps({**night, "train": {**train, "trainable": "examples.quick:stepz"}}))
    assert cli("plan", path, "--storage", tmp_path / "out").code == 2


H100 = "8xH100,2xCPU64"


def test_a_cluster_is_planned_by_its_description(plan: Cli) -> None:
    said = plan("--cluster", H100, resources={"cpu": 4, "gpu": 0.5}, num_samples=40)
    assert f"at once     16 on --cluster {H100}, limited by GPU (8 in all)" in said
    assert "8xH100 (1 node, each 8 GPUs, 128 CPUs, 512 GiB): 16 trials, 2 to a card" in said
    assert "more would fit from gpu: 0.333 down" in said
    assert "2xCPU64 (2 nodes, each 64 CPUs, 256 GiB): nothing fits: a trial asks for {GPU: 0.5}" in said


def test_gpu_memory_is_looked_up_by_the_name_of_the_gpu(plan: Cli) -> None:
    said = plan("--cluster", "4x8xH200+CPU192", resources={"cpu": 1, "gpu_memory": "30GiB"}, num_samples=500)
    assert "4 trials share each GPU" in said
    assert "at once     128 on" in said


def test_sizes_that_no_node_holds_are_said(plan: Cli) -> None:
    said = plan("--cluster", "2xCPU4", resources={"cpu": 1, "by_config": {"cpu": "8 * threads"}})
    assert "never fits" in said
    assert "500 of 500 drawn configs ask for more than any node has, such as cpu: " in said


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--cluster", "8xQ7"), "'Q7' is not a known GPU"),
        (("--cluster", "eight"), "'eight' is not a known GPU"),
        (("--cluster", "0xCPU8"), "'0xCPU8' has nothing"),
        (("--cluster", "2x2xCPU8"), "'2x2xCPU8' has two counts for CPUs"),
        (
            ("--cluster", "8xH100+much"),
            "'much' of '8xH100+much' is neither a number of CPUs nor a size of memory",
        ),
        (("--cluster", ","), "'' is not a kind of node"),
        (("--step-seconds", "0"), "0 is not a duration"),
        (("--nights", "0"), "0 is too few"),
    ],
)
def test_an_option_that_cannot_be_is_one_line(
    cli: Cli, tmp_path: Path, flags: tuple[str, ...], problem: str
) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({**SPEC, "storage_path": str(tmp_path / "sweeps")}))
    ran = cli("plan", path, *flags)
    assert ran.code == 2
    assert f"{flags[0]}: {problem}" in ran.err
    assert "Traceback" not in ran.err


def test_the_end_is_expected_by_the_time_of_a_step(plan: Cli) -> None:
    flags = ("--cluster", "1xCPU2", "--step-seconds", "100")
    said = plan(*flags, "--json", stop={"cost_per_hour": {"cpu": 1}})
    found = json.loads(said)["estimate"]
    # Six trials, two at once, a step each, and the start of the workers.
    assert 295 <= found["end_at"]["expected"] - found["made_at"] <= 320
    assert found["cost"]["expected"] == pytest.approx(6 * 100 / 3600, rel=0.1)
    assert "ends        in 5:0" in plan(*flags)
    assert "give --step-seconds" in plan()


def write_night(
    storage: Path, number: int, *, best_threads: int, furthest: int, sizes: tuple[int, ...] = ()
) -> None:
    """A night of twenty trials, a minute each on two slots; its fourth is the best. `sizes`: their rows."""
    from raysweep.outcome import AttemptOutcome, SweepOutcome, TrialOutcome
    from raysweep.runs.folder import SweepFolder
    from raysweep.specs import sweep_id
    from raysweep.storage.objects.opening import open_store

    begin = 1_000_000.0 * number
    trials = []
    for each in range(20):
        at = begin + 10 + each // 2 * 60
        config = {"threads": 1, "rate": 1e-1 if each == 3 else 0.01, "width": best_threads}
        trials.append(
            TrialOutcome(
                trial_id=f"{each:05d}",
                number=each,
                state="completed",
                config=config,
                scale={"rows": sizes[each % len(sizes)]} if sizes else {},
                score=0.1 if each == 3 else 0.5,
                metrics={"loss": 0.1 if each == 3 else 0.5},
                reports=furthest,
                started_at=at,
                ended_at=at + 60,
                attempts=(AttemptOutcome(attempt=1, started_at=at, ended_at=at + 60, end="completed"),),
            )
        )
    name = sweep_id("sized", f"2026-11-{number:02d}")
    outcome = SweepOutcome(
        sweep_id=name,
        name="sized",
        key=f"2026-11-{number:02d}",
        status="completed",
        metric="loss",
        mode="min",
        best=trials[3],
        trials=tuple(trials),
        counts={"completed": len(trials)},
        num_trials=len(trials),
        started_at=begin,
        ended_at=begin + 610,
    )
    SweepFolder(open_store(str(storage)), name).write_outcome_if_absent(outcome)


def test_earlier_nights_say_when_it_ends_and_what_to_change(plan: Cli, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write_night(tmp_path / "sweeps", number, best_threads=5, furthest=6)
    more: dict[str, Any] = {
        "param_space": {"rate": {"loguniform": [1e-4, 1e-1]}, "width": {"randint": [1, 9]}},
        "num_samples": 20,
        "scheduler": {"asha": {"max_t": 50}},
    }
    said = plan("--cluster", "1xCPU2", "--nights", "3", **more)
    assert "by 3 earlier nights" in said
    assert "no trial of 3 nights came to max_t: 50; the furthest made 6 reports" in said
    assert "rate: the best trial of 3 of 3 nights is at the upper bound 0.1: move it" in said
    assert "the best trial of 3 of 3 nights was among the first 40%" in said
    assert "width" not in said.split("nights say", 1)[1]
    plain = json.loads(plan("--cluster", "1xCPU2", "--json", **(more | {"scheduler": "fifo"})))
    # What came true on each of these nights, within a fifth.
    took_s = plain["estimate"]["end_at"]["expected"] - plain["estimate"]["made_at"]
    assert took_s == pytest.approx(610, rel=0.2)


def test_so_is_which_part_of_the_trials_each_scale_gets(plan: Cli) -> None:
    scales = [{"rows": 40000, "share": 0.5}, {"rows": 20000}]
    said = plan(scales=scales)
    assert "scale       rows=20000: 3 trials, 50%" in said
    assert "scale       rows=40000: 3 trials, 50%" in said
    found = json.loads(plan("--json", scales=scales))["scales"]
    assert found[0] == {"scale": {"rows": 20000}, "trials": 3, "share": 0.5, "hours": None, "cost": None}
    assert "scale       rows=80000: 6 trials, 100%" in plan(scale={"rows": 80000})


def test_scales_and_training_are_priced_by_earlier_nights(cli: Cli, tmp_path: Path) -> None:
    write_night(tmp_path / "out", 1, best_threads=1, furthest=6, sizes=(10000, 20000))
    prices = {"cost_per_hour": {"cpu": 0.5}}
    sweep = {**SPEC, "scales": [{"rows": 10000}, {"rows": 40000}], "num_samples": 120, "stop": prices}
    train = {
        "name": "full",
        "trainable": "examples.quick:steps",
        "scaling": {"num_workers": 2},
        "scale": {"rows": 160000},
        "transfer": {"width": "same"},
    }
    path = tmp_path / "night.json"
    path.write_text(json.dumps({"sweep": sweep, "train": train}))
    said = cli("plan", path, "--storage", tmp_path / "out").out
    assert "rows=10000: 60 trials, 50%, 1 trial-hours, cost 0.50" in said
    assert "rows=40000: 60 trials, 50%, 1 trial-hours, cost 0.50" in said, "all took a minute"
    wanted = "steps at rows=160000, 2 workers, 0.0167 hours, cost 0.02 (by trials of earlier nights)"
    assert wanted in said
    found = json.loads(cli("plan", path, "--storage", tmp_path / "out", "--json").out)["scales"]
    assert [each["hours"] for each in found] == pytest.approx([1.0, 1.0])
    assert [each["cost"] for each in found] == pytest.approx([0.5, 0.5])


def test_a_larger_scale_is_priced_as_the_time_of_trials_grows() -> None:
    from raysweep.cli.commands.planning.prices import _on_line

    assert _on_line([(1.0, 2.0)], 3.0) == 4.0, "by one scale: in proportion"
    assert _on_line([(1.0, 2.0), (2.0, 2.5)], 4.0) == pytest.approx(3.5)
    assert _on_line([(1.0, 2.0), (2.0, 1.0)], 4.0) == 1.5, "it does not fall"


def test_scales_are_priced_by_the_time_of_a_step(plan: Cli) -> None:
    said = plan("--step-seconds", "30", scales=[{"rows": 1}, {"rows": 2}], scheduler={"asha": {"max_t": 40}})
    assert "rows=2: 3 trials, 50%, 1 trial-hours" in said
