"""Gangs: trials of several ranks, on a real Ray, with a real process group."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary import events as ev
from tests.engine.conftest import Driver, wait_for

pytestmark = pytest.mark.ray
GANGS = "tests.engine.gangs"
TWO = {"num_workers": 2}
TORCH = {**TWO, "backend": "torch"}
Run = Callable[..., rs.SweepOutcome]
Lines = Callable[[], list[list[str]]]


def of(lines: list[list[str]], what: str) -> list[list[str]]:
    return [words[1:] for words in lines if words[0] == what]


@pytest.mark.servers
@pytest.mark.parametrize("isolation", ["worker", pytest.param("process", marks=pytest.mark.slow)])
def test_each_rank_knows_its_place_and_the_same_processes_serve_all_trials(
    run: Run, lines: Lines, isolation: str
) -> None:
    outcome = run(f"{GANGS}:places", num_samples=3, isolation=isolation, scaling=TWO)
    assert outcome.counts == {"completed": 3}
    assert {trial.metrics["rank"] for trial in outcome.trials} == {0}, "rank 0's report counts"
    placed = of(lines(), "place")
    assert sorted(words[:6] for words in placed) == [
        [str(trial), "1", str(rank), "2", str(rank), "0"] for trial in range(3) for rank in range(2)
    ]
    assert len({words[6] for words in placed}) == (2 if isolation == "worker" else 6)
    assert {tuple(words[2:]) for words in of(lines(), "env")} == {
        ("0", "0", "2", "0", "2", "0", "None"),
        ("1", "1", "2", "1", "2", "0", "None"),
    }


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["worker", "process"])
def test_ddp_under_asha_with_a_rank_killed_completes_with_equal_weights_on_all_ranks(
    run: Run, lines: Lines, isolation: str
) -> None:
    outcome = run(
        f"{GANGS}:ddp",
        {"lr": 0.01, "steps": 4, "kill": 4},  # which is the best so far, and is not stopped
        num_samples=8,
        isolation=isolation,
        scaling=TORCH,
        scheduler={"asha": {"max_t": 4, "grace_period": 1, "reduction_factor": 2}},
    )
    assert set(outcome.counts) <= {"completed", "stopped"}, outcome.counts
    assert sum(outcome.counts.values()) == 8
    assert outcome.counts.get("stopped"), "ASHA stops some"
    said = lines()
    assert {words[4] for words in of(said, "step")} == {"True"}
    assert all(trial.metrics["equal"] for trial in outcome.trials)
    attempts = defaultdict(set)
    for trial, attempt, rank, begin, _, port in of(said, "begin"):
        attempts[trial, attempt].add((rank, begin, port))
    assert all({rank for rank, _, _ in found} == {"0", "1"} for found in attempts.values())
    assert all(len({port for _, _, port in found}) == 1 for found in attempts.values())
    assert len({port for found in attempts.values() for _, _, port in found}) == len(attempts)
    assert {begin for _, begin, _ in attempts["4", "2"]} == {"2"}, "from the newest checkpoint"
    assert outcome.trials[4].state == "completed"


def test_a_killed_rank_costs_one_attempt_and_the_gang_resumes_from_its_newest_checkpoint(
    run: Run, lines: Lines, events: Callable[..., list[Any]], tmp_path: Path
) -> None:
    """Without a process group: the one of torch takes ten seconds to start, and `test_ddp_…` has it."""
    go = tmp_path / "go"
    go.touch()
    outcome = run(f"{GANGS}:walk", {"slope": 0.5, "kills": {"0": 4}, "go": str(go)}, scaling=TWO)
    assert outcome.counts == {"completed": 1}
    (lost,) = events(ev.SlotLost)
    assert lost.failure.type == "WorkerDied"
    stored = events(ev.CheckpointCommitted, ev.SlotLost).index(lost)
    assert stored in (3, 4), "rank 0 may store one more before it hears of the other's death"
    resumed = sorted(words[:4] for words in of(lines(), "resumed"))
    assert resumed == [["0", "2", rank, str(stored)] for rank in ("0", "1")]
    assert events(ev.TrialFailed) == []


@pytest.mark.slow
@pytest.mark.servers
def test_a_rank_that_raises_fails_the_attempt_with_its_own_error_and_the_workers_stay(
    run: Run, lines: Lines, events: Callable[..., list[Any]]
) -> None:
    outcome = run(f"{GANGS}:raises", scaling=TORCH, failure={"max_failures": 1})
    assert outcome.counts == {"completed": 1}
    (failed,) = events(ev.TrialFailed)
    assert (failed.failure.type, failed.failure.message) == ("ValueError", "rank 1: boom")
    assert len(events(ev.SlotOpened)) == 1


@pytest.mark.servers
@pytest.mark.parametrize("isolation", ["worker", pytest.param("process", marks=pytest.mark.slow)])
def test_a_rank_in_a_collective_that_the_other_has_left_is_ended_without_a_kill(
    run: Run, events: Callable[..., list[Any]], isolation: str
) -> None:
    outcome = run(
        f"{GANGS}:leaves_alone",
        num_samples=2,
        isolation=isolation,
        scaling=TORCH,
        stop={"trial": {"training_iteration": 3}},
    )
    assert outcome.counts == {"completed": 2}
    assert [stopped.was_killed for stopped in events(ev.TrialStopped)] == [False, False]
    assert len(events(ev.SlotOpened)) == 1, "the workers stay"


@pytest.mark.servers
@pytest.mark.parametrize("isolation", ["worker", pytest.param("process", marks=pytest.mark.slow)])
def test_a_rank_that_hears_nothing_is_killed_and_the_next_trial_runs(
    run: Run, lines: Lines, isolation: str
) -> None:
    outcome = run(
        f"{GANGS}:deaf",
        num_samples=2,
        isolation=isolation,
        scaling=TWO,
        stop={"trial": {"training_iteration": 2}},
    )
    assert outcome.counts == {"completed": 2}
    assert len(of(lines(), "deaf")) == 2


@pytest.mark.servers
def test_a_sweep_of_gangs_goes_on_after_its_controller_was_killed(
    drive: Callable[..., Driver],
    make_spec: Callable[..., rs.SweepSpec],
    lines: Lines,
    tmp_path: Path,
    address: str,
) -> None:
    spec = make_spec(f"{GANGS}:slow", {"go": str(tmp_path / "go")}, scaling=TORCH, num_samples=2)
    first = drive(spec, address=address)
    wait_for(lambda: len(of(lines(), "stored")) >= 3)
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    (tmp_path / "go").touch()
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.counts == {"completed": 2}
    again = [words for words in of(lines(), "begin") if words[:2] == ["0", "2"]]
    assert sorted(words[2] for words in again) == ["0", "1"]
    assert len({words[3] for words in again}) == 1
    assert int(again[0][3]) > 0, "from a checkpoint"


def test_a_gang_that_no_cluster_of_this_size_can_hold_is_refused_before_anything_starts(run: Run) -> None:
    with pytest.raises(rs.RaysweepError, match=r"^scaling") as raised:
        run(f"{GANGS}:places", scaling={"num_workers": 3})
    assert "3 workers of {CPU: 1}" in str(raised.value)
    with pytest.raises(rs.RaysweepError, match=r"^scaling\.resources\.cpu: .* 4 CPU"):
        run(f"{GANGS}:places", scaling={**TWO, "resources": {"cpu": 4}})


def test_reduced_reports_are_each_said_once_also_where_a_rank_was_killed_between_them(
    run: Run, lines: Lines, events: Callable[..., list[Any]]
) -> None:
    outcome = run(f"{GANGS}:reduced", scaling={**TWO, "metrics": {"loss": "mean", "n": "sum"}})
    assert outcome.counts == {"completed": 1}
    reported = [
        dict(zip(event.keys, row, strict=True)) for event in events(ev.TrialReported) for row in event.rows
    ]
    assert reported == [{"loss": step + 0.5, "n": 11, "step": step} for step in range(4)]
    assert {tuple(words[1:]) for words in of(lines(), "begin")} == {
        *(("1", str(rank), "0") for rank in range(2)),
        *(("2", str(rank), "2") for rank in range(2)),
    }
    kept = [(event.report, event.score) for event in events(ev.CheckpointCommitted)]
    assert kept == [(0, 0.5), (1, 1.5), (0, 2.5), (1, 3.5)], "of each attempt's reports, with their means"


@pytest.mark.servers
def test_where_only_rank_0_reports_a_reduction_is_refused_with_the_fix(run: Run) -> None:
    outcome = run(f"{GANGS}:rank_0_reports", scaling={**TWO, "metrics": "mean"}, failure={"max_failures": 0})
    assert outcome.counts == {"failed": 1}
    (trial,) = outcome.trials
    assert trial.error is not None
    said = trial.error.message
    assert said.startswith("rank 1 returned after no reports, and rank 0 has made 1: report equally often")
    assert "remove scaling.metrics" in said


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_a_sharded_model_resumes_from_its_sharded_checkpoint_as_if_nothing_had_happened(
    run: Run, lines: Lines
) -> None:
    pytest.importorskip("torch")
    outcome = run(f"{GANGS}:fsdp", {"kill": 1}, num_samples=2, scaling=TORCH)
    assert outcome.counts == {"completed": 2}
    begun = {(trial, attempt): begin for trial, attempt, _, begin, *_ in of(lines(), "begin")}
    assert begun == {("0", "1"): "0", ("1", "1"): "0", ("1", "2"): "3"}
    for _, _, _, _, own, all_of_them in of(lines(), "begin"):
        assert 0 < int(own) < int(all_of_them), "no rank holds the whole model"
    weights = defaultdict(set)
    for _, _, _, step, *found in of(lines(), "weights"):
        weights[step].add(tuple(found))
    assert sorted(weights) == ["1", "2", "3", "4", "5"]
    assert all(len(found) == 1 for found in weights.values()), "the same in both ranks, and in both trials"
