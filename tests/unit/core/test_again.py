"""A person wants more of a sweep: more samples, failed trials again, the best ones further."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from raysweep.core import SweepState, decode, make_outcome, step
from raysweep.core.handlers.sweep_end import BEHAVIOUR
from raysweep.core.state.invariants import check
from raysweep.core.state.trial import Told
from raysweep.core.views.scores import told
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.sweep import ASHA, Sweep, running
from tests.unit.core.test_stopping import until
from tests.unit.core.world import RAISED, World, make_spec

KEEPS_ON = {"max_failures": 0, "breaker_trials": 0, "bad_node_failures": 0}


def end(sweep: Sweep) -> None:
    assert sweep.state.phase == "ending"
    sweep.send(ev.SweepEnded)


def reopen(sweep: Sweep, **fields: Any) -> list[cmd.Command]:
    generation = sweep.state.generation + 1
    fields = {"generation": generation, "behaviour": BEHAVIOUR, "is_reopening": True} | fields
    return sweep.send(ev.ControllerStarted, **fields)


def open_slots(sweep: Sweep, count: int) -> list[cmd.Command]:
    sent = sweep.send(ev.CapacityChanged, slots=count)
    for command in [each for each in sent if isinstance(each, cmd.OpenSlot)]:
        sent += sweep.send(ev.SlotOpened, slot=command.slot)
    return sent


def starts(commands: list[cmd.Command]) -> dict[int, cmd.StartTrial]:
    return {each.trial: each for each in commands if isinstance(each, cmd.StartTrial)}


def failed_sweep(**fields: Any) -> Sweep:
    """Two trials: 0 has completed, 1 failed behind a checkpoint."""
    sweep = running(2, failure=KEEPS_ON, **fields)
    sweep.report(0, 0.5)
    sweep.returned(0)
    sweep.report(1, 0.4)
    sweep.saved(1, sweep.state.trials[1].next_checkpoint, 0)
    sweep.failed(1)
    end(sweep)
    return sweep


def test_a_failed_trial_runs_again_from_its_checkpoint_and_is_not_charged_for_before() -> None:
    sweep = failed_sweep()
    assert sweep.state.status == "completed"
    reopen(sweep, retried=(1,))
    assert sweep.state.phase == "running"
    assert (sweep.trial_state(0), sweep.trial_state(1)) == ("completed", "pending")
    assert sweep.state.failed_kinds == {"user_error": 0}
    again = starts(open_slots(sweep, 1))[1]
    assert again.attempt == 2
    assert again.checkpoint == sweep.state.trials[1].checkpoints[-1].uri
    assert again.iteration == 1
    sweep.suggest(0)
    sweep.began(1, attempt=2)
    sweep.report(1, 0.1, attempt=2)
    assert cmd.TellSearch(trial=1, value=0.1, end="completed") in sweep.returned(1, attempt=2)
    assert sweep.state.best_ended == 1
    end(sweep)
    outcome = outcome_of(sweep.state)
    assert outcome.counts == {"completed": 2}
    assert [attempt.end for attempt in outcome[1].attempts] == ["failed", "completed"]


def test_what_failed_stays_so_to_a_search_whose_order_counts() -> None:
    """Each of its suggestions since then followed from the failure, too: a resume asks and tells it again."""
    sweep = failed_sweep(search="some.module:Searcher")
    failure = Told(end="failed", value=0.4)
    assert told(sweep.state, sweep.state.trials[1]) == failure
    log = list(sweep.state.search_log)
    reopen(sweep, retried=(1,))
    assert told(sweep.state, sweep.state.trials[1]) == failure, "a controller that dies here tells it, too"
    open_slots(sweep, 1)
    sweep.suggest(0)
    sweep.began(1, attempt=2)
    sweep.report(1, 0.1, attempt=2)
    sent = sweep.returned(1, attempt=2)
    assert not [each for each in sent if isinstance(each, cmd.TellSearch)]
    assert told(sweep.state, sweep.state.trials[1]) == failure
    assert [entry for entry in sweep.state.search_log if entry >= 0] == [entry for entry in log if entry >= 0]
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
    assert sweep.state.status == "failed"
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
    assert sweep.state.status == "failed"
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
    assert sweep.state.status == "failed"


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
    assert sweep.state.node_failures == {node: [0, 1]}
    end(sweep)
    reopen(sweep, retried=(1,))
    assert sweep.state.node_failures == {node: [0]}
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
    sweep.send(ev.ControllerStarted, generation=3, behaviour=BEHAVIOUR)
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
    assert sweep.state.status == "completed"
    end(sweep)


# -- further ----------------------------------------------------------------------------------------------


def asha_sweep(**fields: Any) -> Sweep:
    """Three trials of four steps: 0 and 1 come to max_t, 2 is stopped before; each has a checkpoint."""
    sweep = running(3, failure=KEEPS_ON, scheduler=ASHA, **fields)
    for trial, values in enumerate([(0.3, 0.3, 0.3, 0.3), (0.2, 0.2, 0.2, 0.1), (0.9,)]):
        for value in values:
            sweep.report(trial, value)
            number = sweep.state.trials[trial].next_checkpoint
            if value != 0.9 or sweep.trial_state(trial) == "running":
                sweep.saved(trial, number, sweep.state.trials[trial].attempt_reports - 1)
        sweep.stopped(trial)
    return sweep


def test_the_best_go_further_from_their_checkpoints() -> None:
    sweep = asha_sweep()
    assert [sweep.trial_state(trial) for trial in range(3)] == ["completed", "completed", "stopped"]
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_top=1)
    assert sweep.trial_state(1) == "completed", "not before it is known that there are no more configs"
    sweep.suggest(0)
    assert [sweep.trial_state(trial) for trial in range(3)] == ["completed", "pending", "stopped"]
    known = Told(end="completed", value=sweep.state.trials[1].last_score)
    assert told(sweep.state, sweep.state.trials[1]) == known, "as the search of this controller has it"
    again = starts(open_slots(sweep, 1))[1]
    assert again.iteration == 4
    sweep.began(1, attempt=2)
    for value in (0.08, 0.05):
        assert sweep.trial_state(1) == "running"
        sweep.report(1, value, attempt=2)
    assert sweep.state.trials[1].stop_reason == "limit"
    sent = sweep.stopped(1, attempt=2)
    assert not [each for each in sent if isinstance(each, cmd.TellSearch)], "it has been told of this one"
    assert sweep.trial_state(1) == "completed"
    assert told(sweep.state, sweep.state.trials[1]) == known, "or a resume would suggest others than this one"
    end(sweep)
    outcome = outcome_of(sweep.state)
    assert outcome.best is not None
    assert (outcome.best.number, outcome.best.score, outcome.best.max_t) == (1, 0.05, 6.0)
    # The same words once more: that has been done.
    reopen(sweep, extend_to=6.0, extend_top=1)
    sweep.suggest(0)
    assert sweep.state.phase == "ending"
    assert sweep.trial_state(1) == "completed"


@pytest.mark.parametrize("ended_first", [False, True])
def test_what_was_stored_past_its_end_is_no_place_to_go_further_from(ended_first: bool) -> None:
    """It ran on until the word to end had come: reports of then count for nothing, nor does a checkpoint."""
    sweep = running(1, scheduler=ASHA, checkpoint={"keep_last": 2, "keep_best": False})
    sweep.report(0, 0.4, 0.3, 0.2)
    sweep.saved(0, 0, 1)
    sweep.report(0, 0.1, 0.6, 0.7)
    if ended_first:
        sweep.returned(0)
    assert sweep.saved(0, 1, 3) == [], "where it was to end"
    (gone,) = sweep.saved(0, 2, 5)
    assert isinstance(gone, cmd.DeleteCheckpoint)
    assert gone.number == 2
    if not ended_first:
        sweep.returned(0)
    trial = sweep.state.trials[0]
    assert (trial.last_score, trial.overrun) == (0.1, 2)
    assert trial.checkpoint is not None
    assert (trial.checkpoint.number, trial.checkpoint.iteration) == (1, 4)
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_top=1)
    sweep.suggest(0)
    assert starts(open_slots(sweep, 1))[0].iteration == 4


def test_the_only_checkpoint_of_a_trial_is_kept_also_where_it_lies_past_its_end() -> None:
    sweep = running(1, scheduler=ASHA)
    sweep.report(0, 0.4, 0.3, 0.2, 0.1, 0.6)
    assert not [each for each in sweep.saved(0, 0, 4) if isinstance(each, cmd.DeleteCheckpoint)]
    sweep.returned(0)
    assert sweep.state.trials[0].checkpoint is not None


PLATEAU = {"plateau": {"window": 1, "min_improvement": 1.0}}
TARGET = {"target": 0.15}


def searched(stop: dict[str, Any], **started: Any) -> Sweep:
    """One trial at a time of five; the second ends the search: it is no better, or as good as is wanted."""
    sweep = Sweep(num_samples=5, scheduler=ASHA, stop=stop, failure=KEEPS_ON)
    sweep.send(ev.ControllerStarted, generation=1, behaviour=BEHAVIOUR, **started)
    sweep.suggest(5)
    open_slots(sweep, 1)
    for trial, value in ((0, 0.3), (1, 0.1)):
        sweep.began(trial)
        for number in range(4):
            sweep.at += 5.0
            sweep.report(trial, 0.3 if number < 3 else value)
        sweep.saved(trial, 0, 3)
        sweep.stopped(trial)
    return sweep


@pytest.mark.parametrize(("stop", "status"), [(PLATEAU, "plateau"), (TARGET, "target")])
@pytest.mark.parametrize("asked", ["at its start", "at its end"])
def test_a_search_that_ended_by_itself_stays_so_while_its_best_goes_further(
    stop: dict[str, Any], status: str, asked: str
) -> None:
    wanted = {"extend_to": 6.0, "extend_top": 1}
    sweep = searched(stop, **(wanted if asked == "at its start" else {}))
    if asked == "at its end":
        end(sweep)
        ended = outcome_of(sweep.state)
        assert ended.status == status
        reopen(sweep, **wanted)
        sweep.suggest(0)
        open_slots(sweep, 1)
    assert [sweep.trial_state(trial) for trial in range(5)] == ["completed", "queued", *["cancelled"] * 3]
    sweep.began(1, attempt=2)
    for value in (0.08, 0.05):
        assert sweep.trial_state(1) == "running"
        sweep.report(1, value, attempt=2)
    last = sweep.stopped(1, attempt=2)
    assert [each.status for each in last if isinstance(each, cmd.EndSweep)] == [status]
    end(sweep)
    outcome = outcome_of(sweep.state)
    assert outcome.ended_by is not None
    assert (outcome.status, outcome.ended_by.rule) == (status, f"stop.{status}")
    assert outcome.best is not None
    assert (outcome.best.score, outcome.best.max_t) == (0.05, 6.0)
    assert outcome.counts == {"cancelled": 3, "completed": 2}
    if asked == "at its end":
        assert outcome.why.partition(";")[0] == ended.why.partition(";")[0]
    again = outcome_of(SweepState.from_json(sweep.state.to_json()))
    assert again == outcome


def test_a_limit_that_cuts_what_goes_further_brings_only_that_back() -> None:
    sweep = searched(PLATEAU | {"time_budget_s": 1000}, extend_to=9.0, extend_top=1)
    sweep.began(1, attempt=2)
    sweep.timer(1200.0)
    sweep.stopped(1, attempt=2)
    end(sweep)
    assert sweep.state.status == "budget"
    reopen(sweep)
    spec = sweep.state.spec.replace(stop=PLATEAU | {"time_budget_s": 9000}).to_dict()
    sweep.send(ev.SpecChanged, spec=spec, changes=("stop.time_budget_s: 1000 -> 9000",))
    sweep.suggest(0)
    open_slots(sweep, 1)
    assert [sweep.trial_state(trial) for trial in range(5)] == ["completed", "queued", *["cancelled"] * 3]


@pytest.mark.parametrize("stop", [{"time_budget_s": 10}, until(110)], ids=["budget", "deadline"])
def test_a_limit_that_comes_before_is_noted(stop: dict[str, Any]) -> None:
    sweep = Sweep(num_samples=2, stop=stop)
    sweep.send(ev.ControllerStarted, generation=1, behaviour=BEHAVIOUR, extend_to=8.0, extend_top=1)
    sweep.suggest(2)
    open_slots(sweep, 1)
    sweep.began(0)
    sweep.timer(110.0)
    sweep.stopped(0)
    assert "extend: no trial has gone further, as the sweep was ended by" in sweep.state.notes[-1]


def test_a_plateau_at_the_last_trial_is_no_end_of_the_search() -> None:
    sweep = Sweep(num_samples=2, scheduler=ASHA, stop=PLATEAU)
    sweep.send(ev.ControllerStarted, generation=1, behaviour=BEHAVIOUR, extend_to=6.0, extend_top=1)
    sweep.suggest(2)
    open_slots(sweep, 1)
    for trial in (0, 1):
        sweep.began(trial)
        sweep.report(trial, 0.5, 0.5, 0.5, 0.5)
        sweep.saved(trial, 0, 3)
        sweep.stopped(trial)
    assert [sweep.trial_state(trial) for trial in (0, 1)] == ["queued", "completed"]
    sweep.began(0, attempt=2)
    sweep.report(0, 0.5, 0.5, attempt=2)
    sweep.stopped(0, attempt=2)
    assert sweep.state.status == "completed"


def test_it_can_be_asked_for_from_the_start() -> None:
    sweep = Sweep(num_samples=1, scheduler=ASHA)
    sweep.send(ev.ControllerStarted, generation=1, behaviour=BEHAVIOUR, extend_to=8.0, extend_trials=(0,))
    sweep.suggest(1)
    open_slots(sweep, 1)
    sweep.began(0)
    for _ in range(4):
        sweep.report(0, 0.5)
    sweep.saved(0, sweep.state.trials[0].next_checkpoint, 3)
    commands = sweep.stopped(0)
    assert sweep.state.phase == "running"
    assert starts(commands)[0].iteration == 4, "its slot takes it at once"


def test_what_fails_where_it_was_to_go_further_keeps_what_it_had() -> None:
    sweep = asha_sweep()
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_trials=(1,))
    sweep.suggest(0)
    open_slots(sweep, 1)
    sweep.began(1, attempt=2)
    sweep.failed(1, attempt=2)
    assert sweep.trial_state(1) == "completed"
    assert any("failed where it was to go further" in note for note in sweep.state.notes)
    end(sweep)
    outcome = outcome_of(sweep.state)
    assert outcome.status == "completed"
    assert outcome.best is not None
    assert outcome.best.score == 0.1
    assert outcome.best.attempts[-1].end == "failed"


def test_without_a_checkpoint_nothing_goes_further_and_a_note_says_so() -> None:
    sweep = running(1)
    sweep.report(0, 0.5)
    sweep.returned(0)
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_top=3)
    sweep.suggest(0)
    assert sweep.state.phase == "ending"
    assert any("no trial has a checkpoint" in note for note in sweep.state.notes)


def test_where_the_sweep_fails_first_it_is_done_after_the_retry() -> None:
    sweep = running(1, failure=KEEPS_ON, scheduler=ASHA)
    sweep.failed(0)
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_top=1)
    sweep.suggest(0)
    end(sweep)
    assert (sweep.state.status, sweep.state.notes) == ("failed", ())
    reopen(sweep, retried=(0,))
    open_slots(sweep, 1)
    sweep.suggest(0)
    sweep.began(0, attempt=2)
    for _ in range(4):
        sweep.report(0, 0.5, attempt=2)
    sweep.saved(0, sweep.state.trials[0].next_checkpoint, 3, attempt=2)
    sweep.stopped(0, attempt=2)
    assert sweep.state.trials[0].max_t == 6.0
    assert sweep.state.phase == "running"


# -- the code -----------------------------------------------------------------------------------------------


def test_changed_code_is_noted_and_unknown_code_is_not() -> None:
    sweep = Sweep(num_samples=1)
    for generation, code in enumerate(["source:a", "", "source:a", "compiled-3.11:b"], start=1):
        sweep.send(ev.ControllerStarted, generation=generation, behaviour=BEHAVIOUR, code=code)
    assert not sweep.state.notes
    sweep.send(ev.ControllerStarted, generation=5, behaviour=BEHAVIOUR, code="compiled-3.11:c")
    (note,) = sweep.state.notes
    assert "code was changed" in note


# -- wherever it dies ---------------------------------------------------------------------------------------


def outcome_of(state: SweepState) -> Any:
    return make_outcome(state, sweep_id="s", key="k", uri="mem://s", version="0")


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_a_crash_at_any_event_of_a_continuation_changes_no_result(search: str) -> None:
    """A sweep ends, its best two are extended; the journal is cut after every event from there on."""
    undisturbed = extended_world(search)
    expected = same_of(undisturbed)
    assert sorted(trial.max_t or 0 for trial in undisturbed.state.trials.values())[-2:] == [12.0, 12.0]
    assert max(trial.iteration for trial in undisturbed.state.trials.values()) == 12
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
    old = decode(b'{"e":"ControllerStarted","at":1.0,"generation":1}')
    assert old == ev.ControllerStarted(at=1.0, generation=1)
