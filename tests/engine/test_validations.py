"""Validations of Ray Train runs as evaluations of a sweep, on a real Ray."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import raysweep as rs
from raysweep.simulate import simulate
from tests.engine.conftest import Driver, wait_for
from tests.engine.evaluated import accuracy

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
FIT = "tests.engine.validated:fit"
MakeSpec = Callable[..., rs.SweepSpec]
Run = Callable[..., rs.SweepOutcome]
Lines = Callable[[], list[list[str]]]
FIELDS: dict[str, Any] = {
    "metric": "acc",
    "mode": "max",
    "max_concurrent_trials": 1,
    "evaluate": {"trainable": "validation_config", "resources": {"cpu": 0.5}, "tries": 2},
}


def scaled(workers: int = 1) -> dict[str, Any]:
    return {"num_workers": workers, "resources": {"cpu": 0.5}, "driver": {}}


@pytest.mark.slow
def test_a_validation_is_in_the_report_that_asked_for_it_and_in_what_fit_returns(
    run: Run, lines: Lines
) -> None:
    """Of two workers; one validation is killed and made again, one fails each time."""
    space = {"workers": 2, "steps": 6, "seldom": 2, "dies": [[0, 2]], "raises": [[0, 4]]}
    outcome = run(FIT, space, num_samples=1, scaling=scaled(2), **FIELDS)
    assert outcome.counts == {"completed": 1}
    x = outcome.trials[0].config["x"]
    rows = [(row["step"], row.get("acc")) for row in outcome.reports()]
    assert rows == [(1, None), (2, accuracy(x, 2)), (3, None), (4, None), (5, None), (6, accuracy(x, 6))]
    made = Counter(words[2] for words in lines() if words[0] == "validate")
    assert made == {"2": 2, "4": 2, "6": 1}
    # On a busy machine the place for evaluations may come late, and that is a note too.
    (note,) = [text for text in outcome.notes if not text.startswith("no room at present: 1 x")]
    assert "the evaluation after report 4 failed 2 times, the last time with KeyError" in note
    (said,) = [words[2] for words in lines() if words[0] == "result"]
    assert sorted(map(str, json.loads(said))) == sorted(map(str, [r[1] for r in rows]))


@pytest.mark.slow
def test_rungs_wait_for_validations_and_decide_as_if_they_took_no_time_whatever_is_killed(
    make_spec: MakeSpec, drive: Callable[..., Driver], address: str, lines: Lines
) -> None:
    """ASHA; two validations and the controller are killed."""
    space = {"workers": 1, "steps": 4, "dies": [[0, 1], [1, 1]]}
    halving = {"asha": {"max_t": 4, "grace_period": 1, "reduction_factor": 2}}
    spec = make_spec(FIT, space, num_samples=6, scaling=scaled(), scheduler=halving, **FIELDS)
    driver = drive(spec, address=address)
    wait_for(lambda: sum(words[0] == "validate" for words in lines()) >= 7)
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()
    outcome = rs.run_sweep(spec, key="k")
    assert outcome.generation == 2
    made = Counter((words[1], words[2]) for words in lines() if words[0] == "validate")
    assert min(made["0", "1"], made["1", "1"]) > 1, "validations that were killed ran again"

    def immediately(config: Any, iteration: int) -> dict[str, Any] | None:
        done = {"step": iteration, "acc": accuracy(config["x"], iteration)}
        return None if iteration > 4 else done

    expected = simulate(spec.replace(evaluate=None), immediately, save_every=1).outcome
    assert [(t.state, t.metrics, t.score) for t in outcome.trials] == [
        (t.state, t.metrics, t.score) for t in expected.trials
    ]
    counted = [row for row in outcome.reports() if not row["overrun"]]
    for row in counted:
        assert row["acc"] == accuracy(outcome.trials[row["number"]].config["x"], row["iteration"])


def test_a_function_of_the_sweep_judges_the_checkpoints_of_a_ray_train_run(run: Run) -> None:
    """The trial is ahead of its judge, so it does not wait for each."""
    judge = {"trainable": "tests.engine.validated:judge_step", "resources": {"cpu": 0.5}}
    outcome = run(
        "tests.engine.trainruns:fit",
        {"workers": 1, "each": 0.5, "steps": 3},
        num_samples=1,
        scaling=scaled(),
        **{**FIELDS, "evaluate": judge},
    )
    assert [(row["step"], row["seen"]) for row in outcome.reports()] == [(1, 1), (2, 2), (3, 3)]


def test_without_room_in_the_sweep_the_line_to_write_is_said(run: Run) -> None:
    space = {"workers": 1, "steps": 1, "remote": {"num_cpus": 2}}
    outcome = run(FIT, space, num_samples=1, scaling=scaled(), **FIELDS)
    (trial,) = outcome.trials
    assert trial.state == "failed"
    assert trial.error is not None
    assert "write evaluate: {trainable: validation_config, resources: {cpu: 2}}" in trial.error.message
