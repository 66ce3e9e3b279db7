"""`step` where a trial is replaced, and reports nothing more: it has the result of its checkpoint."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from raysweep.core.handlers import continuations, transitions
from raysweep.core.state.trial import Trial
from raysweep.core.views.scores import told
from raysweep.core.vocabulary import events as ev
from raysweep.schedulers import Exploit
from raysweep.simulate import simulate
from tests.unit.core.faults import NO_WAIT
from tests.unit.core.sized import BY_N, open_all, sweep_of
from tests.unit.core.sweep import Sweep, running
from tests.unit.simulate.sweeps import make_spec


def replaced(sweep: Sweep, config: dict[str, Any]) -> Trial:
    """Trial 1, which continues from trial 0's checkpoint with this config, and returns."""
    sweep.began(0)
    sweep.began(1)
    sweep.report(0, 0.1)
    sweep.saved(0, 0, 0)
    sweep.report(1, 0.9)
    sweep.saved(1, 0, 0)
    trial = sweep.state.trials[1]
    turn = continuations.turn_of(sweep.state, trial, Exploit(donor=0, config=config))
    continuations.give(sweep.state, trial, turn, [])
    transitions.ask_to_end(sweep.state, trial, turn.reason, [])
    sweep.stopped(1)
    open_all(sweep)
    sweep.began(1, trial.attempt)
    sweep.returned(1, trial.attempt)
    return trial


def test_what_was_reported_with_a_damaged_checkpoint_is_nobodys_result() -> None:
    sweep = running(2, checkpoint={"keep_last": 2})
    sweep.began(0)
    sweep.began(1)
    for number, loss in enumerate((0.9, 0.5)):
        sweep.report(1, loss)
        sweep.saved(1, number, number)
    trial = sweep.state.trials[1]
    turn = continuations.turn_of(
        sweep.state, trial, Exploit(donor=0, config={"x": 0.7})
    )  # that has no checkpoint
    continuations.give(sweep.state, trial, turn, [])
    transitions.ask_to_end(sweep.state, trial, turn.reason, [])
    sweep.stopped(1)
    open_all(sweep)
    sweep.began(1, trial.attempt)
    uri = trial.checkpoints[-1].uri
    sweep.send(ev.CheckpointDamaged, trial=1, attempt=trial.attempt, uri=uri, problem="hash")
    for _ in range(3):
        if trial.state == "stopping":
            sweep.stopped(1, trial.attempt)
        open_all(sweep)
    if trial.state == "queued":
        sweep.began(1, trial.attempt)
    sweep.returned(1, trial.attempt)
    assert (trial.state, trial.results.attempt_iteration, trial.results.last_score) == ("completed", 1, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"constraints": ["size <= 1"]},
        {"metric": ["loss", "size"], "mode": ["min", "min"]},
        {"scheduler": {"asha": {"time_attr": "epoch"}}},
    ],
    ids=["constraint", "metrics", "time"],
)
def test_a_report_that_is_no_whole_result_is_none(fields: dict[str, Any]) -> None:
    """What comes with a checkpoint need not have what the last report of a trial has; nobody fails for it."""
    sweep = running(2, **fields)
    trial = replaced(sweep, {"x": 0.7})
    assert (trial.state, trial.results.last_score, trial.config) == ("completed", None, {"x": 0.7})
    assert sweep.state.end.status is None


def test_a_constraint_that_comes_with_the_last_report_fails_no_sweep() -> None:
    def curve(config: Any, step: int) -> dict[str, Any] | None:
        if step > config["epochs"]:
            return None
        return {"loss": config["lr"] + 1 / step} | ({"size": 0.5} if step == config["epochs"] else {})

    ends: Counter[str] = Counter()
    for seed in range(12):
        spec = make_spec(
            metric="loss",
            mode="min",
            param_space={"lr": {"uniform": [0, 1]}, "epochs": {"choice": [2, 4, 6, 8]}},
            num_samples=6,
            seed=seed,
            constraints=["size <= 1"],
            scheduler={"pbt": {"perturbation_interval": 2}},
        )
        found = simulate(spec, curve, slots=3, save_every=1, step_s=lambda config, _: 1 + config["lr"])
        ends.update(found.outcome.counts)
    assert ends == {"completed": 72}


def test_a_searcher_keeps_what_it_suggested() -> None:
    """Also where what the trial continued with was that again."""
    sweep = running(2)
    own = dict(sweep.state.trials[1].config)
    trial = replaced(sweep, own)
    assert trial.config == sweep.state.trials[0].config != own
    assert trial.ancestry.suggested == own
    assert told(sweep.state, trial).value is None, "the result is another config's"


def test_size_and_attempts_are_those_of_the_config() -> None:
    sweep = sweep_of(2.0, 3.0, resources=BY_N, failure=NO_WAIT, slots=4)
    open_all(sweep)
    trial = replaced(sweep, {"x": 1.0})
    assert (trial.config, trial.needs.size) == ({"x": 2.0}, "cpu=2")
    assert [attempt.config for attempt in trial.attempts] == [{"x": 3.0}, {"x": 1.0}]
