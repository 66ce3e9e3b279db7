"""Evaluation apart from training: checkpoints judged on other resources, with what goes wrong there."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core.vocabulary.events import TrialReported
from raysweep.errors import InfeasibleResourcesError, TrainableImportError
from raysweep.simulate import simulate
from tests.engine.conftest import Driver, wait_for
from tests.engine.evaluated import LENGTH, accuracy

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
HERE = "tests.engine.evaluated"
ASHA = {"asha": {"max_t": LENGTH, "grace_period": 1, "reduction_factor": 2}}
FIELDS: dict[str, Any] = {"metric": "acc", "mode": "max", "max_concurrent_trials": 1}
MakeSpec = Callable[..., rs.SweepSpec]
Run = Callable[..., rs.SweepOutcome]
Lines = Callable[[], list[list[str]]]


@pytest.mark.slow
def test_a_slow_judge_decides_as_if_it_took_no_time_whatever_is_killed(
    make_spec: MakeSpec, drive: Callable[..., Driver], address: str, lines: Lines, storage: Path
) -> None:
    """20 trials under ASHA; two evaluations and the controller are killed."""
    space = {"judge_s": 0.1, "dies": [[0, 1], [3, 2]]}
    evaluate = {"trainable": f"{HERE}:judge", "resources": {"cpu": 0.5}, "slots": 1}
    spec = make_spec(
        f"{HERE}:train",
        space,
        num_samples=20,
        scheduler=ASHA,
        evaluate=evaluate,
        resources={"cpu": 1},
        **FIELDS,
    )
    driver = drive(spec, address=address)
    wait_for(lambda: sum(line[0] == "judge" for line in lines()) >= 12)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.generation == 2
    judged = Counter((line[1], line[2]) for line in lines() if line[0] == "judge")
    assert min(judged["0", "1"], judged["3", "2"]) > 1, "evaluations that were killed ran again"

    # The same core, told of each accuracy with its report.
    immediate = spec.replace(evaluate=None)
    expected = simulate(immediate, immediately, save_every=1).outcome
    assert decided(outcome) == decided(expected)
    assert {trial.state for trial in outcome.trials} == {"completed", "stopped"}

    counted = [row for row in outcome.reports() if not row["overrun"]]
    for row in counted:
        assert row["acc"] == accuracy(outcome.trials[row["number"]].config["x"], row["iteration"])
    for trial in outcome.trials:
        mine = [row["iteration"] for row in counted if row["number"] == trial.number]
        assert mine == [*range(1, trial.metrics["training_iteration"] + 1)], "each is there, once"


def immediately(config: Any, iteration: int) -> dict[str, Any] | None:
    if iteration > LENGTH:
        return None
    return {"step": iteration, "acc": accuracy(config["x"], iteration)}


def decided(outcome: rs.SweepOutcome) -> list[Any]:
    assert outcome.best is not None
    trials = [(trial.config["x"], trial.state, trial.metrics, trial.score) for trial in outcome.trials]
    return [outcome.best.number, outcome.status, *trials]


@pytest.mark.slow
def test_an_evaluation_that_fails_each_time_is_noted_and_the_sweep_goes_on(run: Run, lines: Lines) -> None:
    outcome = run(
        f"{HERE}:train",
        num_samples=2,
        evaluate={"trainable": f"{HERE}:broken_judge", "tries": 2, "resources": {"cpu": 0.5}},
        **FIELDS,
    )
    assert outcome.counts == {"completed": 2}
    assert Counter(line[1] for line in lines() if line[0] == "broken") == {"0": 2, "1": 2}
    rows = [("acc" in row) for row in outcome.reports() if row["number"] == 0]
    assert rows == [True, False, True, True]
    note = "the evaluation after report 2 failed 2 times, the last time with KeyError: 'no such layer'"
    # On a busy machine the place for evaluations may come late, and that is a note too.
    notes = [text for text in outcome.notes if not text.startswith("no room at present: 1 x")]
    assert notes == [f"trial {n}: {note}: the report counts without it" for n in (0, 1)]


def test_a_command_evaluates_each_second_checkpoint(run: Run, tmp_path: Path) -> None:
    # In forked processes the announcements and answers go another way.
    script = tmp_path / "judge.sh"
    script.write_text('raysweep emit acc=0.$2 seen=$(grep -c step "$1/state")\n')
    evaluate = {"command": ["bash", str(script), "{checkpoint}", "{iteration}"], "every": 2, "ahead": 0}
    outcome = run(
        f"{HERE}:train",
        num_samples=1,
        evaluate=evaluate | {"resources": {"cpu": 0.5}},
        isolation="process",
        **FIELDS,
    )
    assert [(row.get("acc"), row.get("seen")) for row in outcome.reports()] == [
        (None, None),
        (0.2, 1),
        (None, None),
        (0.4, 1),
    ]


@pytest.mark.slow
def test_an_evaluation_may_start_tasks_of_ray_where_the_cluster_has_room(run: Run) -> None:
    judge = {"trainable": f"{HERE}:helped_judge", "resources": {"cpu": 0.5}, "tries": 1}
    outcome = run(f"{HERE}:train", num_samples=1, evaluate=judge, **FIELDS)
    x = outcome.trials[0].config["x"]
    assert [row.get("acc") for row in outcome.reports()] == [accuracy(x, n + 1) for n in range(LENGTH)]


def test_it_is_in_the_journal_with_the_report_that_it_belongs_to(
    run: Run, events: Callable[..., list[Any]]
) -> None:
    run(f"{HERE}:train", num_samples=1, evaluate={"trainable": f"{HERE}:judge"}, **FIELDS)
    told = [event for event in events(TrialReported) if event.rows]
    assert [(event.first, event.keys) for event in told] == [(n, ("step", "acc")) for n in range(LENGTH)]


def test_bad_input_is_refused_before_anything_starts(make_spec: MakeSpec, ray_cluster: Any) -> None:
    spec = make_spec(f"{HERE}:train", evaluate={"trainable": f"{HERE}:judge", "slots": 2}, **FIELDS)
    with pytest.raises(InfeasibleResourcesError, match="beside 2 evaluations of"):
        rs.run_sweep(spec, key="k")
    large = {"trainable": f"{HERE}:judge", "resources": {"cpu": 9}}
    with pytest.raises(InfeasibleResourcesError, match=r"evaluate\.resources.* 9"):
        rs.run_sweep(spec.replace(evaluate=large), key="k")
    with pytest.raises(TrainableImportError, match=r"evaluate\.trainable"):
        rs.run_sweep(spec.replace(evaluate={"trainable": "tests.engine.nowhere:f"}), key="k")
