"""Slots of several members: one trial at a time, one end, and no member left behind."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from raysweep import messages as msg
from raysweep.core.vocabulary import events as ev
from raysweep.fleet import CreateGroup, HangUp, KillWorker, RemoveGroup, Send, StartWorker
from raysweep.fleet.policy import (
    GANG_GRACE_S,
    INTERRUPT_GRACE_S,
    KILL_GRACE_S,
    LAST_WORDS_S,
    FleetPolicy,
)
from raysweep.space.amounts import USUAL, Needs
from tests.unit.core.toys import make_spec
from tests.unit.fleet.fleet import NODE_DIED, RAISED, Driven, began, failed, returned, spent, stopped, told

OVER_MEMORY = msg.FailureFacts(origin="memory", type="MemoryLimit", message="too much")
BROKEN = msg.FailureFacts(origin="exception", type="RuntimeError", message="connection closed by peer")


def echo(trial: int, attempt: int) -> msg.TrialFailed:
    return msg.TrialFailed(trial=trial, attempt=attempt, failure=BROKEN, is_echo=True)


def raised(trial: int, attempt: int) -> msg.TrialFailed:
    return failed(trial, attempt, RAISED)


def gang(isolation: str = "worker", members: int = 2) -> Driven:
    """A slot that is open, all its members ready."""
    driven = Driven(isolation, can_spare=False, world_size=members, process_group="gloo").open(0)
    for rank in range(members):
        driven.up(rank)
    return driven


def at_work(isolation: str = "worker", members: int = 2) -> Driven:
    """It runs trial 7."""
    driven = gang(isolation, members).hand(0, 7)
    for rank in range(members):
        driven.say(rank, began(7, 1))
    return driven


def kinds(driven: Driven, worker: int) -> list[str]:
    """What was sent to one worker."""
    return [kind for number, kind, *_ in driven.sent() if number == worker]


# -- opened ------------------------------------------------------------------------------------------------


def test_a_gang_has_one_group_and_a_worker_in_each_bundle_and_opens_when_all_are_ready() -> None:
    driven = Driven(can_spare=False, world_size=3).open(0)
    assert driven.actions == [
        CreateGroup(group=0, needs=USUAL, excluded=()),
        *(StartWorker(worker=rank, group=0, is_spare=False, rank=rank) for rank in range(3)),
    ]
    assert driven.hand(0, 7).sent() == []
    assert driven.up(2, "n0").events == []
    assert driven.up(0, "n0").sent() == []
    assert driven.up(1, "n0").events == [ev.SlotOpened(at=100.0, slot=0, node="n0")]
    assert sorted(worker for worker, kind, *_ in driven.sent() if kind == "job") == [0, 1, 2]


def test_a_gang_says_on_which_nodes_it_is_and_is_lost_when_it_comes_back_on_others() -> None:
    driven = Driven(can_spare=False, world_size=3).open(0).up(0, "b").up(1, "a").up(2, "b")
    assert driven.events == [ev.SlotOpened(at=100.0, slot=0, node="b", others=("a",))]
    driven.hand(0, 7).say(0, began(7, 1)).stop(0, 7, grace_s=0.0).later(0.0).later(INTERRUPT_GRACE_S)
    driven.link_closed(0)
    driven.up(3, "b").up(4, "c").up(5, "b")
    assert told(driven) == [("SlotLost", 0)]


def test_a_member_that_cannot_load_takes_the_others_along_and_names_its_own_node() -> None:
    driven = Driven(can_spare=False, world_size=2).open(0).up(0, "a")
    driven.fleet.connected(1, driven.at)
    (event,) = driven.say(1, msg.Unready(failure=RAISED, node="b")).events
    assert isinstance(event, ev.SlotFailed)
    assert event.node == "b"
    assert driven.did(KillWorker) == [KillWorker(worker=0), KillWorker(worker=1)]


def test_each_member_is_told_its_place_among_those_on_its_node() -> None:
    driven = Driven(can_spare=False, world_size=4, process_group="nccl").open(0)
    for rank, (node, device) in enumerate([("a", "0"), ("a", "1"), ("b", "3"), ("b", "2")]):
        driven.fleet.connected(rank, driven.at)
        driven.say(rank, msg.Ready(node=node, pid=1, host=f"host {node}", devices=device))
    sent = {send.worker: send.messages[0] for send in driven.hand(0, 7).did(Send)}
    jobs = [sent[rank] for rank in range(4)]
    assert all(isinstance(job, msg.Job) and job.gang is not None for job in jobs)
    gangs = [job.gang for job in jobs]
    assert [job.rank for job in jobs] == [0, 1, 2, 3]
    assert [(g.local_rank, g.local_world_size, g.node_rank) for g in gangs] == [
        (0, 2, 0),
        (1, 2, 0),
        (0, 2, 1),
        (1, 2, 1),
    ]
    assert {g.nodes for g in gangs} == {(0, 0, 1, 1)}
    assert [(g.devices, g.device) for g in gangs] == [("0,1", 0), ("0,1", 1), ("3,2", 0), ("3,2", 1)]
    assert {(g.world_size, g.host, g.group) for g in gangs} == {(4, "host a", "nccl")}


def group_of_slot(policy: FleetPolicy, size: str, members: int) -> str:
    """What connects the members of a slot of this size."""
    driven = Driven(**{name: getattr(policy, name) for name in policy.__slots__}).open(0, size=size)
    for rank in range(members):
        driven.up(rank)
    job = driven.hand(0, 7).did(Send)[0].messages[0]
    assert isinstance(job, msg.Job)
    assert job.gang is not None
    assert job.gang.world_size == members
    return job.gang.group


@pytest.mark.parametrize(
    ("backend", "groups"),
    [
        ("torch", {"": "gloo", "gpu=0.75": "gloo", "gpu=1": "nccl", "cpu=4 gpu=2": "nccl", "cpu=4": "gloo"}),
        ("gloo", {"": "gloo", "gpu=1": "gloo"}),
        (None, {"": "", "gpu=1": ""}),
    ],
)
def test_torch_is_nccl_where_the_size_has_whole_gpus(backend: str | None, groups: dict[str, str]) -> None:
    each = {"num_workers": 2, "resources": {"cpu": 0, "gpu": 0.5}, "backend": backend}
    asked = {"by_config": {"num_workers": "n", "resources": {"gpu": "n"}}}
    policy = FleetPolicy.of(make_spec(param_space={"n": {"choice": [1, 2]}}, scaling=each | asked))
    for size, group in groups.items():
        assert group_of_slot(policy, size, 2) == group, size
    assert group_of_slot(policy, "gpu=1 num_workers=3", 3) == groups["gpu=1"]


# -- one trial at a time -----------------------------------------------------------------------------------


def test_the_next_trial_goes_out_when_all_members_have_ended_the_one_before() -> None:
    driven = at_work().hand(0, 8)
    assert driven.sent() == []
    assert told(driven.say(0, returned(7, 1))) == []
    driven.say(1, returned(7, 1))
    assert told(driven) == [("TrialReturned", 7)]
    assert [(worker, kind) for worker, kind, *_ in driven.sent()] == [(0, "job"), (1, "job")]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_gang_is_replaced_whole_once_all_have_ended_where_one_is_spent(order: tuple[int, int]) -> None:
    driven = at_work().hand(0, 8)
    for rank in order:
        assert driven.did(KillWorker) == []
        driven.say(rank, *([spent(7, 1)] if rank else []), returned(7, 1))
    assert told(driven)[-1] == ("TrialReturned", 7)
    assert driven.did(KillWorker) == [KillWorker(worker=0), KillWorker(worker=1)]
    assert driven.sent() == [], "trial 8 waits for the next members"
    driven.link_closed(0)
    assert sorted(worker for worker, *_ in driven.up(3).up(2).sent()) == [2, 3]


def test_what_has_not_gone_out_is_given_back_without_asking_anybody() -> None:
    driven = at_work().hand(0, 8).recall(0, 8)
    assert driven.events == [ev.TrialsRecalled(at=100.0, slot=0, trials=(8,))]
    assert driven.sent() == []


def test_of_the_others_no_reports_are_heard() -> None:
    driven = at_work()
    rows = msg.TrialReported(trial=7, attempt=1, first=0, keys=("loss",), rows=[[1.0]])
    assert driven.say(1, rows).events == []
    assert [type(event) for event in driven.say(0, rows).events] == [ev.TrialReported]


def test_the_others_are_told_where_to_meet_and_when_to_leave() -> None:
    driven = at_work(members=3)
    driven.say(0, msg.Met(trial=7, attempt=1, port=29500))
    assert [(worker, kind) for worker, kind, *_ in driven.sent()] == [(1, "meet"), (2, "meet")]
    driven.stop(0, 7)
    assert [(worker, kind) for worker, kind, *_ in driven.sent()] == [(0, "stop")]
    driven.say(0, msg.Leaving(trial=7, attempt=1, report=4, reason="limit"))
    follows = [(send.worker, send.messages) for send in driven.did(Send)]
    follow = msg.Follow(trial=7, attempt=1, report=4, reason="limit")
    assert follows == [(1, [follow]), (2, [follow])]


def test_a_stop_that_comes_when_rank_0_has_ended_goes_to_the_others() -> None:
    driven = at_work().say(0, returned(7, 1)).stop(0, 7)
    assert kinds(driven, 1) == ["follow"]
    driven.say(1, stopped(7, 1))
    assert told(driven) == [("TrialReturned", 7)]


def test_actors_of_a_gang_are_for_one_trial_and_go_when_it_has_ended_in_all_of_them() -> None:
    driven = at_work("actor").hand(0, 8)
    assert driven.say(0, returned(7, 1)).did(KillWorker) == []
    driven.say(1, returned(7, 1))
    assert told(driven) == [("TrialReturned", 7)]
    assert driven.did(KillWorker) == [KillWorker(worker=0), KillWorker(worker=1)]
    assert [(action.worker, action.rank) for action in driven.did(StartWorker)] == [(2, 0), (3, 1)]
    assert driven.sent() == []
    assert driven.up(2).sent() == []
    assert sorted(worker for worker, *_ in driven.up(3).sent()) == [2, 3], "trial 8"
    assert driven.link_closed(0).ended(1).events == []


# -- ends --------------------------------------------------------------------------------------------------


def test_a_stopped_gang_has_one_end_once_all_have_left() -> None:
    driven = at_work().stop(0, 7)
    assert told(driven.say(0, stopped(7, 1))) == []
    assert kinds(driven, 1) == ["follow"], "those that are left are told at once"
    assert told(driven.say(1, echo(7, 1))) == [("TrialStopped", 7)]
    assert driven.fleet.slots[0].is_ready


def test_the_error_of_a_rank_is_that_of_the_trial_and_says_which_rank() -> None:
    driven = at_work().say(1, failed(7, 1, RAISED))
    assert told(driven) == []
    assert kinds(driven, 0) == ["stop"]
    (event,) = driven.say(0, stopped(7, 1)).events
    assert isinstance(event, ev.TrialFailed)
    assert (event.failure.type, event.failure.message) == ("ValueError", "rank 1: boom")


def test_an_echo_explains_nothing_where_something_else_does() -> None:
    driven = at_work().say(0, echo(7, 1))
    (event,) = driven.say(1, failed(7, 1, RAISED)).events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.type == "ValueError"
    driven = at_work().say(1, echo(7, 1))
    (event,) = driven.say(0, echo(7, 1)).events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.type == "RuntimeError"


def test_one_that_has_returned_does_not_hide_that_another_fails() -> None:
    driven = at_work().say(0, returned(7, 1)).say(1, failed(7, 1, RAISED))
    assert told(driven) == [("TrialFailed", 7)]


def test_a_damaged_checkpoint_is_said_once_and_is_no_failure() -> None:
    damaged = msg.CheckpointDamaged(trial=7, attempt=1, uri="u", problem="p")
    driven = at_work().say(1, damaged)
    assert [type(event) for event in driven.events] == [ev.CheckpointDamaged]
    assert driven.say(0, damaged).events == []
    driven.say(1, stopped(7, 1)).say(0, stopped(7, 1))
    assert told(driven) == [("TrialStopped", 7)]


def test_members_that_do_not_leave_are_interrupted_then_their_processes_are_killed() -> None:
    driven = at_work("process").say(1, failed(7, 1, RAISED))
    assert driven.later(GANG_GRACE_S - 0.1).sent() == []
    assert kinds(driven.later(0.1), 0) == ["interrupt"]
    assert kinds(driven.later(INTERRUPT_GRACE_S), 0) == ["kill"]
    (event,) = driven.say(0, stopped(7, 1, was_killed=True)).events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.message == "rank 1: boom"
    assert driven.later(KILL_GRACE_S).did(KillWorker) == []


def test_warm_members_that_do_not_leave_are_replaced_all_together_and_the_cause_stays() -> None:
    driven = at_work().hand(0, 8).say(1, failed(7, 1, RAISED))
    driven.later(GANG_GRACE_S).later(INTERRUPT_GRACE_S)
    assert driven.did(KillWorker) == [KillWorker(worker=0), KillWorker(worker=1)]
    assert driven.link_closed(1).events == []
    driven.link_closed(0)
    (event,) = driven.events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.message == "rank 1: boom"
    assert [(action.worker, action.rank) for action in driven.did(StartWorker)] == [(2, 0), (3, 1)]
    assert driven.did(HangUp) == [HangUp(worker=0), HangUp(worker=1)]
    assert sorted(worker for worker, *_ in driven.up(3).up(2).sent()) == [2, 3], "trial 8"


def test_a_trial_that_does_not_stop_is_killed_in_all_members() -> None:
    driven = at_work().stop(0, 7, grace_s=10.0).later(10.0)
    assert [(worker, kind) for worker, kind, *_ in driven.sent()] == [(0, "interrupt"), (1, "interrupt")]
    driven.later(INTERRUPT_GRACE_S).later(LAST_WORDS_S)
    (event,) = driven.events
    assert event == ev.TrialStopped(at=driven.at, trial=7, attempt=1, was_killed=True)


def test_what_rank_0_stores_yet_is_waited_for() -> None:
    driven = at_work().say(0, msg.TrialBusy(trial=7, attempt=1, is_over=False)).say(1, failed(7, 1, RAISED))
    assert driven.later(GANG_GRACE_S).sent() == []
    driven.say(0, msg.TrialBusy(trial=7, attempt=1, is_over=True))
    assert kinds(driven.later(GANG_GRACE_S), 0) == ["interrupt"]


# -- deaths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_a_member_that_dies_takes_the_slot_along_and_the_trial_is_charged_once(rank: int) -> None:
    driven = at_work().say(1 - rank, echo(7, 1)).ended(rank).link_closed(rank)
    assert told(driven) == [("SlotLost", 0)]
    (event,) = driven.events
    assert isinstance(event, ev.SlotLost)
    assert (event.failure.type, event.was_handed) == ("WorkerDied", True)
    assert driven.did(KillWorker) == [KillWorker(worker=1 - rank)]
    assert not driven.fleet.crew.numbers
    assert driven.ended(1 - rank).events == []


def test_a_group_of_which_one_node_goes_is_not_kept() -> None:
    driven = Driven(can_spare=False, world_size=2).open(0).up(0, "a").up(1, "b")
    assert driven.ended(1, NODE_DIED).link_closed(1).did(RemoveGroup) == [RemoveGroup(group=0)]
    driven = Driven(can_spare=False, world_size=2).open(0).up(0, "a").up(1, "b").ended(0).link_closed(0)
    assert driven.did(RemoveGroup) == []
    driven.fleet.avoid({"b"})
    assert driven.done().did(RemoveGroup) == [RemoveGroup(group=0)]


def test_a_member_over_its_memory_fails_the_trial_for_that_and_nobody_is_charged_for_its_death() -> None:
    driven = at_work().hand(0, 8).say(1, failed(7, 1, OVER_MEMORY)).ended(1).link_closed(1)
    assert told(driven) == [("TrialFailed", 7), ("SlotLost", 0)]
    trial, slot = driven.events
    assert isinstance(trial, ev.TrialFailed)
    assert isinstance(slot, ev.SlotLost)
    assert trial.failure.origin == "memory"
    assert not slot.was_handed


def test_at_the_end_all_members_go() -> None:
    driven = at_work()
    driven.fleet.close_all()
    driven.done()
    assert driven.sent() == [(0, "exit"), (1, "exit")]
    assert not driven.fleet.crew.numbers
    assert not driven.fleet.groups.numbers


# -- anything, in any order ----------------------------------------------------------------------------------


class Chance:
    """Gangs of three under random inputs; what ends each trial is counted."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.isolation = self.random.choice(["worker", "process", "actor"])
        self.driven = Driven(self.isolation, can_spare=False, world_size=3, process_group="gloo")
        self.jobs: dict[int, list[msg.Job]] = {}
        self.given: dict[tuple[int, int], int] = {}
        self.accounts: list[str] = []
        self.next_slot = self.next_trial = 0
        self.alive: dict[int, bool] = {}
        self.served: set[int] = set()

    def look(self) -> None:
        """Carry out what the fleet wants, and account for what it says."""
        for action in self.driven.actions:
            match action:
                case StartWorker(worker=worker):
                    self.alive[worker], self.jobs[worker] = False, []
                case KillWorker(worker=worker):
                    self.alive.pop(worker, None)
                case Send(worker=worker, messages=messages):
                    jobs = [message for message in messages if isinstance(message, msg.Job)]
                    self.jobs[worker] += jobs
                    assert len(self.jobs[worker]) <= 1, "one trial at a time"
                    if jobs and self.isolation == "actor":
                        assert worker not in self.served, "an actor has one trial"
                        self.served.add(worker)
        for event in self.driven.events:
            match event:
                case ev.TrialReturned() | ev.TrialStopped() | ev.TrialFailed():
                    assert self.given.pop((event.trial, event.attempt), None) is not None, "ends twice"
                case ev.SlotLost(slot=slot) | ev.SlotFailed(slot=slot):
                    self.given = {who: where for who, where in self.given.items() if where != slot}
        self.driven.actions, self.driven.events = [], []
        there = {
            (trial, handed.job.attempt)
            for s in self.driven.fleet.slots.values()
            for trial, handed in s.handed.items()
        }
        assert there == set(self.given), "a trial is lost, or was given back twice"

    def step(self) -> None:
        slots = list(self.driven.fleet.slots)
        choice = self.random.random()
        if not slots or choice < 0.05:
            self.driven.open(self.next_slot)
            self.next_slot += 1
        elif choice < 0.2:
            slot = self.random.choice(slots)
            self.given[self.next_trial, 1] = slot
            self.driven.hand(slot, self.next_trial)
            self.next_trial += 1
        elif choice < 0.3 and self.given:
            (trial, attempt), slot = self.random.choice(list(self.given.items()))
            self.driven.stop(slot, trial, attempt, grace_s=self.random.choice([0.0, 1.0]))
        elif choice < 0.45:
            self.driven.later(self.random.choice([0.5, 2.0, 11.0]))
        elif self.alive:
            self.of_worker(self.random.choice(list(self.alive)))
        else:
            return
        self.look()

    def of_worker(self, worker: int) -> None:
        if not self.alive[worker]:
            self.alive[worker] = True
            self.driven.up(worker)
        elif self.random.random() < 0.07:
            del self.alive[worker]
            self.driven.ended(worker)
            self.look()
            self.driven.link_closed(worker)
        elif self.jobs[worker]:
            job = self.jobs[worker].pop()
            end: Any = self.random.choice([returned, returned, stopped, echo, raised])
            said = [began(*job.who)] if self.random.random() < 0.9 or not job.rank else []
            self.driven.say(worker, *said, end(*job.who))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_each_trial_has_one_end_and_runs_in_one_gang_at_a_time(seed: int) -> None:
    chance = Chance(seed)
    for _ in range(400):
        chance.step()
    assert chance.next_trial > 20


def test_a_slot_of_another_size_has_so_many_members_and_its_group_is_not_kept() -> None:
    driven = Driven(can_spare=False, world_size=2).open(0, size="num_workers=3")
    assert driven.actions == [
        CreateGroup(group=0, needs=Needs(size="num_workers=3"), excluded=()),
        *(StartWorker(worker=rank, group=0, is_spare=False, rank=rank) for rank in range(3)),
    ]
    assert driven.fleet.has_large_opening
    group = driven.fleet.slots[0].worker.group
    assert not driven.fleet.groups.give_back(group, {"node0"})
