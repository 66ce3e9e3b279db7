"""Slots: carries `OpenSlot`, `StartTrial`, `StopTrial` and their kin out, and answers with events.

A slot is a placement group with a worker in it. Workers may be replaced under a slot (a trial that would
not end, or `isolation="actor"`) without the core's noticing; what had been handed over and not begun is
handed to the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from raysweep.cluster.actors import ActorPool, Worker, now
from raysweep.cluster.demand import Held, explain_place
from raysweep.cluster.runner import TRACEBACK_CHARS, shorten
from raysweep.cluster.server import LinkServer
from raysweep.cluster.wire import Message
from raysweep.core import commands as cmd
from raysweep.core import events as ev
from raysweep.core.failures import Failure
from raysweep.core.trial import trial_id
from raysweep.spec import SweepSpec

Emit = Callable[[ev.Event], None]
KeepTraceback = Callable[[int, int, str], str]
# After the interruption, so long until the process is killed; a spare worker is warm by then.
INTERRUPT_GRACE_S: Final = 2.0
# A link that is down while Ray says nothing about the actor: after this the worker counts as dead.
SILENCE_S: Final = 30.0
# A dead process's connection ends right after its last bytes; that of a dead node may never.
LAST_WORDS_S: Final = 2.0


@dataclass(slots=True, eq=False)
class OpenedSlot:
    """`unsent` waits for the worker; `sent` is with it, in order, the running one first.

    `asked_back` are those that the worker was asked for and has not answered about.
    """

    number: int
    worker: Worker
    memory_bytes: int | None = None
    held_bytes: int | None = None
    is_announced: bool = False
    is_used_up: bool = False
    unsent: dict[int, Message] = field(default_factory=dict)
    sent: dict[int, Message] = field(default_factory=dict)
    begun: tuple[int, int] | None = None
    outgoing: list[Message] = field(default_factory=list)
    recalled: list[int] = field(default_factory=list)
    asked_back: set[int] = field(default_factory=set)
    spare: Worker | None = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the spec says of workers. `can_spare`: the next worker may be warmed up beside the present one."""

    isolation: str
    can_spare: bool
    start_timeout_s: float | None
    placement_timeout_s: float
    memory_limit_factor: float | None
    memory_bytes: float
    owns_cluster: bool

    @classmethod
    def of(cls, spec: SweepSpec, *, owns_cluster: bool) -> Policy:
        """The policy of a spec; `owns_cluster`: nobody else uses this Ray."""
        isolation = spec.effective_isolation
        return cls(
            isolation=isolation,
            can_spare=spec.resources.total_gpus == 0 and isolation != "process",
            start_timeout_s=spec.failure.start_timeout_s,
            placement_timeout_s=spec.failure.placement_timeout_s,
            memory_limit_factor=spec.failure.memory_limit_factor,
            memory_bytes=spec.resources.to_bundles()[0].get("memory", 0.0),
            owns_cluster=owns_cluster,
        )


class SlotKeeper:
    """All slots of one controller. Methods and callbacks run on the event loop."""

    def __init__(
        self, pool: ActorPool, server: LinkServer, policy: Policy, emit: Emit, keep_traceback: KeepTraceback
    ) -> None:
        self._pool = pool
        self._server = server
        self._policy = policy
        self._isolation = policy.isolation
        self._emit = emit
        self._keep_traceback = keep_traceback
        self._slots: dict[int, OpenedSlot] = {}
        self._by_worker: dict[str, OpenedSlot] = {}
        self._spares: dict[str, Worker] = {}
        self._dirty: dict[int, OpenedSlot] = {}
        self._dying: dict[str, tuple[Worker, Failure]] = {}
        self._loop = asyncio.get_running_loop()

    # -- commands ----------------------------------------------------------------------------------

    def open(self, command: cmd.OpenSlot) -> None:
        """Start a worker; `SlotOpened` or `SlotFailed` follows."""
        worker = self._pool.start(self._pool.take_group(command.memory_bytes))
        slot = OpenedSlot(command.slot, worker, memory_bytes=command.memory_bytes)
        self._slots[slot.number] = self._by_worker[worker.name] = slot
        self._loop.call_later(self._policy.placement_timeout_s, self._say_delayed, slot, worker)

    def close(self, command: cmd.CloseSlot) -> None:
        """End an idle worker; its group waits for the next."""
        slot = self._slots.get(command.slot)
        if slot is not None:
            self._drop(slot)

    def start_trial(self, command: cmd.StartTrial) -> None:
        """Hand a trial over."""
        slot = self._slots.get(command.slot)
        if slot is None:
            return  # lost meanwhile: SlotLost is on its way to the core and gives the trial back
        job = {
            "trial": command.trial,
            "attempt": command.attempt,
            "config": command.config,
            "seed": command.seed,
            "checkpoint": command.checkpoint,
            "iteration": command.iteration,
            "next_checkpoint": command.next_checkpoint,
            "memory_limit_bytes": self._memory_limit(slot),
        }
        slot.unsent[command.trial] = ["run", job]
        self._pump(slot)

    def stop_trial(self, command: cmd.StopTrial) -> None:
        """Ask a trial to end, and see to it that it does."""
        slot = self._slots.get(command.slot)
        if slot is None:
            return
        who = (command.trial, command.attempt)
        self._say(slot, ["stop", *who, command.reason, command.wants_checkpoint])
        self._after(slot, command.grace_s, self._interrupt, who)

    def recall(self, command: cmd.RecallTrials) -> None:
        """Take trials back; `TrialsRecalled` follows."""
        slot = self._slots.get(command.slot)
        if slot is None:
            return
        here = [number for number in command.trials if slot.unsent.pop(number, None) is not None]
        there = [number for number in command.trials if number in slot.sent]
        slot.recalled += here
        if there:
            slot.asked_back.update(there)
            self._say(slot, ["recall", there])
        else:
            self._recalled(slot, [])

    def answer(self, command: cmd.AnswerReport) -> None:
        """Let a waiting trial go on."""
        slot = self._slots.get(command.slot)
        if slot is not None:
            self._say(slot, ["answer", command.trial, command.attempt, command.report])

    def flush(self) -> None:
        """Send what was said since the last flush, one frame a slot."""
        for slot in self._dirty.values():
            if slot.outgoing:
                self._server.send(slot.worker.name, slot.outgoing)
                slot.outgoing = []
        self._dirty.clear()

    def interrupt_all(self) -> None:
        """Interrupt what was told to stop, whatever grace it had."""
        for slot in self._slots.values():
            if slot.begun is not None:
                self._say(slot, ["interrupt", *slot.begun])
        self.flush()

    def let_go(self) -> None:
        """End every worker now; `SlotLost` or `SlotFailed` follows for each slot, and its trials with it."""
        failure = Failure(origin="process", type="LetGo", message="the sweep had to end at once")
        for slot in list(self._slots.values()):
            self._drop(slot)
            event = ev.SlotLost if slot.is_announced else ev.SlotFailed
            self._emit(event(at=now(), slot=slot.number, failure=failure))

    async def close_all(self) -> None:
        """End every worker, remove every placement group."""
        for slot in list(self._slots.values()):
            slot.outgoing.append(["exit"])
            self._dirty[slot.number] = slot
        self.flush()
        for slot in list(self._slots.values()):
            self._drop(slot)
        await self._pool.close()

    # -- from the workers --------------------------------------------------------------------------

    def take(self, name: str, messages: list[Message]) -> None:
        """Messages of a worker, in order."""
        slot = self._by_worker.get(name)
        if slot is None or slot.worker.name != name:
            self._take_spare(name, messages)
            return
        at = now()
        emit = self._emit
        for message in messages:
            kind = message[0]
            if kind == "rows":
                _, trial, attempt, first, keys, rows, is_waiting = message
                emit(
                    ev.TrialReported(
                        at=at,
                        trial=trial,
                        attempt=attempt,
                        first=first,
                        keys=tuple(keys),
                        rows=tuple(rows),
                        is_waiting=is_waiting,
                    )
                )
            elif kind == "began":
                slot.begun = (message[1], message[2])
                if self._isolation == "actor":
                    self._start_spare(slot)
                emit(ev.TrialStarted(at=at, trial=message[1], attempt=message[2]))
            elif kind == "returned":
                self._ended(slot, message[1])
                emit(ev.TrialReturned(at=at, trial=message[1], attempt=message[2]))
            else:
                self._take_rare(slot, message, at)
        if slot.is_used_up:
            self._replace_worker(slot)

    def take_worker_connected(self, name: str) -> None:
        """A worker's process is up; from now on it has so long to load the trainable."""
        slot, timeout_s = self._by_worker.get(name), self._policy.start_timeout_s
        if slot is not None and timeout_s is not None:
            self._loop.call_later(timeout_s, self._give_up_start, slot, slot.worker)

    def find_held(self) -> Held:
        """What this sweep has on the cluster."""
        workers = {slot.worker.name: _running(slot) for slot in self._slots.values()}
        groups = self._pool.find_groups()
        return Held(groups=groups, workers=workers, owns_cluster=self._policy.owns_cluster)

    def take_worker_gone(self, name: str) -> None:
        """The link to a worker broke; Ray will say how it died. If Ray stays silent, it counts as dead."""
        slot = self._by_worker.get(name)
        if name in self._dying:
            self._take_death(name)
        elif slot is not None:
            self._loop.call_later(SILENCE_S, self._give_up_on, slot, slot.worker)

    def take_worker_ended(self, worker: Worker, failure: Failure) -> None:
        """Ray says that a worker's actor is gone. What it sent before that may still be on its way."""
        self._spares.pop(worker.name, None)
        self._dying[worker.name] = (worker, failure)
        if self._server.is_connected(worker.name):
            self._loop.call_later(LAST_WORDS_S, self._take_death, worker.name)
        else:
            self._take_death(worker.name)

    def _take_death(self, name: str) -> None:
        if name not in self._dying:
            return
        worker, failure = self._dying.pop(name)
        slot = self._by_worker.get(worker.name)
        if slot is None or slot.worker is not worker:
            return
        self._forget(slot)
        self._give_group_back(worker)
        if slot.is_announced:
            failure = replace(failure, memory_bytes=slot.held_bytes)
            self._emit(ev.SlotLost(at=now(), slot=slot.number, failure=failure))
        else:
            self._emit(ev.SlotFailed(at=now(), slot=slot.number, failure=failure, node=worker.node))

    # -- how it is done ----------------------------------------------------------------------------

    def _take_rare(self, slot: OpenedSlot, message: Message, at: float) -> None:
        match message:
            case ["stopped", trial, attempt, was_killed, where]:
                self._ended(slot, trial)
                self._emit(
                    ev.TrialStopped(at=at, trial=trial, attempt=attempt, was_killed=was_killed, where=where)
                )
            case ["failed", trial, attempt, failed]:
                failure = self._failure_of_trial(slot, trial, attempt, failed)
                self._ended(slot, trial)
                self._emit(ev.TrialFailed(at=at, trial=trial, attempt=attempt, failure=failure))
            case ["memory", held_bytes]:
                slot.held_bytes = held_bytes
            case ["saved", trial, attempt, number, report, uri, size]:
                self._emit(
                    ev.CheckpointCommitted(
                        at=at,
                        trial=trial,
                        attempt=attempt,
                        number=number,
                        report=report,
                        uri=uri,
                        size_bytes=size,
                    )
                )
            case ["busy", trial, attempt, is_over]:
                self._emit(ev.TrialBusy(at=at, trial=trial, attempt=attempt, is_over=is_over))
            case ["unsaved", trial, attempt, number, problem]:
                self._emit(
                    ev.CheckpointFailed(at=at, trial=trial, attempt=attempt, number=number, problem=problem)
                )
            case ["recalled", trials]:
                for number in trials:
                    slot.sent.pop(number, None)
                slot.asked_back.clear()
                self._recalled(slot, trials)
            case ["ready", node, _]:
                slot.worker.is_ready, slot.worker.node = True, node
                if not slot.is_announced:
                    slot.is_announced = True
                    self._emit(ev.SlotOpened(at=at, slot=slot.number, node=node))
                self._pump(slot)
            case ["unready", failed, node]:
                slot.worker.node = node
                self._drop(slot)
                self._emit(ev.SlotFailed(at=at, slot=slot.number, failure=_failure(failed), node=node))

    def _take_spare(self, name: str, messages: list[Message]) -> None:
        spare = self._spares.get(name)
        if spare is not None and any(message[0] == "ready" for message in messages):
            spare.is_ready = True

    def _failure_of_trial(
        self, slot: OpenedSlot, trial: int, attempt: int, failed: dict[str, Any]
    ) -> Failure:
        failure = _failure(failed)
        if failure.memory_bytes is None:
            failure = replace(failure, memory_bytes=slot.held_bytes)
        if len(failure.traceback) <= TRACEBACK_CHARS:
            return failure
        uri = self._keep_traceback(trial, attempt, failure.traceback)
        return replace(failure, traceback=shorten(failure.traceback, TRACEBACK_CHARS), traceback_uri=uri)

    def _memory_limit(self, slot: OpenedSlot) -> int | None:
        factor, asked = self._policy.memory_limit_factor, slot.memory_bytes or self._policy.memory_bytes
        return int(factor * asked) if factor is not None and asked else None

    def _pump(self, slot: OpenedSlot) -> None:
        if not slot.worker.is_ready:
            return
        while slot.unsent and (self._isolation != "actor" or not slot.worker.jobs):
            trial, message = next(iter(slot.unsent.items()))
            del slot.unsent[trial]
            slot.sent[trial] = message
            slot.worker.jobs.add(trial)
            self._say(slot, message)

    def _say(self, slot: OpenedSlot, message: Message) -> None:
        slot.outgoing.append(message)
        self._dirty[slot.number] = slot

    def _ended(self, slot: OpenedSlot, trial: int) -> None:
        slot.begun = slot.held_bytes = None
        slot.sent.pop(trial, None)
        slot.is_used_up = self._isolation == "actor"
        if slot.timers:
            for timer in slot.timers:
                timer.cancel()
            slot.timers.clear()

    def _recalled(self, slot: OpenedSlot, trials: list[int]) -> None:
        taken, slot.recalled = (*slot.recalled, *trials), []
        self._emit(ev.TrialsRecalled(at=now(), slot=slot.number, trials=tuple(sorted(taken))))

    def _after(
        self, slot: OpenedSlot, delay_s: float, call: Callable[..., None], who: tuple[int, int]
    ) -> None:
        slot.timers.append(self._loop.call_later(delay_s, call, slot, who))

    def _interrupt(self, slot: OpenedSlot, who: tuple[int, int]) -> None:
        self._say(slot, ["interrupt", *who])
        self.flush()
        self._start_spare(slot)
        self._after(slot, INTERRUPT_GRACE_S, self._force, who)

    def _start_spare(self, slot: OpenedSlot) -> None:
        """Have the next worker warm by the time the present one goes."""
        if self._policy.can_spare and slot.spare is None:
            slot.spare = self._pool.start(slot.worker.group, is_spare=True)
            self._spares[slot.spare.name] = slot.spare

    def _force(self, slot: OpenedSlot, who: tuple[int, int]) -> None:
        if self._isolation == "process":
            self._say(slot, ["kill", *who])
            self.flush()
            return
        # The other jobs of this worker's queue have not begun: the next worker gets them.
        slot.sent.pop(who[0], None)
        self._replace_worker(slot)
        self._emit(ev.TrialStopped(at=now(), trial=who[0], attempt=who[1], was_killed=True))

    def _replace_worker(self, slot: OpenedSlot) -> None:
        old, spare = slot.worker, slot.spare
        self._by_worker.pop(old.name, None)
        self._server.hang_up(old.name)
        self._pool.kill(old)
        if spare is not None and self._spares.pop(spare.name, None) is None:
            spare = None  # it died while it waited
        slot.worker = spare or self._pool.start(old.group)
        slot.spare = None
        slot.is_used_up = False
        self._by_worker[slot.worker.name] = slot
        slot.begun, slot.outgoing = None, []
        # The old worker cannot answer any more; none of these had begun there.
        asked_back, slot.asked_back = slot.asked_back, set()
        back = [number for number in asked_back if slot.sent.pop(number, None) is not None]
        slot.unsent = {**slot.sent, **slot.unsent}
        slot.sent = {}
        self._pump(slot)
        if asked_back:
            self._recalled(slot, back)

    def _is_current(self, slot: OpenedSlot, worker: Worker) -> bool:
        return self._by_worker.get(worker.name) is slot and slot.worker is worker

    def _say_delayed(self, slot: OpenedSlot, worker: Worker) -> None:
        if not self._is_current(slot, worker) or worker.is_ready or self._server.is_connected(worker.name):
            return
        problem = explain_place(self._pool.bundles_of(worker.group), self.find_held())
        self._emit(ev.SlotDelayed(at=now(), slot=slot.number, problem=problem))

    def _give_up_start(self, slot: OpenedSlot, worker: Worker) -> None:
        if not self._is_current(slot, worker) or worker.is_ready:
            return
        self._pool.kill(worker)
        limit = f"{self._policy.start_timeout_s:g} s (failure.start_timeout_s)"
        message = f"the trainable was still being loaded after {limit}"
        self._dying[worker.name] = (worker, Failure(origin="start", type="StartTimeout", message=message))
        self._take_death(worker.name)

    def _give_up_on(self, slot: OpenedSlot, worker: Worker) -> None:
        if self._is_current(slot, worker):
            self._pool.kill(worker)
            message = f"the worker's link was down for {SILENCE_S:g} s"
            self.take_worker_ended(worker, Failure(origin="process", type="LinkLost", message=message))

    def _drop(self, slot: OpenedSlot) -> None:
        self._forget(slot)
        self._pool.kill(slot.worker)
        self._give_group_back(slot.worker)

    def _give_group_back(self, worker: Worker) -> None:
        self._pool.give_group_back(worker.group, worker.node)
        if any(slot.memory_bytes and not slot.is_announced for slot in self._slots.values()):
            self._pool.drop_free()  # a larger slot waits for the room

    def _forget(self, slot: OpenedSlot) -> None:
        self._slots.pop(slot.number, None)
        self._by_worker.pop(slot.worker.name, None)
        self._server.hang_up(slot.worker.name)
        self._dirty.pop(slot.number, None)
        for timer in slot.timers:
            timer.cancel()
        if slot.spare is not None:
            self._spares.pop(slot.spare.name, None)
            self._pool.kill(slot.spare)


def _running(slot: OpenedSlot) -> str:
    return trial_id(slot.begun[0]) if slot.begun is not None else ""


def _failure(fields: dict[str, Any]) -> Failure:
    return Failure(**{**fields, "bases": tuple(fields.get("bases", ()))})
