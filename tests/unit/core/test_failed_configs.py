"""Configs that could not be made: their trials fail, others run, and the sweep counts them as any other."""

from __future__ import annotations

from typing import Any

import orjson

from raysweep.core import SweepState, decode, encode, make_outcome, step
from raysweep.core.state.invariants import check
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.sweep import Sweep, tell

MISDRAWN = Failure(origin="exception", type="ZeroDivisionError", message="division by zero")


def suggest(sweep: Sweep, count: int, *failed: int, is_exhausted: bool = True) -> list[cmd.Command]:
    first = sweep.state.search.suggested
    return sweep.send(
        ev.ConfigsSuggested,
        first=first,
        configs=tuple({"x": number / 10} for number in range(first, first + count)),
        is_exhausted=is_exhausted,
        failed=tuple(ev.FailedConfig(number=number, failure=MISDRAWN) for number in failed),
    )


def started(**fields: Any) -> Sweep:
    sweep = Sweep(**fields)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    return sweep


def test_its_trial_fails_and_the_others_run() -> None:
    sweep = started(num_samples=3)
    commands = suggest(sweep, 3, 1)
    assert tell(1, None, "failed") in commands
    assert [sweep.trial_state(number) for number in range(3)] == ["pending", "failed", "pending"]
    sweep.send(ev.SlotOpened, slot=0, node="node0")
    for number in (0, 2):
        sweep.began(number)
        sweep.report(number, 0.5)
        sweep.returned(number)
    assert sweep.state.end.status == "completed"
    sweep.send(ev.SweepEnded)
    outcome = make_outcome(sweep.state, sweep_id="toy", key="toy", uri="mem://toy", version="1")
    assert outcome.counts == {"completed": 2, "failed": 1}
    trial = outcome.trials[1]
    assert (trial.state, trial.config, trial.started_at) == ("failed", {"x": 0.1}, None)
    assert trial.error is not None
    assert (trial.error.kind, trial.error.type) == ("user_error", "ZeroDivisionError")
    assert [attempt.attempt for attempt in trial.attempts] == [1]


def test_the_breaker_counts_it() -> None:
    sweep = started(num_samples=9)
    suggest(sweep, 9, 2, 5, 7, 8)
    assert sweep.state.end.status == "failed"
    assert "the first 3 trials all failed in user code" in sweep.state.end.why
    assert sweep.state.line.counts["failed"] == 4
    assert sweep.state.line.counts["cancelled"] == 5


def test_the_failed_part_counts_it() -> None:
    sweep = started(num_samples=9, failure={"breaker_trials": 0, "max_failed_fraction": 0.5})
    suggest(sweep, 9, 2, 5, 7)
    assert sweep.state.end.status is None
    sweep.send(ev.SlotOpened, slot=0, node="node0")
    sweep.began(0)
    sweep.failed(0, Failure(origin="exception", type="TypeError", bases=("TypeError",)))
    assert sweep.state.end.status == "failed"
    assert "4 of 4 trials failed" in sweep.state.end.why


def test_all_of_them_may_fail() -> None:
    """More is asked for then; where there is no more, the sweep has failed."""
    sweep = started(num_samples=2, failure={"breaker_trials": 0})
    commands = suggest(sweep, 1, 0, is_exhausted=False)
    assert any(isinstance(command, cmd.SuggestConfigs) for command in commands)
    suggest(sweep, 1, 1)
    assert sweep.state.end.status == "failed"


def test_it_is_replayed_and_restored() -> None:
    events: list[ev.Event] = [
        ev.ControllerStarted(at=1.0, generation=1),
        ev.CapacityChanged(at=1.0, slots=1),
        ev.ConfigsSuggested(
            at=2.0,
            first=0,
            configs=({"x": 0.5}, {}),
            is_exhausted=True,
            failed=(ev.FailedConfig(number=1, failure=MISDRAWN),),
        ),
    ]
    sweep = Sweep(num_samples=2)
    for event in events:
        line = encode(event)
        assert decode(line) == event
        step(sweep.state, decode(line))
        check(sweep.state)
    plain = orjson.dumps(sweep.state.to_json())
    restored = SweepState.from_json(orjson.loads(plain))
    assert orjson.dumps(restored.to_json()) == plain
    assert restored.trials[1].state == "failed"
    later = ev.ControllerStarted(at=9.0, generation=2)
    assert step(restored, later) == step(sweep.state, later)
    assert restored.trials[1].state == "failed"


def test_a_journal_from_before_has_none() -> None:
    event = decode(
        b'{"e":"ConfigsSuggested","at":1.0,"first":0,"configs":[{"x":1}],"is_exhausted":true,"note":""}'
    )
    assert isinstance(event, ev.ConfigsSuggested)
    assert event.failed == ()
