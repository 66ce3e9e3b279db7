"""Which checkpoints are kept: of a trial by its policy, of a sweep those of its best trials."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from raysweep.core import SweepState, decode, encode, step
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import SpecError
from raysweep.schedulers import Exploit, Pause, Stop
from raysweep.specs import SweepSpec
from tests.unit.core.scheduled import Scheduled, deleted, exploiting
from tests.unit.core.sweep import ASHA, Commands, Sweep, running
from tests.unit.core.toys import make_spec
from tests.unit.core.world import World


def save(sweep: Sweep, trial: int, value: float | None, *, rank: float | None = None) -> Commands:
    """One report and its checkpoint; a trial without a value has reported something else."""
    number = sweep.state.trials[trial].results.next_checkpoint
    report = sweep.state.trials[trial].results.attempt_reports
    if value is None:
        sweep.report(trial, 1.0, key="other")
    else:
        sweep.report(trial, value)
    uri = f"mem://{trial}/{number}"
    return sweep.send(
        ev.CheckpointCommitted,
        trial=trial,
        attempt=sweep.state.trials[trial].attempt,
        number=number,
        report=report,
        uri=uri,
        rank=rank,
    )


def kept(sweep: Sweep, trial: int) -> list[int]:
    return [checkpoint.number for checkpoint in sweep.state.trials[trial].checkpoints]


# -- of a trial ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "expected"), [("max", [2, 3, 4]), ("min", [0, 1, 4])])
def test_the_best_by_another_metric_are_kept(mode: str, expected: list[int]) -> None:
    sweep = running(1, checkpoint={"keep_best": {"metric": "acc", "mode": mode, "num": 2}})
    for loss, acc in [(0.1, 0.1), (0.2, 0.2), (0.3, 0.9), (0.4, 0.8), (0.5, 0.5)]:
        save(sweep, 0, loss, rank=acc)
    assert kept(sweep, 0) == expected


def test_a_checkpoint_without_a_value_of_that_metric_is_not_ranked() -> None:
    sweep = running(1, checkpoint={"keep_best": {"metric": "acc", "mode": "max"}})
    save(sweep, 0, 0.1, rank=0.5)
    save(sweep, 0, 0.05)
    assert deleted(save(sweep, 0, 0.01)) == ["mem://0/1"]
    assert kept(sweep, 0) == [0, 2]


def test_of_two_checkpoints_of_one_report_the_newer_one_is_the_best() -> None:
    """A program's folder that was stored half written is stored again."""
    sweep = running(1, checkpoint={"keep_best": {"num": 1}})
    save(sweep, 0, 0.1)
    sweep.send(ev.CheckpointCommitted, trial=0, attempt=1, number=1, report=0, uri="mem://0/1", score=0.1)
    assert deleted(save(sweep, 0, 0.9)) == []
    assert kept(sweep, 0) == [1, 2]


def test_several_of_the_best_by_the_sweeps_own_metric_are_kept_and_of_equal_ones_the_oldest() -> None:
    sweep = running(1, checkpoint={"keep_best": {"num": 2}})
    for value in [0.5, 0.1, 0.3, 0.3, 0.9]:
        save(sweep, 0, value)
    assert kept(sweep, 0) == [1, 2, 4]


def test_the_best_may_be_kept_against_the_sweeps_direction() -> None:
    sweep = running(1, checkpoint={"keep_best": {"metric": "loss", "mode": "max"}})
    for value in [0.5, 0.9, 0.3]:
        save(sweep, 0, value)
    assert kept(sweep, 0) == [1, 2]


def test_every_nth_checkpoint_is_kept_also_across_attempts() -> None:
    sweep = running(1, checkpoint={"keep_best": False, "every_n": 2}, failure={"backoff_initial_s": 0})
    for _ in range(3):
        save(sweep, 0, 0.5)
    sweep.failed(0)
    sweep.timer(sweep.at)
    sweep.began(0, 2)
    for _ in range(2):
        save(sweep, 0, 0.5)
    assert kept(sweep, 0) == [1, 10**9, 10**9 + 1]
    assert deleted(save(sweep, 0, 0.5)) == ["mem://0/1000000001"]


# -- of a sweep ---------------------------------------------------------------------------------------


def test_of_the_trials_that_are_done_the_best_keep_their_checkpoints() -> None:
    sweep = running(4, checkpoint={"keep_top_k": 2})
    for trial, value in enumerate([0.3, 0.1, 0.4, 0.2]):
        save(sweep, trial, value)
    assert deleted(sweep.returned(0)) == []
    assert deleted(sweep.returned(1)) == []
    assert deleted(sweep.returned(2)) == ["mem://2/0"], "it is none of the two best"
    assert deleted(sweep.returned(3)) == ["mem://0/0"], "trial 0 is not any more"
    assert sweep.state.ranking.top == [1, 3]


def test_the_best_configs_checkpoint_is_always_kept() -> None:
    sweep = running(3, checkpoint={"keep_top_k": 1})
    for trial, value in enumerate([0.2, 0.1, 0.1]):
        save(sweep, trial, value)
        sweep.returned(trial)
    best = sweep.state.trials[sweep.state.ranking.best_ended or 0]
    assert (best.number, best.checkpoint is not None) == (1, True), "of equal ones the first is the best"
    assert kept(sweep, 2) == []


def test_a_trial_without_a_score_ranks_behind_all_others() -> None:
    it = Scheduled(3, checkpoint={"keep_top_k": 1})
    save(it.sweep, 1, None)
    it.decide(0, (1, Stop()))
    assert deleted(it.sweep.stopped(1)) == [], "there is no other yet"
    save(it.sweep, 2, 0.9)
    assert deleted(it.sweep.returned(2)) == ["mem://1/0"]
    assert it.state.ranking.top == [2]


def test_trials_that_run_wait_failed_or_were_cut_keep_their_checkpoints() -> None:
    sweep = running(4, checkpoint={"keep_top_k": 1}, failure={"max_failures": 1, "backoff_initial_s": 60})
    for trial, value in enumerate([0.1, 0.7, 0.8, 0.9]):
        save(sweep, trial, value)
    sweep.failed(1)
    sweep.timer(sweep.at + 200)
    sweep.began(1, 2)
    sweep.failed(1, attempt=2)
    sweep.failed(2)
    sweep.returned(0)
    assert [sweep.trial_state(trial) for trial in range(4)] == ["completed", "failed", "waiting", "running"]
    assert [kept(sweep, trial) for trial in range(4)] == [[0], [0], [0], [0]]
    sweep.send(ev.CancelRequested)
    sweep.stopped(3)
    assert [sweep.trial_state(trial) for trial in (2, 3)] == ["cancelled", "cancelled"]
    assert [kept(sweep, trial) for trial in range(4)] == [[0], [0], [0], [0]]


def test_a_donors_checkpoint_stays_until_the_other_trial_has_its_own() -> None:
    it = exploiting(checkpoint={"keep_top_k": 1})
    it.sweep.stopped(1)
    it.sweep.began(1, 2)
    assert deleted(it.sweep.returned(0)) == []
    number = it.of(1).results.next_checkpoint
    it.sweep.report(1, 0.001, attempt=2)
    it.sweep.saved(1, number, report=0, attempt=2)
    assert deleted(it.sweep.returned(1, attempt=2)) == ["mem://0/0"]


def test_a_trial_whose_donor_falls_behind_in_the_same_event_goes_on_from_it() -> None:
    """What a trial's end decides about others counts before its checkpoints are judged."""
    it = Scheduled(3, checkpoint={"keep_top_k": 1})
    for trial, value in enumerate([0.9, 0.8, 0.1]):
        save(it.sweep, trial, value)
    it.sweep.returned(2)
    it.scheduler.says = [(1, Exploit(0, {"x": 0.5}))]
    assert deleted(it.sweep.returned(0)) == []
    assert kept(it.sweep, 0) == []
    assert it.of(1).turn.checkpoint.uri == "mem://0/0"
    it.sweep.stopped(1)
    it.sweep.began(1, 2)
    assert deleted(save(it.sweep, 1, 0.5)) == ["mem://0/0"], "trial 1 has its own now"


def test_a_checkpoint_that_comes_after_the_end_of_a_trial_that_fell_behind_is_deleted() -> None:
    sweep = running(2, checkpoint={"keep_top_k": 1})
    save(sweep, 0, 0.1)
    sweep.returned(0)
    save(sweep, 1, 0.5)
    sweep.report(1, 0.5)
    sweep.returned(1)
    assert deleted(sweep.saved(1, 1, report=1)) == ["mem://1/1"]
    assert kept(sweep, 1) == []


def test_a_trial_that_is_extended_keeps_its_checkpoints_and_is_ranked_anew() -> None:
    sweep = running(3, scheduler=ASHA, checkpoint={"keep_top_k": 2})
    for trial, value in enumerate([0.1, 0.2, 0.3]):
        for _ in range(4):
            save(sweep, trial, value)
        sweep.at += 100  # no short trial, of which several wait at a slot
        sweep.stopped(trial)
    assert [bool(kept(sweep, trial)) for trial in range(3)] == [True, True, False]
    sweep.send(ev.SweepEnded)
    fields: dict[str, Any] = {"generation": 2, "is_reopening": True}
    sweep.send(ev.ControllerStarted, **fields, extend_to=9.0, extend_top=2)
    sweep.send(ev.CapacityChanged, slots=2)
    sweep.suggest(0)
    assert [sweep.trial_state(trial) for trial in range(3)] == ["pending", "pending", "stopped"]
    for slot, trial in ((3, 0), (4, 1)):
        sweep.send(ev.SlotOpened, slot=slot, node=f"n{slot}")
        sweep.began(trial, 2)
    for value in (0.05, 0.06, 0.07, 0.08):
        save(sweep, 1, value)
    assert [bool(kept(sweep, trial)) for trial in range(3)] == [True, True, False]


def test_paused_trials_keep_theirs() -> None:
    it = Scheduled(2, checkpoint={"keep_top_k": 1})
    save(it.sweep, 0, 0.9)
    it.decide(0, (0, Pause()))
    it.sweep.stopped(0)
    save(it.sweep, 1, 0.1)
    assert it.sweep.trial_state(0) == "paused"
    assert kept(it.sweep, 0) == [0]


# -- what was stored before ---------------------------------------------------------------------------


def test_the_policy_is_part_of_the_digest() -> None:
    spec = make_spec()
    assert make_spec(checkpoint={"every_n": None}).digest() == spec.digest()
    fields = {"every_n": 3, "keep_top_k": 2, "storage_budget": 5}
    assert make_spec(checkpoint=fields).to_dict()["checkpoint"].items() >= fields.items()
    assert make_spec(checkpoint=fields).digest() != spec.digest()
    again = make_spec(checkpoint={"keep_best": {"metric": "acc", "mode": "max"}, **fields})
    assert SweepSpec.from_yaml(again.to_yaml()) == again


def test_a_snapshot_holds_the_ranking() -> None:
    sweep = running(3, checkpoint={"keep_top_k": 1, "every_n": 2})
    for trial, value in enumerate([0.2, 0.1]):
        save(sweep, trial, value)
        save(sweep, trial, value)
        sweep.returned(trial)
    plain = orjson.loads(orjson.dumps(sweep.state.to_json()))
    again = SweepState.from_json(plain)
    assert again.to_json() == sweep.state.to_json()
    assert again.ranking.top == [1]
    assert again.trials[1].results.saved == 2


@pytest.mark.parametrize(
    ("given", "expected"),
    [("50GiB", 50 * 2**30), ("1.5 MB", 1_500_000), ("10 B", 10), (7, 7), ("2 kB", 2000), ("0B", 0)],
)
def test_a_budget_is_given_in_bytes_or_with_a_unit(given: Any, expected: int) -> None:
    assert make_spec(checkpoint={"storage_budget": given}).checkpoint.storage_budget == expected


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        ({"storage_budget": "50 gigs"}, "50GiB"),
        ({"storage_budget": -1}, "storage_budget"),
        ({"keep_best": {"metric": "acc"}}, r"checkpoint\.keep_best\.mode: nothing says"),
        ({"keep_best": {"num": 0}}, "keep_best.num"),
        ({"keep_best": 2}, "expected true, false or a mapping"),
        ({"keep_best": {"nums": 2}}, "did you mean 'num'"),
        ({"keep_top_k": 0}, "keep_top_k"),
        ({"keep_every": 2}, "every_n"),
    ],
)
def test_what_is_wrong_names_the_field_and_the_fix(checkpoint: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        make_spec(checkpoint=checkpoint)


# -- under chaos --------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", [1, 3])
@pytest.mark.parametrize("scheduler", ["fifo", ASHA], ids=["fifo", "asha"])
def test_a_crash_at_any_event_keeps_the_same_checkpoints(scheduler: Any, top: int) -> None:
    def make() -> World:
        checkpoint = {"keep_top_k": top, "every_n": 2, "keep_best": {"metric": "loss", "mode": "max"}}
        spec = make_spec(scheduler=scheduler, checkpoint=checkpoint, max_concurrent_trials=1, num_samples=5)
        world = World(spec, length=4)
        world.start()
        return world

    def held(world: World) -> dict[int, list[int]]:
        """How many reports lie behind what each trial keeps: a crash gives other numbers."""
        return {n: [each.iteration for each in trial.checkpoints] for n, trial in world.state.trials.items()}

    undisturbed = make()
    undisturbed.drain()
    expected = held(undisturbed)
    assert sum(map(bool, expected.values())) == top
    for cut_at in range(2, len(undisturbed.journal)):
        world = make()
        world.until(lambda world=world, cut_at=cut_at: len(world.journal) >= cut_at)
        world.crash()
        world.drain()
        found = held(world)
        assert {n for n in found if found[n]} == {n for n in expected if expected[n]}
        world.flush()
        referred = {each.uri for trial in world.state.trials.values() for _, each in trial.needed}
        assert referred <= world.stored


def test_the_events_fields_are_left_to_their_defaults_by_earlier_versions() -> None:
    event = ev.CheckpointCommitted(at=1.0, trial=0, attempt=1, number=0, report=0, uri="u")
    line = orjson.loads(encode(event))
    del line["rank"]
    assert decode(orjson.dumps(line)) == event


def test_nothing_but_a_deletion_comes_of_the_ranking() -> None:
    """The same events without it lead to the same commands, but for deletions."""
    world = World(make_spec(checkpoint={"keep_top_k": 1}, num_samples=6), length=3)
    world.start()
    world.drain()
    states = [
        SweepState.create(make_spec(num_samples=6, checkpoint=fields), 7)
        for fields in ({"keep_top_k": 1}, {})
    ]
    gone = 0
    for line in world.journal:
        ranked, plain = (step(state, decode(line)) for state in states)
        assert [each for each in ranked if not isinstance(each, cmd.DeleteCheckpoint)] == [
            each for each in plain if not isinstance(each, cmd.DeleteCheckpoint)
        ]
        assert {*deleted(plain)} <= {*deleted(ranked)}
        gone += len(deleted(ranked)) - len(deleted(plain))
    assert gone >= 5
