"""The fleet: commands of the core, words of workers and news from Ray in; events and actions out.

Rules:

1. It reads no clock: every input carries its time (`at`, Unix seconds). What is to be done later waits in
   `alarms`, and is looked at anew when its time comes: an alarm that has outlived what it was set for does
   nothing.
2. `events` are for the core, `actions` for Ray and the links; both are in order, and whoever drives the fleet
   takes them out after each input.
3. Each trial that was handed over is accounted for by exactly one of: its end, as its worker tells it; a kill
   (`TrialStopped`, for the one that would not end; `TrialFailed` as a loss that costs nothing, for one that
   had begun behind it); `TrialsRecalled`; or the loss of the slot.
4. A worker may be replaced under an open slot. What it had not begun is handed to the next one. One that
   cannot be replaced is a `SlotFailed` of that open slot.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from raysweep import messages as msg
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet import end_of_trial, gang, losses
from raysweep.fleet.actions import ExplainDelay, Send
from raysweep.fleet.message_events import event_of, failure_of
from raysweep.fleet.policy import (
    HURRY_INTERRUPT_S,
    HURRY_LET_GO_S,
    LAST_WORDS_S,
    REPLACE_S,
    SILENCE_S,
    FleetPolicy,
)
from raysweep.fleet.roster import Roster, Shorten
from raysweep.fleet.state import FleetSlot, Handed, Worker

_REPLACED: Final = Failure(
    origin="node", type="WorkerReplaced", message="its worker was ended for the trial before it"
)


class Fleet(Roster):
    """The fleet's machine: its inputs are commands of the core, messages of workers and events of Ray."""

    def __init__(
        self, policy: FleetPolicy, shorten: Shorten = lambda trial, attempt, failure: failure
    ) -> None:
        super().__init__(policy, shorten)
        # Whether a worker that is ready gets whatever its slot is handed, at once.
        self._is_in_order = policy.isolation != "actor" and not policy.world_size
        self._leftovers: set[str] = set()

    # -- commands of the core ----------------------------------------------------------------------

    def open(self, command: cmd.OpenSlot, at: float) -> None:
        """Start a worker; `SlotOpened` or `SlotFailed` follows."""
        group = self.groups.take(command.memory_bytes, command.size)
        ranks = range(self.policy.members(command.size))
        members = tuple(self.crew.start(group, rank=rank) for rank in ranks)
        slot, worker = FleetSlot(number=command.slot, members=members), members[0]
        slot.memory_bytes, slot.size = command.memory_bytes, command.size
        if not group.is_usual:
            self.large_opening.add(slot.number)
        self.slots[slot.number] = slot
        self.crew.serve(slot)
        self.alarms.set(at + self.policy.placement_timeout_s, lambda at: self._say_delayed(slot, worker))

    def close(self, command: cmd.CloseSlot) -> None:
        """End an idle worker, and give its resources back: whoever waits for them may be ourselves."""
        slot = self.slots.get(command.slot)
        if slot is not None:
            self._end_members(slot)
            self.groups.drop(slot.worker.group)

    def exclude(self, command: cmd.ExcludeNode) -> None:
        """Place nothing more on this node."""
        self.groups.exclude(command.node)

    def start_trial(self, command: cmd.StartTrial) -> None:
        """Hand a trial over."""
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
            memory_limit_bytes=self.policy.memory_limit(slot.memory_bytes),
        )
        handed = slot.handed[command.trial] = Handed(job=job)
        if self._is_in_order and slot.is_ready:
            self._hand_over(slot, handed)  # all before it have been
        else:
            self._pump(slot)

    def stop_trial(self, command: cmd.StopTrial, at: float) -> None:
        """Ask a trial to end, and see to it that it does. One that has ended meanwhile is left alone."""
        slot = self.slots.get(command.slot)
        handed = slot.find(command.trial, command.attempt) if slot is not None else None
        if slot is not None and handed is not None:
            end_of_trial.ask(self, slot, handed, command, at)

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
            self._recalled(slot, (), at)

    def answer(self, command: cmd.AnswerReport) -> None:
        """Let a waiting trial go on."""
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
                self._replace(worker, at)
        else:
            self.alarms.set(at + SILENCE_S, lambda at: losses.give_up_silence(self, worker, at))

    def take(self, number: int, messages: Sequence[msg.FromWorker], at: float) -> None:
        """Messages of a worker, in order."""
        slot = self.crew.slot_of(number)
        if slot is None:
            self._take_spare(number, messages)
            return
        worker = self.crew.find(number)
        assert worker is not None
        for message in messages if len(slot.members) == 1 else gang.heard(self, slot, worker, messages, at):
            event = event_of(message, at)
            if event is None:
                self._take_rare(slot, worker, message, at)
                continue
            self.events.append(event)
            if type(event) is ev.TrialStarted:
                self._began(slot, event.trial, event.attempt)
            elif type(event) is ev.TrialReturned or type(event) is ev.TrialStopped:
                self.drop(slot, event.trial)
        if self.policy.isolation == "actor" and worker.state == "ready" and self._is_used_up(slot):
            for member in slot.members:
                self.crew.kill(member)
            self._replace(slot.worker, at)
        elif slot.is_spent and self.slots.get(slot.number) is slot:
            self.retire(slot, at)
        elif self.policy.world_size and self.slots.get(slot.number) is slot:
            self._pump(slot)  # of these a gang has one at a time

    def _take_rare(self, slot: FleetSlot, worker: Worker, message: msg.FromWorker, at: float) -> None:
        match message:
            case msg.Failed():
                self._take_failed(slot, message, at)
            case msg.Memory():
                slot.held_bytes = max(slot.held_bytes or 0, message.held_bytes)
            case msg.Spent():
                worker.is_spent = True
                self._note_spent(message, at)
            case msg.Recalled():
                self._take_recalled(slot, message.trials, at)
            case msg.Ready():
                self._take_ready(slot, worker, message, at)
            case msg.Unready():
                worker.node = message.node or worker.node
                failure = self.shorten(-1, -1, failure_of(message.failure))
                losses.kill_and_lose(self, slot, failure, at, worker)

    def _take_failed(self, slot: FleetSlot, message: msg.Failed, at: float) -> None:
        self.fail(slot, message, at)
        if message.failure.origin not in ("memory", "process") or self.policy.isolation == "process":
            return
        if message.failure.is_of_program:
            return
        # It ends with its trial, and begins none of those behind it.
        slot.worker.is_ending = True
        if message.failure.origin == "memory":
            self.retire(slot, at)

    def _note_spent(self, spent: msg.Spent, at: float) -> None:
        """Once for each kind: it may be so with every trial."""
        if spent.leftover not in self._leftovers:
            self._leftovers.add(spent.leftover)
            text = f"its worker was replaced, as after each trial that does so: it left {spent.leftover}"
            self.events.append(ev.TrialNoted(at=at, trial=spent.trial, attempt=spent.attempt, text=text))

    def _take_ready(self, slot: FleetSlot, worker: Worker, ready: msg.Ready, at: float) -> None:
        if worker.state != "loading":
            return
        worker.load(ready.node)
        worker.host, worker.devices = ready.host, ready.devices
        node = slot.worker.node
        if not slot.is_ready:
            return
        if not slot.is_open:
            slot.is_open, slot.node = True, node
            self.large_opening.discard(slot.number)
            others = tuple(sorted({member.node for member in slot.members} - {node}))
            slot.others = others
            self.events.append(ev.SlotOpened(at=at, slot=slot.number, node=node, others=others))
        elif {member.node for member in slot.members} != {slot.node, *slot.others}:
            # Its group has been placed elsewhere meanwhile: the core must not take it for where it was.
            losses.kill_and_lose(self, slot, losses.moved(node), at)
            return
        self._pump(slot)

    def _take_recalled(self, slot: FleetSlot, trials: list[int], at: float) -> None:
        if not slot.asked_back:
            return
        slot.asked_back.popleft()
        for number in trials:
            slot.handed.pop(number, None)
        self._recalled(slot, trials, at)

    def _take_spare(self, number: int, messages: Sequence[msg.FromWorker]) -> None:
        spare = self.crew.find(number)
        for message in messages if spare is not None else ():
            if isinstance(message, msg.Ready) and spare is not None and spare.state == "loading":
                spare.load(message.node)
            elif isinstance(message, msg.Unready) and spare is not None:
                self.crew.drop_spare(spare)
                spare = None

    # -- how it is done ------------------------------------------------------------------------------

    def _began(self, slot: FleetSlot, trial: int, attempt: int) -> None:
        handed = slot.find(trial, attempt)
        if handed is not None and handed.state == "sent":
            handed.move("began")
        if self.policy.isolation == "actor" and self.policy.can_spare:
            self.crew.start_spare(slot)

    def _is_used_up(self, slot: FleetSlot) -> bool:
        """Whether the trial that its members ran has ended in all of them: with `isolation="actor"` they get
        no other."""
        return slot.worker.has_run and all(handed.state == "unsent" for handed in slot.handed.values())

    def _pump(self, slot: FleetSlot) -> None:
        worker = slot.worker
        if not slot.is_ready:
            return
        is_for_one, is_gang = self.policy.isolation == "actor", self.policy.world_size
        for handed in slot.handed.values():
            if (is_for_one and worker.has_run) or (is_gang and handed.state != "unsent"):
                return
            if handed.state == "unsent":
                self._hand_over(slot, handed)
                if is_gang:
                    return

    def _hand_over(self, slot: FleetSlot, handed: Handed) -> None:
        handed.move("sent")
        slot.worker.has_run = True
        self.say(slot, handed.job)

    def _recalled(self, slot: FleetSlot, trials: Collection[int], at: float) -> None:
        taken, slot.recalled = (*slot.recalled, *trials), []
        self.events.append(ev.TrialsRecalled(at=at, slot=slot.number, trials=tuple(sorted(taken))))

    def retire(self, slot: FleetSlot, at: float) -> None:
        """Kill the members, hear the last words of rank 0, then go on with others."""
        worker = slot.worker
        if not slot.is_ready:
            return  # one is on its way out
        for member in slot.members:
            member.move("retired")
            self.crew.kill(member)
        if worker.has_link:
            self.alarms.set(at + LAST_WORDS_S, lambda at: self._replace(worker, at))
        else:
            self._replace(worker, at)

    def _replace(self, old: Worker, at: float) -> None:
        """Go on with another worker under the same slot, the last words of the old one being said."""
        slot = self.crew.slot_of(old.number)
        if slot is None:
            return
        is_heard = not old.has_link or old.state != "retiring"
        worker = self.crew.relieve(slot)
        self._account_for_begun(slot, at)
        slot.outgoing, slot.held_bytes = [], None
        # The old worker cannot answer any more.
        has_asked, asked = bool(slot.asked_back), [number for trials in slot.asked_back for number in trials]
        slot.asked_back.clear()
        back = [number for number in asked if slot.handed.pop(number, None) is not None]
        for handed in [handed for handed in slot.handed.values() if handed.state == "sent"]:
            if is_heard:
                handed.move("replaced")  # none of these had begun there
            else:
                self._give_up_attempt(slot, handed, at)
        if has_asked:
            self._recalled(slot, back, at)
        self._pump(slot)
        limit_s = self.policy.placement_timeout_s + REPLACE_S
        self.alarms.set(at + limit_s, lambda at: losses.give_up_place(self, worker, at))

    def _account_for_begun(self, slot: FleetSlot, at: float) -> None:
        """The trial that ran in a worker that was killed: it was killed for it, or for one before it."""
        begun, forced, slot.forced = slot.begun, slot.forced, None
        if begun is None:
            return
        if begun is not forced:
            self._give_up_attempt(slot, begun, at)
            return
        if gang.settle(self, slot, at, counts_echoes=True):
            return
        del slot.handed[begun.trial]
        who = begun.job.who
        self.events.append(ev.TrialStopped(at=at, trial=who[0], attempt=who[1], was_killed=True))

    def _give_up_attempt(self, slot: FleetSlot, handed: Handed, at: float) -> None:
        """It was, or may have been, under way in a worker that was killed for another: nothing is charged.

        It runs again as another attempt: whatever this one did stays apart from what that will do.
        """
        del slot.handed[handed.trial]
        who = handed.job.who
        self.events.append(ev.TrialFailed(at=at, trial=who[0], attempt=who[1], failure=_REPLACED))

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
