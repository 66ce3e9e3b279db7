"""An ended sweep is opened again for more samples, or for trials that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from raysweep.core import SweepState, decode, step
from raysweep.core.state.invariants import check
from raysweep.core.state.trial_parts import Told
from raysweep.core.views.scores import told
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.reopened import (
    KEEPS_ON,
    asha_sweep,
    end,
    failed_sweep,
    open_slots,
    outcome_of,
    reopen,
    starts,
)
from tests.unit.core.sweep import Sweep, running
from tests.unit.core.toys import RAISED, make_spec
from tests.unit.core.world import World


def test_a_failed_trial_runs_again_from_its_checkpoint_and_is_not_charged_for_before() -> None:
    sweep = failed_sweep()
    assert sweep.state.end.status == "completed"
    reopen(sweep, retried=(1,))
    assert sweep.state.phase == "running"
    assert (sweep.trial_state(0), sweep.trial_state(1)) == ("completed", "pending")
    assert sweep.state.line.failed_kinds == {"user_error": 0}
    again = starts(open_slots(sweep, 1))[1]
    assert again.attempt == 2
    assert again.checkpoint == sweep.state.trials[1].checkpoints[-1].uri
    assert again.iteration == 1
    sweep.suggest(0)
    sweep.began(1, attempt=2)
    sweep.report(1, 0.1, attempt=2)
    assert cmd.TellSearch(trial=1, value=0.1, end="completed") in sweep.returned(1, attempt=2)
    assert sweep.state.ranking.best_ended == 1
    end(sweep)
    outcome = outcome_of(sweep.state)
    assert outcome.counts == {"completed": 2}
    assert [attempt.end for attempt in outcome[1].attempts] == ["failed", "completed"]


def test_what_failed_stays_so_to_a_search_whose_order_counts() -> None:
    """Each of its suggestions since then followed from the failure, too: a resume asks and tells it again."""
    sweep = failed_sweep(search="some.module:Searcher")
    failure = Told(end="failed", value=0.4)
    assert told(sweep.state, sweep.state.trials[1]) == failure
    log = list(sweep.state.search.log)
    reopen(sweep, retried=(1,))
    assert told(sweep.state, sweep.state.trials[1]) == failure, "a controller that dies here tells it, too"
    open_slots(sweep, 1)
    sweep.suggest(0)
    sweep.began(1, attempt=2)
    sweep.report(1, 0.1, attempt=2)
    sent = sweep.returned(1, attempt=2)
    assert not [each for each in sent if isinstance(each, cmd.TellSearch)]
    assert told(sweep.state, sweep.state.trials[1]) == failure
    assert [entry for entry in sweep.state.search.log if entry >= 0] == [entry for entry in log if entry >= 0]
    again = SweepState.from_json(sweep.state.to_json())
    assert told(again, again.trials[1]) == failure


def test_a_retry_gives_a_new_budget_of_failures() -> None:
    sweep = running(1, failure={**KEEPS_ON, "max_failures": 1, "backoff_initial_s": 1})
    sweep.failed(0)
    assert sweep.trial_state(0) == "waiting"
    sweep.timer(sweep.at + 10)
    sweep.began(0, attempt=2)
    sweep.failed(0, attempt=2)
    end(sweep)
    assert sweep.state.end.status == "failed"
    reopen(sweep, retried=(0,))
    open_slots(sweep, 1)
    sweep.suggest(0)
    sweep.began(0, attempt=3)
    sweep.failed(0, attempt=3)
    assert sweep.trial_state(0) == "waiting", "one failure is allowed once more"


def test_the_breaker_counts_anew() -> None:
    sweep = running(3, failure={**KEEPS_ON, "breaker_trials": 2})
    sweep.failed(0)
    sweep.failed(1)
    sweep.stopped(2)
    end(sweep)
    assert sweep.state.end.status == "failed"
    assert sweep.trial_state(2) == "cancelled"
    reopen(sweep, retried=(0, 1))
    assert {trial.state for trial in sweep.state.trials.values()} == {"pending"}, "what was cut comes back"
    open_slots(sweep, 3)
    sweep.suggest(0)
    for trial in range(3):
        sweep.began(trial, attempt=2)
    sweep.failed(0, attempt=2)
    assert sweep.state.phase == "running"
    sweep.failed(1, attempt=2)
    assert sweep.state.end.status == "failed"


@pytest.mark.parametrize("numbers", [(0,), (7,), (1, 1)])
def test_what_has_not_failed_is_passed_over(numbers: tuple[int, ...]) -> None:
    sweep = failed_sweep()
    reopen(sweep, retried=numbers)
    assert sweep.trial_state(0) == "completed"
    assert sweep.trial_state(1) == ("pending" if 1 in numbers else "failed")
    sweep.suggest(0)
    assert (sweep.state.phase == "running") == (1 in numbers)


def test_a_node_that_was_blamed_for_it_is_not_any_more() -> None:
    sweep = running(2, failure={**KEEPS_ON, "bad_node_failures": 3})
    node = sweep.state.trials[0].node or "n"
    for slot in sweep.state.slots.values():
        slot.node = node
    for trial in sweep.state.trials.values():
        trial.node = node
    sweep.is_checked = False  # the nodes were moved under the tally
    sweep.failed(0)
    sweep.failed(1)
    assert sweep.state.room.node_failures == {node: [0, 1]}
    end(sweep)
    reopen(sweep, retried=(1,))
    assert sweep.state.room.node_failures == {node: [0]}
    sweep.suggest(0)


def test_a_config_that_could_not_be_made_is_not_run() -> None:
    sweep = Sweep(num_samples=2, failure=KEEPS_ON)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    broken = (ev.FailedConfig(number=0, failure=RAISED),)
    configs: Any = ({"x": 0.1}, {"x": 0.2})
    sweep.send(ev.ConfigsSuggested, first=0, configs=configs, is_exhausted=True, failed=broken)
    sweep.send(ev.SlotOpened, slot=0)
    sweep.began(1)
    sweep.report(1, 0.5)
    sweep.returned(1)
    end(sweep)
    reopen(sweep, retried=(0,))
    assert sweep.trial_state(0) == "failed"


def test_a_completed_sweep_takes_more_samples_wherever_its_controller_dies() -> None:
    sweep = failed_sweep()
    commands = reopen(sweep)
    assert not [each for each in commands if isinstance(each, cmd.EndSweep)]
    # It dies here, before the change of the spec is in the journal; the next one is asked for the same.
    sweep.send(ev.ControllerStarted, generation=3)
    assert sweep.state.phase == "running"
    spec = sweep.state.spec.replace(num_samples=3).model_dump(mode="json")
    sweep.send(ev.SpecChanged, spec=spec, changes=("num_samples: 2 -> 3",))
    sweep.suggest(1)
    open_slots(sweep, 1)
    assert sweep.trial_state(2) == "queued"
    assert sweep.trial_state(1) == "failed", "nobody asked for that one"


def test_nothing_more_to_suggest_ends_it_again() -> None:
    sweep = failed_sweep()
    reopen(sweep)
    sweep.suggest(0)
    assert sweep.state.end.status == "completed"
    end(sweep)


# -- the code -----------------------------------------------------------------------------------------------


def test_changed_code_is_noted_and_unknown_code_is_not() -> None:
    sweep = Sweep(num_samples=1)
    for generation, code in enumerate(["source:a", "", "source:a", "compiled-3.11:b"], start=1):
        sweep.send(ev.ControllerStarted, generation=generation, code=code)
    assert not sweep.state.notes
    sweep.send(ev.ControllerStarted, generation=5, code="compiled-3.11:c")
    (note,) = sweep.state.notes
    assert "code was changed" in note


# -- wherever it dies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_a_crash_at_any_event_of_a_continuation_changes_no_result(search: str) -> None:
    """A sweep ends, its best two are extended; the journal is cut after every event from there on."""
    undisturbed = extended_world(search)
    expected = same_of(undisturbed)
    assert sorted(trial.continued.max_t or 0 for trial in undisturbed.state.trials.values())[-2:] == [
        12.0,
        12.0,
    ]
    assert max(trial.results.iteration for trial in undisturbed.state.trials.values()) == 12
    first = next(n for n, line in enumerate(undisturbed.journal) if b'"is_reopening":true' in line)
    for cut_at in range(first + 1, len(undisturbed.journal)):
        world = extended_world(search, drains=False)
        world.journal, world.ever_stored = undisturbed.journal[:cut_at], dict(undisturbed.ever_stored)
        world.stored, world.generation = set(world.ever_stored), undisturbed.generation
        world.made_by = dict(undisturbed.made_by)
        world.crash()
        world.drain()
        assert same_of(world) == expected, f"cut after event {cut_at}: {undisturbed.journal[cut_at - 1]!r}"


def same_of(world: World) -> dict[str, Any]:
    """Without what the searcher was told: a live one knows the first ends of those that go further."""
    return {name: each for name, each in world.results().items() if name != "told"}


def extended_world(search: str, *, drains: bool = True) -> World:
    scheduler = {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3}}
    spec = make_spec(scheduler=scheduler, search=search, num_samples=5, max_concurrent_trials=1)
    world = World(spec, length=12, save_every=1, tick_s=0.02)
    world.start()
    if drains:
        world.drain()
        world.go_on(extend_to=12.0, extend_top=2)
        world.drain()
    return world


def test_a_state_restored_from_json_goes_on_the_same() -> None:
    sweep = asha_sweep()
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_trials=(0, 1))
    twin = SweepState.from_json(orjson.loads(orjson.dumps(sweep.state.to_json())))
    event = ev.ConfigsSuggested(at=sweep.at, first=3, configs=(), is_exhausted=True)
    assert step(twin, event) == step(sweep.state, replace(event))
    check(twin)
    assert orjson.dumps(twin.to_json()) == orjson.dumps(sweep.state.to_json())
    least = decode(b'{"e":"ControllerStarted","at":1.0,"generation":1,"behaviour":1}')
    assert least == ev.ControllerStarted(at=1.0, generation=1)
