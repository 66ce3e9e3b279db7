"""Slots, workers and groups: what is started, killed, handed over and given back, and what the core hears."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.vocabulary import events as ev
from raysweep.fleet import (
    CreateGroup,
    ExplainDelay,
    HangUp,
    KillWorker,
    RemoveGroup,
    StartWorker,
)
from raysweep.fleet.policy import (
    HURRY_INTERRUPT_S,
    HURRY_LET_GO_S,
    INTERRUPT_GRACE_S,
    KILL_GRACE_S,
    LAST_WORDS_S,
    LINGER_S,
    REPLACE_S,
    SILENCE_S,
)
from raysweep.messages import FailureFacts, Memory, Ready, Spent, TrialsRecalled, Unready
from raysweep.space.amounts import USUAL, Needs
from tests.unit.fleet.fleet import (
    DIED,
    NODE_DIED,
    RAISED,
    Driven,
    began,
    failed,
    returned,
    spent,
    stopped,
    told,
)

# -- opened and closed -------------------------------------------------------------------------------------


def test_a_slot_gets_a_group_and_a_worker_and_is_open_once_that_is_ready() -> None:
    driven = Driven().open(0)
    assert driven.actions == [
        CreateGroup(group=0, needs=USUAL, excluded=()),
        StartWorker(worker=0, group=0, is_spare=False),
    ]
    assert driven.up(0, "n1").events == [ev.SlotOpened(at=100.0, slot=0, node="n1")]


def test_a_closed_slot_gives_its_resources_back_at_once() -> None:
    driven = Driven().open(0).up(0).close(0)
    assert driven.actions == [KillWorker(worker=0), HangUp(worker=0), RemoveGroup(group=0)]
    assert not driven.fleet.groups.numbers


def test_a_group_whose_worker_died_serves_the_next_slot_and_lingers_for_none() -> None:
    driven = Driven().open(0).up(0).ended(0).link_closed(0)
    assert told(driven) == [("SlotLost", 0)]
    assert driven.open(1).did(CreateGroup) == []
    driven.up(1).ended(1).link_closed(1)
    assert driven.later(LINGER_S - 0.1).did(RemoveGroup) == []
    assert driven.later(0.1).did(RemoveGroup) == [RemoveGroup(group=0)]


def test_a_group_that_was_taken_again_meanwhile_is_not_removed() -> None:
    driven = Driven().open(0).up(0).ended(0).link_closed(0).open(1)
    assert driven.later(LINGER_S).did(RemoveGroup) == []
    assert driven.up(1).events != []


@pytest.mark.parametrize("how", ["dead", "avoided", "excluded", "large"])
def test_a_group_that_is_of_no_use_is_removed(how: str) -> None:
    driven = Driven().open(0, 2**30 if how == "large" else None).up(0, "bad")
    if how == "avoided":
        driven.fleet.avoid({"bad"})
    elif how == "excluded":
        driven.fleet.exclude(_exclude("bad"))
    driven.ended(0, NODE_DIED if how == "dead" else DIED).link_closed(0)
    assert driven.did(RemoveGroup) == [RemoveGroup(group=0)]


def test_a_free_group_on_a_node_that_goes_is_removed_before_anybody_gets_it() -> None:
    driven = Driven().open(0).up(0, "bad").ended(0).link_closed(0)
    driven.fleet.avoid({"bad"})
    assert driven.done().did(RemoveGroup) == [RemoveGroup(group=0)]
    assert driven.open(1).did(CreateGroup) == [CreateGroup(group=1, needs=USUAL, excluded=())]


def test_new_groups_keep_off_excluded_nodes() -> None:
    driven = Driven()
    driven.fleet.exclude(_exclude("b"))
    driven.fleet.exclude(_exclude("a"))
    assert driven.open(0).did(CreateGroup) == [CreateGroup(group=0, needs=USUAL, excluded=("a", "b"))]


def test_a_large_slot_gets_what_lies_free() -> None:
    driven = Driven().open(0).up(0).ended(0).link_closed(0).open(1, 2**30)
    assert driven.did(RemoveGroup) == [RemoveGroup(group=0)]
    assert driven.did(CreateGroup) == [CreateGroup(group=1, needs=Needs(memory_bytes=2**30), excluded=())]
    driven = Driven().open(0).up(0).open(1, 2**30).ended(0).link_closed(0)
    assert driven.did(RemoveGroup) == [RemoveGroup(group=0)], "a larger slot waits for the room"


def test_why_a_worker_waits_is_looked_at_once_and_only_if_it_still_does() -> None:
    assert Driven().open(0).later(30.0).did(ExplainDelay) == [ExplainDelay(slot=0, group=0)]
    assert Driven().open(0).up(0).later(30.0).did(ExplainDelay) == []
    assert Driven().open(0).close(0).later(30.0).did(ExplainDelay) == []


def test_a_worker_that_does_not_load_is_given_up() -> None:
    driven = Driven().open(0)
    driven.fleet.connected(0, driven.at)
    assert driven.later(59.9).events == []
    driven = driven.later(0.1)
    (failed,) = driven.events
    assert isinstance(failed, ev.SlotFailed)
    assert failed.failure.type == "StartTimeout"
    assert driven.did(KillWorker)
    assert Driven().open(0).up(0).later(60.0).events == []


def test_a_worker_that_cannot_load_says_so() -> None:
    driven = Driven().open(0)
    driven.fleet.connected(0, driven.at)
    (failed,) = driven.say(0, Unready(failure=RAISED, node="n1")).events
    assert isinstance(failed, ev.SlotFailed)
    assert (failed.slot, failed.node, failed.failure.type) == (0, "n1", "ValueError")


# -- handed over and taken back ----------------------------------------------------------------------------


def test_trials_wait_for_the_worker_and_go_in_order() -> None:
    driven = Driven().open(0).hand(0, 5).hand(0, 3)
    assert driven.sent() == []
    assert [(worker, kind) for worker, kind, *_ in driven.up(0).sent()] == [(0, "job"), (0, "job")]


def test_a_fresh_actor_gets_one_trial() -> None:
    driven = Driven("actor").running(1, 2)
    assert [action.is_spare for action in driven.did(StartWorker)] == [True]
    driven.fleet.connected(1, driven.at)
    driven.say(1, Ready(node="n", pid=1)).say(0, returned(1, 1))
    assert told(driven) == [("TrialReturned", 1)]
    assert driven.did(KillWorker) == [KillWorker(worker=0)]
    assert driven.sent()[0][:2] == (1, "job")
    assert driven.did(StartWorker) == []


def test_what_is_asked_back_is_answered_once_by_worker_and_fleet_together() -> None:
    driven = Driven().open(0).hand(0, 1).hand(0, 2).recall(0, 2)
    assert told(driven) == [("TrialsRecalled", 0, (2,))], "the worker had none of them"
    driven = Driven().running(1, 2, 3).recall(0, 2, 3)
    assert driven.events == []
    assert driven.sent() == [(0, "recall", [2, 3])]
    assert told(driven.say(0, TrialsRecalled(trials=[3]))) == [("TrialsRecalled", 0, (3,))]
    assert told(driven.say(0, TrialsRecalled(trials=[3]))) == [], "nobody has asked"


def test_two_requests_have_two_answers() -> None:
    driven = Driven().running(1, 2, 3).recall(0, 3).recall(0, 2)
    assert told(driven.say(0, TrialsRecalled(trials=[3]))) == [("TrialsRecalled", 0, (3,))]
    assert told(driven.say(0, TrialsRecalled(trials=[]))) == [("TrialsRecalled", 0, ())]


# -- stopped, interrupted, killed --------------------------------------------------------------------------


def test_stop_then_interrupt_then_kill_and_the_next_worker_is_warm() -> None:
    driven = Driven().running(1).stop(0, 1)
    assert driven.sent() == [(0, "stop", 1, 1)]
    driven.later(10.0)
    assert driven.sent() == [(0, "interrupt", 1, 1)]
    assert driven.did(StartWorker) == [StartWorker(worker=1, group=0, is_spare=True)]
    driven.up(1)
    assert driven.later(INTERRUPT_GRACE_S).did(KillWorker) == [KillWorker(worker=0)]
    assert driven.events == []
    assert driven.link_closed(0).events == [
        ev.TrialStopped(at=driven.at, trial=1, attempt=1, was_killed=True)
    ]
    assert driven.hand(0, 2).sent()[0][:2] == (1, "job")


def test_a_stop_for_a_trial_that_has_ended_does_nothing_to_the_next() -> None:
    """It reported its last time and returned in one frame: the stop crosses its end."""
    driven = Driven().running(1, 2).say(0, returned(1, 1)).stop(0, 1)
    assert driven.sent() == []
    driven.say(0, began(2, 1))
    for _ in range(4):
        assert driven.later(10.0).actions == []


def test_a_trial_that_ends_in_its_grace_leaves_no_alarm() -> None:
    driven = Driven().running(1, 2).stop(0, 1).say(0, stopped(1, 1), began(2, 1))
    for _ in range(4):
        assert driven.later(10.0).actions == []


def test_another_attempt_of_the_same_trial_is_not_meant() -> None:
    driven = Driven().running(1).stop(0, 1).say(0, failed(1, 1, RAISED)).hand(0, 1, attempt=2)
    driven.say(0, began(1, 2))
    assert driven.later(12.0).actions == []
    assert driven.stop(0, 1, attempt=1).sent() == []


def test_a_second_stop_replaces_the_first() -> None:
    driven = Driven().running(1).stop(0, 1, grace_s=5.0).stop(0, 1, grace_s=20.0)
    assert driven.later(5.0).sent() == []
    assert driven.later(15.0).sent() == [(0, "interrupt", 1, 1)]
    driven.stop(0, 1, grace_s=50.0)
    assert driven.later(INTERRUPT_GRACE_S).did(KillWorker) == [KillWorker(worker=0)], (
        "never weaker than before"
    )


def test_what_had_not_begun_goes_to_the_next_worker() -> None:
    driven = (
        Driven(can_spare=False).running(1, 2, 3).stop(0, 1, grace_s=0.0).later(0.0).later(INTERRUPT_GRACE_S)
    )
    driven.link_closed(0)
    assert told(driven) == [("TrialStopped", 1)]
    assert driven.did(StartWorker) == [StartWorker(worker=1, group=0, is_spare=False)]
    assert [message[:2] for message in driven.up(1).sent()] == [(1, "job"), (1, "job")]
    assert driven.events == [], "the slot was open all the time"


def test_the_last_words_of_a_killed_worker_count() -> None:
    """The trial ended at the last moment, and the one behind it had begun: that is lost, and not charged."""
    driven = Driven().running(1, 2).stop(0, 1, grace_s=0.0).later(0.0).later(INTERRUPT_GRACE_S)
    driven.say(0, returned(1, 1), began(2, 1))
    assert told(driven) == [("TrialReturned", 1), ("TrialStarted", 2)]
    (lost,) = driven.link_closed(0).events
    assert isinstance(lost, ev.TrialFailed)
    assert (lost.trial, lost.failure.origin) == (2, "node")


def test_a_killed_worker_whose_link_stays_open_is_waited_for_no_longer_than_that() -> None:
    driven = Driven().running(1).stop(0, 1, grace_s=0.0).later(0.0).later(INTERRUPT_GRACE_S)
    assert driven.later(LAST_WORDS_S - 0.1).events == []
    assert told(driven.later(0.1)) == [("TrialStopped", 1)]
    assert driven.link_closed(0).events == []


def test_what_a_killed_worker_may_have_begun_unheard_runs_again_as_another_attempt() -> None:
    """Its link does not close: what it had is not handed to the next one under the same attempt's number."""
    driven = Driven().running(1, 2, 3).recall(0, 3).stop(0, 1, grace_s=0.0).later(0.0)
    driven.later(INTERRUPT_GRACE_S).later(LAST_WORDS_S)
    assert told(driven) == [("TrialStopped", 1), ("TrialFailed", 2), ("TrialsRecalled", 0, (3,))]
    assert driven.up(1).sent() == []


def test_a_forked_trial_is_killed_in_its_worker_and_then_with_it() -> None:
    driven = Driven("process", can_spare=False).running(1, 2).stop(0, 1, grace_s=0.0).later(0.0)
    assert driven.later(INTERRUPT_GRACE_S).sent() == [(0, "kill", 1, 1)]
    assert driven.did(KillWorker) == []
    assert driven.later(KILL_GRACE_S).did(KillWorker) == [KillWorker(worker=0)]
    driven = Driven("process", can_spare=False).running(1, 2).stop(0, 1, grace_s=0.0).later(0.0)
    driven.later(INTERRUPT_GRACE_S).say(0, stopped(1, 1, was_killed=True), began(2, 1))
    assert driven.later(KILL_GRACE_S).actions == []


def test_what_was_asked_back_of_a_killed_worker_is_answered_for_it() -> None:
    driven = Driven(can_spare=False).running(1, 2, 3).recall(0, 3)
    driven.stop(0, 1, grace_s=0.0).later(0.0).later(INTERRUPT_GRACE_S).link_closed(0)
    assert told(driven) == [("TrialStopped", 1), ("TrialsRecalled", 0, (3,))]
    assert [message[:2] for message in driven.up(1).sent()] == [(1, "job")]


def test_a_worker_that_is_spent_is_replaced_when_its_trial_has_ended() -> None:
    """What had not begun there goes to the next one; that is noted once."""
    driven = Driven(can_spare=False).running(1, 2).say(0, spent(1, 1))
    assert told(driven) == [("TrialNoted", 1)]
    assert driven.did(KillWorker) == []
    driven.say(0, returned(1, 1))
    assert told(driven) == [("TrialReturned", 1)]
    assert driven.did(KillWorker) == [KillWorker(worker=0)]
    assert driven.hand(0, 3).sent() == [], "it gets no other trial"
    assert driven.link_closed(0).events == []
    assert driven.did(StartWorker) == [StartWorker(worker=1, group=0, is_spare=False)]
    assert [message[:3] for message in driven.up(1).sent()] == [(1, "job", 2), (1, "job", 3)]
    driven.say(1, began(2, 1), spent(2, 1), returned(2, 1))
    assert told(driven) == [("TrialStarted", 2), ("TrialReturned", 2)]
    assert driven.did(KillWorker) == [KillWorker(worker=1)]


def test_a_worker_that_has_run_its_trials_is_replaced_by_one_that_is_warm() -> None:
    """Nothing is noted: it was asked for. The next worker starts when the last trial begins."""
    driven = Driven(max_trials=2).running(1, 2, 3)
    assert driven.did(StartWorker) == []
    driven.say(0, returned(1, 1), began(2, 1))
    assert driven.did(StartWorker) == [StartWorker(worker=1, group=0, is_spare=True)]
    driven.up(1).say(0, Spent(2, 1, leftover=""), returned(2, 1))
    assert told(driven) == [("TrialReturned", 2)]
    assert driven.did(KillWorker) == [KillWorker(worker=0)]
    assert [message[:3] for message in driven.link_closed(0).sent()] == [(1, "job", 3)]


def test_a_trial_over_its_memory_takes_its_worker_and_nobody_else() -> None:
    held = FailureFacts(origin="memory", type="MemoryLimitExceeded", message="too much")
    driven = Driven(can_spare=False).running(1, 2).say(0, failed(1, 1, held))
    assert told(driven) == [("TrialFailed", 1)]
    assert driven.did(KillWorker) == [KillWorker(worker=0)]
    assert driven.hand(0, 3).sent() == [], "the dying worker gets no other trial"
    assert driven.link_closed(0).events == []
    assert [message[:2] for message in driven.up(1).sent()] == [(1, "job"), (1, "job")]


def test_a_worker_that_ends_for_its_memory_before_it_can_be_killed_charges_nobody() -> None:
    held = FailureFacts(origin="memory", type="MemoryLimitExceeded", message="too much")
    driven = Driven().running(1, 2).ended(0).say(0, failed(1, 1, held)).link_closed(0)
    (lost,) = driven.events
    assert isinstance(lost, ev.SlotLost)
    assert not lost.was_handed


def test_a_trial_that_ends_its_process_charges_nobody_behind_it() -> None:
    """Its worker said whose end it is, and begins no other."""
    died = FailureFacts(origin="process", type="ProcessDied", message="exit code 7", exit_code=7)
    driven = Driven().running(1, 2).say(0, failed(1, 1, died))
    assert told(driven) == [("TrialFailed", 1)]
    (lost,) = driven.ended(0).link_closed(0).events
    assert isinstance(lost, ev.SlotLost)
    assert not lost.was_handed


def test_a_forked_trial_that_ends_its_process_says_nothing_of_its_workers_end() -> None:
    died = FailureFacts(origin="process", type="ProcessDied", message="exit code 7", exit_code=7)
    driven = Driven("process").running(1, 2).say(0, failed(1, 1, died), began(2, 1))
    (lost,) = driven.ended(0).link_closed(0).events
    assert isinstance(lost, ev.SlotLost)
    assert lost.was_handed, "the second trial may have killed it"


def test_a_forked_trial_over_its_memory_leaves_the_worker() -> None:
    held = FailureFacts(origin="memory", type="MemoryLimitExceeded", message="too much")
    assert Driven("process").running(1, 2).say(0, failed(1, 1, held)).did(KillWorker) == []


# -- died --------------------------------------------------------------------------------------------------


def test_a_dead_worker_is_lost_once_its_link_has_closed() -> None:
    driven = Driven().running(1, 2).ended(0)
    assert driven.events == []
    driven.say(0, returned(1, 1), Memory(held_bytes=7))
    (lost,) = driven.link_closed(0).events
    assert isinstance(lost, ev.SlotLost)
    assert lost.was_handed, "the second trial may have killed it"
    assert lost.failure.memory_bytes == 7


def test_a_dead_worker_whose_link_does_not_close_is_lost_all_the_same() -> None:
    driven = Driven().running(1).ended(0)
    assert driven.later(LAST_WORDS_S - 0.1).events == []
    assert told(driven.later(0.1)) == [("SlotLost", 0)]
    assert driven.later(LAST_WORDS_S).events == []


def test_a_worker_that_had_nothing_is_nobodys_fault() -> None:
    (lost,) = Driven().open(0).up(0).ended(0).link_closed(0).events
    assert isinstance(lost, ev.SlotLost)
    assert not lost.was_handed


def test_a_link_that_breaks_in_silence_counts_as_a_death_after_a_while() -> None:
    driven = Driven().running(1).link_closed(0)
    assert driven.later(SILENCE_S - 0.1).events == []
    (lost,) = driven.later(0.1).events
    assert isinstance(lost, ev.SlotLost)
    assert lost.failure.type == "LinkLost"
    assert driven.did(KillWorker) == [KillWorker(worker=0)]


def test_a_replacement_that_dies_before_it_is_ready_charges_nobody() -> None:
    driven = Driven(can_spare=False).running(1, 2).stop(0, 1, grace_s=0.0).later(0.0)
    driven.later(INTERRUPT_GRACE_S).link_closed(0).ended(1)
    (failed,) = driven.events
    assert isinstance(failed, ev.SlotFailed)
    assert (failed.slot, failed.node) == (0, "n")


def test_a_replacement_that_gets_no_place_gives_its_slot_up() -> None:
    driven = Driven("actor", can_spare=False).running(1, 2).say(0, returned(1, 1))
    assert driven.later(30.0 + REPLACE_S - 0.1).events == []
    (failed,) = driven.later(0.1).events
    assert isinstance(failed, ev.SlotFailed)
    assert failed.failure.node_state == "dead", "it is no failed start"
    driven = Driven("actor", can_spare=False).running(1, 2).say(0, returned(1, 1)).up(1)
    assert driven.later(30.0 + REPLACE_S).events == []


def test_a_replacement_on_another_node_is_another_slot() -> None:
    driven = Driven(can_spare=False).running(1, 2).stop(0, 1, grace_s=0.0).later(0.0)
    driven.later(INTERRUPT_GRACE_S).link_closed(0).up(1, "elsewhere")
    assert [type(event).__name__ for event in driven.events] == ["SlotLost"]
    assert not driven.fleet.slots


def test_a_spare_that_dies_or_cannot_load_is_not_used() -> None:
    for how in ("dies", "unready"):
        driven = Driven().running(1).stop(0, 1, grace_s=0.0).later(0.0)
        driven.fleet.connected(1, driven.at)
        if how == "dies":
            driven.ended(1).link_closed(1)
        else:
            driven.say(1, Unready(failure=RAISED, node="n"))
        assert driven.events == []
        driven.later(INTERRUPT_GRACE_S).link_closed(0)
        assert driven.did(StartWorker) == [StartWorker(worker=2, group=0, is_spare=False)]


def test_a_promoted_spare_has_its_node() -> None:
    driven = Driven().running(1).stop(0, 1, grace_s=0.0).later(0.0).up(1, "n")
    driven.later(INTERRUPT_GRACE_S).link_closed(0).hand(0, 2).say(1, began(2, 1)).ended(1).link_closed(1)
    assert driven.fleet.groups.free, "its group is kept for the next, as its node is known"


# -- the end -----------------------------------------------------------------------------------------------


def test_in_a_hurry_what_runs_is_interrupted_then_let_go() -> None:
    driven = Driven().running(1, 2).open(1)
    driven.fleet.hurry(driven.at)
    assert driven.later(HURRY_INTERRUPT_S - 0.01).sent() == []
    assert driven.later(0.01).sent() == [(0, "interrupt", 1, 1)]
    driven.later(HURRY_LET_GO_S - HURRY_INTERRUPT_S)
    assert told(driven) == [("SlotLost", 0), ("SlotFailed", 1)]
    assert len(driven.did(KillWorker)) == 2


def test_at_the_end_all_workers_and_groups_go() -> None:
    driven = Driven().running(1).open(1)
    driven.fleet.close_all()
    driven.done()
    assert driven.sent() == [(0, "exit"), (1, "exit")]
    assert {action.group for action in driven.did(RemoveGroup)} == {0, 1}
    assert {action.worker for action in driven.did(KillWorker)} == {0, 1}
    assert driven.events == []
    assert driven.later(1000.0).actions == []


def _exclude(node: str) -> Any:
    from raysweep.core.vocabulary.commands import ExcludeNode

    return ExcludeNode(node=node)
