"""A search is told of a trial that pauses: it may never continue, and what it had reached is known."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from raysweep.core import SweepState
from raysweep.core.state.trial_parts import Ancestry, Told
from raysweep.core.views.scores import told
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import RaysweepError
from raysweep.schedulers import Pause, Resume
from raysweep.search.options import TRIAL_TIME
from tests.unit.core.sweep import Commands, Sweep, running
from tests.unit.core.toys import METRIC

PROMOTION = {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3, "type": "promotion"}}


def begun(trials: int = 3, **fields: Any) -> Sweep:
    sweep = running(trials, trials, **{"scheduler": PROMOTION, "search": "tpe"} | fields)
    return sweep


def tells(commands: Commands) -> list[cmd.TellSearch]:
    return [command for command in commands if isinstance(command, cmd.TellSearch)]


def pause(sweep: Sweep, trial: int, value: float, **metrics: Any) -> list[cmd.TellSearch]:
    """Report at a rung, and come off the slot: what the search is told."""
    attempt = sweep.state.trials[trial].attempt
    keys, row = (METRIC, *metrics), [value, *metrics.values()]
    before = sweep.send(ev.TrialReported, trial=trial, attempt=attempt, first=0, keys=keys, rows=(row,))
    assert tells(before) == [], "on the slot it may still save a checkpoint"
    return tells(sweep.stopped(trial, attempt))


def test_it_is_told_what_a_paused_trial_had_reached_and_later_how_it_ended() -> None:
    sweep = begun()
    assert pause(sweep, 0, 0.5) == [cmd.TellSearch(trial=0, value=0.5, end="paused")]
    assert sweep.trial_state(0) == "paused"
    assert pause(sweep, 1, 0.7) == [cmd.TellSearch(trial=1, value=0.7, end="paused")]
    # The third makes three at the rung: the best one of these continues.
    assert pause(sweep, 2, 0.6) == [cmd.TellSearch(trial=2, value=0.6, end="paused")]
    assert sweep.state.trials[0].attempt == 2
    sweep.began(0, 2)
    sweep.report(0, 0.4, 0.35, 0.3, attempt=2)
    # Nothing else can run: what pauses at the second rung continues, and is told of all the same.
    assert tells(sweep.stopped(0, 2)) == [cmd.TellSearch(trial=0, value=0.3, end="paused")]
    assert sweep.state.search.paused[0] == Told(end="paused", value=0.3)


def test_of_one_that_ended_the_end_counts() -> None:
    sweep = begun(2)
    pause(sweep, 0, 0.5)
    pause(sweep, 1, 0.7)
    assert sweep.state.trials[0].attempt == 2, "nothing else can run: the best continues"
    sweep.began(0, 2)
    sweep.report(0, 0.2, attempt=2)
    sent = tells(sweep.returned(0, 2))
    assert cmd.TellSearch(trial=0, value=0.2, end="completed") in sent
    assert 0 not in sweep.state.search.paused
    assert told(sweep.state, sweep.state.trials[0]) == Told(end="completed", value=0.2)


def test_what_a_resumed_search_is_told_is_what_this_one_was_told_last() -> None:
    sweep = begun()
    pause(sweep, 0, 0.5)
    again = SweepState.from_json(orjson.loads(orjson.dumps(sweep.state.to_json())))
    for state in (sweep.state, again):
        assert told(state, state.trials[0]) == Told(end="paused", value=0.5)
        assert told(state, state.trials[1]) is None


def test_a_snapshot_that_does_not_fit_is_refused() -> None:
    sweep = begun()
    pause(sweep, 0, 0.5)
    plain: Any = sweep.state.to_json()
    plain["search"]["paused"] = {"0": "0.5"}
    with pytest.raises(RaysweepError, match="snapshot does not fit"):
        SweepState.from_json(plain)


def test_one_that_goes_on_before_its_pause_is_over_is_told_of_too() -> None:
    sweep = begun(3)
    sweep.report(0, 0.1)
    for trial in (1, 2):
        sweep.report(trial, 0.7)
    assert tells(sweep.stopped(0)) == [cmd.TellSearch(trial=0, value=0.1, end="paused")]
    assert sweep.state.trials[0].attempts[0].end == "resumed"


def test_one_that_goes_on_without_a_pause_is_told_of_at_its_next() -> None:
    sweep = begun(3)
    pause(sweep, 0, 0.8)
    pause(sweep, 1, 0.7)
    assert sweep.report(2, 0.1) == [], "the best of three"
    assert 2 not in sweep.state.search.paused
    sweep.report(2, 0.1, 0.05)
    assert tells(sweep.stopped(2)) == [cmd.TellSearch(trial=2, value=0.05, end="paused")]


@pytest.mark.parametrize(
    "fields",
    [
        {"search": "random"},
        {"search": "bohb", "scheduler": {"hyperband": {"max_t": 9}}},
        {"search": {"tests.policies:Copycat": {}}},
    ],
    ids=["learns nothing", "is told of rungs", "of the user's own"],
)
def test_others_hear_of_ends_alone(fields: dict[str, Any]) -> None:
    sweep = begun(**fields)
    sweep.report(0, 0.5)
    assert not sweep.state.search.paused
    assert tells(sweep.stopped(0)) == []
    assert not sweep.state.search.paused


def test_a_result_of_another_config_is_not_told() -> None:
    sweep = begun(2)
    sweep.state.trials[0].ancestry = Ancestry(suggested={"x": 0.25})
    assert pause(sweep, 0, 0.5) == []
    assert told(sweep.state, sweep.state.trials[0]) is None


def test_what_is_cancelled_with_the_sweep_is_not_told_again() -> None:
    sweep = begun(2)
    pause(sweep, 0, 0.5)
    sent = [*sweep.send(ev.CancelRequested, reason="enough"), *sweep.stopped(1)]
    assert sweep.trial_state(0) == "cancelled"
    assert tells(sent) == []
    assert told(sweep.state, sweep.state.trials[0]) == Told(end="paused", value=0.5)


def test_nor_is_one_that_had_gone_on_when_the_sweep_was_cancelled() -> None:
    sweep = begun(2)
    pause(sweep, 0, 0.5)
    pause(sweep, 1, 0.7)
    sweep.began(0, 2)
    sweep.report(0, 0.4, attempt=2)
    assert tells([*sweep.send(ev.CancelRequested, reason="enough"), *sweep.stopped(0, 2)]) == []
    assert sweep.trial_state(0) == "cancelled"
    assert told(sweep.state, sweep.state.trials[0]) == Told(end="paused", value=0.5)


def test_how_far_it_is_from_the_constraints_is_told() -> None:
    sweep = begun(constraints=["latency <= 20"])
    (sent,) = pause(sweep, 0, 0.5, latency=25.0)
    assert (sent.violations, sent.value) == ((5.0,), 0.5)


def test_what_it_cost_so_far_is_told_for_each_unit_of_its_time() -> None:
    sweep = begun(search={"gp": {"cost_attr": TRIAL_TIME}})
    began = sweep.state.trials[0].attempt_started_at
    assert began is not None
    sweep.at = began + 12.0
    (sent,) = pause(sweep, 0, 0.5)
    assert sent.cost == pytest.approx(12.0)


@pytest.mark.parametrize("verdict", [Pause(), Resume()])
def test_a_verdict_on_another_trial_tells_nothing_of_the_one_that_reported(verdict: Any) -> None:
    sweep = begun(2)

    def report(trial: int, time: float, value: float) -> Any:
        return [(1, verdict)] if trial == 0 else []

    sweep.state.scheduler.report = report  # type: ignore[method-assign]
    assert tells(sweep.report(0, 0.5)) == []
    assert 0 not in sweep.state.search.paused
