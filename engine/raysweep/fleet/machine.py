"""The fleet: commands of the core, words of workers and news from Ray in; events and actions out.

Rules:

1. It reads no clock: every input carries its time (`at`, Unix seconds). What is to be done later waits in
   `alarms`, and is looked at anew when its time comes: an alarm that has outlived what it was set for does
   nothing.
2. `events` are for the core, `actions` for Ray and the links; both are in order, and the caller of the fleet
   takes them out after each input.
3. Each trial that was handed over is accounted for by exactly one of: its end, as its worker tells it; a kill
   (`TrialStopped`, for the one that would not end; `TrialFailed` as a loss that costs nothing, for one that
   had begun behind it); `TrialsRecalled`; or the loss of the slot.
4. A worker may be replaced under an open slot. What it had not begun is handed to the next one. One that
   cannot be replaced is a `SlotFailed` of that open slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from raysweep import messages as msg
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet import end_of_trial, gang, handing_over, losses, replacement, worker_messages
from raysweep.fleet.actions import ExplainDelay, Send
from raysweep.fleet.message_events import event_of
from raysweep.fleet.policy import (
    HURRY_INTERRUPT_S,
    HURRY_LET_GO_S,
    LAST_WORDS_S,
    SILENCE_S,
    FleetPolicy,
)
from raysweep.fleet.roster import Roster, Shorten
from raysweep.fleet.state import FleetSlot, Handed, Worker


class Fleet(Roster):
    """The fleet's machine: its inputs are commands of the core, messages of workers and events of Ray."""

    def __init__(
        self, policy: FleetPolicy, shorten: Shorten = lambda trial, attempt, failure: failure
    ) -> None:
        super().__init__(policy, shorten)
        # Whether a worker that is ready gets whatever its slot is handed, at once.
        self._is_in_order = policy.isolation != "actor" and not policy.world_size

    # -- commands of the core ----------------------------------------------------------------------

    def open(self, command: cmd.OpenSlot, at: float) -> None:
        """Start a worker; `SlotOpened` or `SlotFailed` follows."""
        group = self.groups.take(command.needs)
        ranks = range(self.policy.members(command.needs.size))
        members = tuple(self.crew.start(group, rank=rank) for rank in ranks)
        slot, worker = FleetSlot(number=command.slot, members=members, needs=command.needs), members[0]
        if not group.is_usual:
            self.large_opening.add(slot.number)
        self.slots[slot.number] = slot
        self.crew.serve(slot)
        self.alarms.set(at + self.policy.placement_timeout_s, lambda at: self._say_delayed(slot, worker))

    def close(self, command: cmd.CloseSlot) -> None:
        """End an idle worker, and give its resources back: this sweep itself may wait for them."""
        slot = self.slots.get(command.slot)
        if self.evaluations is not None:
            self.evaluations.close(command)
        if slot is not None:
            self._end_members(slot)
            self.groups.drop(slot.worker.group)

    def exclude(self, command: cmd.ExcludeNode) -> None:
        """Place nothing more on this node."""
        self.groups.exclude(command.node)

    def start_trial(self, command: cmd.StartTrial) -> None:
        """Hand a trial over."""
        if self.evaluations is not None:
            self.evaluations.begin(command)
        slot = self.slots.get(command.slot)
        if slot is None:
            return  # lost meanwhile: SlotLost is on its way to the core and gives the trial back
        job = msg.Job(
            trial=command.trial,
            attempt=command.attempt,
            config=command.config,
            seed=command.seed,
            checkpoint=command.checkpoint,
            iteration=command.iteration,
            next_checkpoint=command.next_checkpoint,
            has_older=command.has_older,
            memory_limit_bytes=self.policy.memory_limit(slot.needs.memory_bytes),
        )
        handed = slot.handed[command.trial] = Handed(job=job)
        if self._is_in_order and slot.is_ready:
            handing_over.hand_over(self, slot, handed)  # all before it have been
        else:
            handing_over.pump(self, slot)

    def stop_trial(self, command: cmd.StopTrial, at: float) -> None:
        """Ask a trial to end, and see to it that it does. One that has ended meanwhile is left alone."""
        slot = self.slots.get(command.slot)
        handed = slot.find(command.trial, command.attempt) if slot is not None else None
        if slot is not None and handed is not None:
            end_of_trial.ask(self, slot, handed, command, at)
        if self.evaluations is not None:
            self.evaluations.stop(command, at)

    def recall(self, command: cmd.RecallTrials, at: float) -> None:
        """Take trials back; `TrialsRecalled` follows."""
        slot = self.slots.get(command.slot)
        if slot is None:
            return
        found = [slot.handed[number] for number in command.trials if number in slot.handed]
        for handed in [handed for handed in found if handed.state == "unsent"]:
            del slot.handed[handed.trial]
            slot.recalled.append(handed.trial)
        there = tuple(handed.trial for handed in found if handed.state != "unsent")
        if there:
            slot.asked_back.append(there)
            self.say(slot, msg.Recall(trials=list(there)))
        elif not slot.asked_back:
            handing_over.recalled(self, slot, (), at)

    def answer(self, command: cmd.AnswerReport) -> None:
        """Let a waiting trial continue."""
        slot = self.slots.get(command.slot)
        if slot is not None:
            self.say(slot, msg.Answer(command.trial, command.attempt, command.report))

    # -- from those who drive it ---------------------------------------------------------------------

    def flush(self) -> None:
        """Send what was said since the last flush, one frame a worker."""
        for slot in self.dirty.values():
            if slot.outgoing:
                self._send(slot, slot.outgoing)
                slot.outgoing = []
        self.dirty.clear()

    def take_events(self) -> deque[ev.Event]:
        """The events that the core is to have now, in order: the caller of the fleet takes them out."""
        evaluations = self.evaluations
        if evaluations is None:
            return self.events
        while self.events:
            evaluations.take(self.events.popleft())
        return evaluations.events

    def tick(self, at: float) -> None:
        """Do what the time has come for."""
        for call in self.alarms.take_due(at):
            call(at)

    def avoid(self, nodes: Collection[str]) -> None:
        """These nodes are about to go, or gone."""
        self.groups.avoid(nodes)

    def hurry(self, at: float) -> None:
        """The process is about to be killed: interrupt what was told to stop, whatever its grace; then go."""
        self.alarms.set(at + HURRY_INTERRUPT_S, lambda at: end_of_trial.interrupt_all(self))
        self.alarms.set(at + HURRY_LET_GO_S, lambda at: losses.let_go(self, at))

    def close_all(self) -> None:
        """End every worker, remove every placement group."""
        for slot in list(self.slots.values()):
            self._send(slot, [*slot.outgoing, msg.Exit()])
            self._end_members(slot)
        self.groups.close()

    # -- news from Ray -------------------------------------------------------------------------------

    def worker_ended(self, number: int, failure: Failure, at: float) -> None:
        """Ray says that an actor is gone which was not killed; its last words may still be under way."""
        worker = self.crew.find(number)
        if worker is None or worker.state in ("retiring", "dying"):
            return
        worker.failure = failure
        if worker.has_link:
            worker.move("died")
            self.alarms.set(at + LAST_WORDS_S, lambda at: losses.bury(self, worker, at))
        else:
            losses.bury(self, worker, at)

    # -- from the links ------------------------------------------------------------------------------

    def connected(self, number: int, at: float) -> None:
        """A worker's process is up; the time in which it has to load the trainable starts now."""
        worker = self.crew.find(number)
        if worker is None or worker.state != "starting":
            return
        worker.move("connected")
        worker.has_link = True
        if self.policy.start_timeout_s is not None:
            limit_s = self.policy.start_timeout_s
            self.alarms.set(at + limit_s, lambda at: losses.give_up_start(self, worker, at))

    def link_closed(self, number: int, at: float) -> None:
        """A worker's link is closed. Ray will say how it died; if Ray stays silent, it counts as dead."""
        worker = self.crew.find(number)
        if worker is None:
            return
        worker.has_link = False
        if worker.state == "dying":
            losses.bury(self, worker, at)
        elif worker.state == "retiring":
            if worker.rank == 0:  # what others of a gang say last is of no interest
                replacement.replace(self, worker, at)
        else:
            self.alarms.set(at + SILENCE_S, lambda at: losses.give_up_silence(self, worker, at))

    def take(self, number: int, messages: Sequence[msg.FromWorker], at: float) -> None:
        """Messages of a worker, in order."""
        slot = self.crew.slot_of(number)
        if slot is None:
            worker_messages.take_from_spare(self, number, messages)
            return
        worker = self.crew.find(number)
        assert worker is not None
        for message in messages if len(slot.members) == 1 else gang.heard(self, slot, worker, messages, at):
            event = event_of(message, at)
            if event is None:
                worker_messages.take(self, slot, worker, message, at)
                continue
            self.events.append(event)
            if type(event) is ev.TrialStarted:
                handing_over.began(self, slot, event.trial, event.attempt)
            elif type(event) is ev.TrialReturned or type(event) is ev.TrialStopped:
                self.drop(slot, event.trial)
        if self.policy.isolation == "actor" and worker.state == "ready" and handing_over.is_used_up(slot):
            for member in slot.members:
                self.crew.kill(member)
            replacement.replace(self, slot.worker, at)
        elif slot.is_spent and self.slots.get(slot.number) is slot:
            self.retire(slot, at)
        elif self.policy.world_size and self.slots.get(slot.number) is slot:
            handing_over.pump(self, slot)  # of these a gang has one at a time

    # -- how it is done ------------------------------------------------------------------------------

    def retire(self, slot: FleetSlot, at: float) -> None:
        """Kill the members, hear the last words of rank 0, then continue with others."""
        replacement.retire(self, slot, at)

    def _say_delayed(self, slot: FleetSlot, worker: Worker) -> None:
        if self.crew.slot_of(worker.number) is slot and worker.state == "starting":
            self.actions.append(ExplainDelay(slot=slot.number, group=worker.group.number))

    def _send(self, slot: FleetSlot, messages: list[msg.ToWorker]) -> None:
        if not self.policy.world_size:
            self.actions.append(Send(worker=slot.worker.number, messages=messages))
            return
        for member in slot.members:
            said = gang.addressed(self.policy, slot, member, messages)
            if said:
                self.actions.append(Send(worker=member.number, messages=said))

    def _end_members(self, slot: FleetSlot) -> None:
        for member in slot.members:
            self.crew.kill(member)
        self.forget(slot)
