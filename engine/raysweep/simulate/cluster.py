"""A model cluster in virtual time under the real fleet: nodes, groups, actors, links, trials on curves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import orjson
from pydantic import JsonValue

from raysweep.core import SweepState, trial_id
from raysweep.core import commands as cmd
from raysweep.core import events as ev
from raysweep.core import fleet as fl
from raysweep.core.failures import Failure
from raysweep.core.fleet.invariants import check
from raysweep.core.fleet.words import failure_of
from raysweep.core.rules import checkpoint_metric
from raysweep.core.scores import as_number
from raysweep.errors import CheckpointDamagedError, RaysweepError, TrialStopped
from raysweep.messages import FailureFacts, FromWorker, Interrupt, Kill, Ready, ToWorker, Unready
from raysweep.simulate.clock import Clock
from raysweep.simulate.nodes import Node, Nodes
from raysweep.simulate.processes import Job, Process
from raysweep.spec import SweepSpec
from raysweep.storage.store import Store

Curve = Callable[[Mapping[str, Any], int], Mapping[str, JsonValue] | None]
"""(config, iteration) -> what the trial reports at that iteration (1, 2, …), or None: it has returned.

What it raises, the trial raises; `WorkerDied` takes the worker with it, `TrialHangs` does not come back,
`TrialOverMemory` is ended for what it holds.
"""
Pace = Callable[[Mapping[str, Any], int], float]


class WorkerDied(Exception):
    """Raised by a curve: the trial's process is gone, as after SIGKILL."""


class TrialHangs(Exception):
    """Raised by a curve: the trial does nothing more, and hears nothing but a kill."""


class TrialOverMemory(Exception):
    """Raised by a curve: the trial holds more than its limit, and its process ends for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """How long things take in a simulation, in virtual seconds.

    `jitter` adds up to that part at random; of `hiccups` in all things, up to `hiccup_s` more.
    """

    start_worker_s: float = 1.0
    message_s: float = 0.0005
    save_s: float = 0.02
    load_s: float = 0.0
    place_s: float = 0.0
    notice_death_s: float = 0.2
    put_s: float = 0.005
    commit_interval_s: float = 0.25
    restart_s: float = 5.0
    jitter: float = 0.0
    hiccups: float = 0.0
    hiccup_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened on the cluster, whether or not the controller ever learned of it.

    `what`: `claimed`, `killed` (the controller), `opened`, `died` (a worker), `began`, `reported`, `saved`,
    `answered` (a report that waited for the journal), `returned`, `stopped`, `failed` (a trial).
    `iteration`: the reports behind the trial's state; of `answered`, the number of the report in its attempt.
    """

    at: float
    what: str
    generation: int
    slot: int | None = None
    trial: int | None = None
    attempt: int | None = None
    iteration: int | None = None


@dataclass(eq=False, kw_only=True)
class Actor:
    """One actor of Ray's. `is_linked`: what it says still arrives; `is_up`: its process has connected."""

    number: int
    group: int
    node: Node | None = None
    process: Process | None = None
    is_alive: bool = True
    is_up: bool = False
    is_linked: bool = False
    sent_at: dict[str, float] = field(default_factory=dict)


class SimulatedCluster:
    """Everything under one controller. `emit` gets the fleet's events, `note` what happens to trials."""

    def __init__(
        self,
        *,
        spec: SweepSpec,
        nodes: Nodes,
        clock: Clock,
        costs: Costs,
        curve: Curve,
        pace: Pace,
        random: Random,
        store: Store,
        sweep_id: str,
        save_every: int,
        wait_every: int,
        emit: Callable[[ev.Event], None],
        note: Callable[..., None],
    ) -> None:
        # Of a gang, one process stands for all.
        self.fleet = fl.Fleet(replace(fl.FleetPolicy.of(spec), world_size=0))
        self.nodes = nodes
        self.actors: dict[int, Actor] = {}
        self._clock = clock
        self._costs = costs
        self._ranks_by = checkpoint_metric(spec)
        self._curve = curve
        self._pace = pace
        self._random = random
        self._store = store
        self._sweep_id = sweep_id
        self._save_every = save_every
        self._wait_every = wait_every
        self._emit = emit
        self._note = note
        self._fails_to_load: Callable[[], bool] = lambda: False
        self._is_forked = spec.effective_isolation == "process"
        self._is_gone = self._is_letting_go = False
        self._deaf: set[Job] = set()
        self._alarm_at: float | None = None

    # -- the fleet's shell -------------------------------------------------------------------------

    def carry(self, command: cmd.Command) -> None:
        """A command of the core to its slots."""
        fleet, at = self.fleet, self._clock.now
        match command:
            case cmd.OpenSlot():
                fleet.open(command, at)
            case cmd.CloseSlot():
                fleet.close(command)
            case cmd.StartTrial():
                fleet.start_trial(command)
            case cmd.StopTrial():
                fleet.stop_trial(command, at)
            case cmd.RecallTrials():
                fleet.recall(command, at)
            case cmd.AnswerReport():
                fleet.answer(command)
            case cmd.ExcludeNode():
                fleet.exclude(command)
            case _:
                raise RaysweepError(f"{type(command).__name__} is no command for slots")
        self._clock.after(0.0, self.flush)
        self._act()

    def set_load_failures(self, fails_to_load: Callable[[], bool]) -> None:
        """From here on this is asked for each worker: whether it cannot load the trainable."""
        self._fails_to_load = fails_to_load

    def hurry(self) -> None:
        """The controller's process is about to be killed."""
        self._is_letting_go = True
        self.fleet.hurry(self._clock.now)
        self._act()

    def flush(self) -> None:
        """What the fleet has to say goes out."""
        if not self._is_gone:
            self.fleet.flush()
            self._act()

    def avoid(self, nodes: Collection[str]) -> None:
        """These nodes are about to go, or gone."""
        self.fleet.avoid(nodes)
        self._act()

    def check(self, state: SweepState) -> None:
        """The fleet has what the core believes that it has, once it has heard all that the fleet said."""
        if self.fleet.events:
            return
        assert set(self.fleet.slots) == set(state.slots), f"{set(self.fleet.slots)} != {set(state.slots)}"
        for number, slot in state.slots.items():
            there = self.fleet.slots[number]
            has = sorted([*there.handed, *there.recalled])
            assert has == sorted(slot.queue), f"slot {number} has {has}, not {sorted(slot.queue)}"
            assert there.is_open == slot.is_open, f"slot {number} is open on one side only"
        check(self.fleet)

    def end(self) -> None:
        """Every worker ends, and every group goes."""
        self._is_letting_go = True
        self.fleet.close_all()
        self._act()
        self._is_gone = True

    def lose_controller(self) -> None:
        """The controller is gone: no worker goes on, but what is being stored at that moment still lands."""
        for actor in self.actors.values():
            job = actor.process.job if actor.process is not None else None
            if actor.is_alive and job is not None and job.is_saving:
                self._store_checkpoint(job)
            actor.is_alive = actor.is_linked = False
        self.actors.clear()
        self.nodes.forget_groups()
        self._is_gone = True

    def _act(self) -> None:
        fleet = self.fleet
        while fleet.actions:
            self._do(fleet.actions.popleft())
        while fleet.events:
            self._emit(fleet.events.popleft())
        self._set_alarm()

    def _do(self, action: fl.Action) -> None:
        match action:
            case fl.CreateGroup(group=group, memory_bytes=memory_bytes, excluded=excluded):
                self.nodes.ask(group, memory_bytes, excluded)
                self._after(self._costs.place_s, self.place_groups)
            case fl.RemoveGroup(group=group):
                del self.nodes.groups[group]
                self._after(self._costs.place_s, self.place_groups)
            case fl.StartWorker(worker=number, group=group):
                actor = self.actors[number] = Actor(number=number, group=group)
                self._start(actor)
            case fl.KillWorker(worker=number):
                self._check_that_nobody_else_is_killed(number)
                self.end_process(self.actors[number])
            case fl.HangUp(worker=number):
                actor = self.actors.pop(number)
                actor.is_linked = False
                self.end_process(actor)
            case fl.Send(worker=number, messages=messages):
                self._send(self.actors[number], messages)
            case fl.ExplainDelay(slot=slot):
                self._emit(ev.SlotDelayed(at=self._clock.now, slot=slot, problem="no place"))

    def _check_that_nobody_else_is_killed(self, number: int) -> None:
        """A trial that has run for a while is killed only for its own sake, or at the end of everything."""
        slot, process = self.fleet.crew.slot_of(number), self.actors[number].process
        job = process.job if process is not None else None
        if slot is None or job is None or self._is_letting_go:
            return
        forced = slot.forced
        is_meant = forced is not None and forced.job.who == job.who
        # What has just begun may have done so while the decision was on its way.
        costs = self._costs
        way_s = costs.message_s * (1.0 + costs.jitter) + (costs.hiccup_s if costs.hiccups else 0.0)
        assert is_meant or self._clock.now - job.began_at <= 2 * way_s + 0.1, (
            f"trial {job.trial} is killed, and has done nothing"
        )

    def _set_alarm(self) -> None:
        at = self.fleet.alarms.next_at
        if at is not None and (self._alarm_at is None or at < self._alarm_at):
            self._alarm_at = at
            self._clock.at(at, lambda: self._tick(at))

    def _tick(self, at: float) -> None:
        if self._alarm_at == at and not self._is_gone:
            self._alarm_at = None
            self.fleet.tick(self._clock.now)
            self.flush()

    # -- Ray ---------------------------------------------------------------------------------------

    def place_groups(self) -> None:
        """Groups that wait get the room that there is."""
        if self._is_gone:
            return
        placed = {group.number for group in self.nodes.place()}
        for actor in list(self.actors.values()):
            if actor.group in placed and actor.is_alive:
                self._start(actor)

    def _start(self, actor: Actor) -> None:
        group = self.nodes.groups[actor.group]
        if group.node is not None:
            actor.node = group.node
            self._after(self._costs.start_worker_s, lambda: self._come_up(actor))

    def _come_up(self, actor: Actor) -> None:
        if not actor.is_alive or actor.is_up or actor.node is None or not actor.node.is_alive:
            return
        actor.is_up = actor.is_linked = True
        actor.process = Process(lambda message: self._post(actor, message), is_forked=self._is_forked)
        self.fleet.connected(actor.number, self._clock.now)
        self._after(self._costs.load_s, lambda: self._load(actor))

    def _load(self, actor: Actor) -> None:
        if not actor.is_alive or actor.node is None:
            return
        if self._fails_to_load():
            failure = FailureFacts(origin="start", type="ImportError", message="as asked")
            self._post(actor, Unready(failure=failure, node=actor.node.name))
            return
        self._note("opened", slot=actor.number)
        self._post(actor, Ready(node=actor.node.name, pid=actor.number))

    def die(self, actor: Actor, failure: Failure, *, is_told: bool = True) -> None:
        """An actor is gone; Ray says so some time later, or never."""
        if not actor.is_alive:
            return
        self.end_process(actor)
        if is_told:
            self._after(self._costs.notice_death_s, lambda: self._say_ended(actor, failure))

    def _say_ended(self, actor: Actor, failure: Failure) -> None:
        if self.actors.get(actor.number) is actor and not self._is_gone:
            self.fleet.worker_ended(actor.number, failure, self._clock.now)
            self.flush()

    def lose_node(self, node: Node) -> None:
        """A machine is gone with all that is on it. Its groups wait for another place."""
        node.is_alive = False
        failure = Failure(origin="process", type="NodeDied", message="the node is gone", node_state="dead")
        for group in self.nodes.groups.values():
            group.node = None if group.node is node else group.node
        for actor in list(self.actors.values()):
            if actor.node is node and actor.is_up:
                self.die(actor, failure)
            elif actor.node is node:
                actor.node = None  # it was not up yet: Ray starts it where its group is placed
        self._after(self._costs.place_s, self.place_groups)

    def end_process(self, actor: Actor) -> None:
        """The process is gone; what it has said is still under way, then its link closes."""
        if not actor.is_alive:
            return
        actor.is_alive = False
        if actor.process is not None:
            job, actor.process.job = actor.process.job, None
            if job is not None:
                self._note_job("died", actor, job)
        if actor.is_linked:
            self._in_order(actor, "out", lambda: self._close_link(actor))

    def cut_link(self, actor: Actor) -> None:
        """The connection breaks; the process ends for that, and nobody tells."""
        self.end_process(actor)

    def _close_link(self, actor: Actor) -> None:
        if actor.is_linked and not self._is_gone:
            actor.is_linked = False
            self.fleet.link_closed(actor.number, self._clock.now)
            self.flush()

    # -- links -------------------------------------------------------------------------------------

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._clock.after(self._drawn(seconds), call)

    def _drawn(self, seconds: float) -> float:
        costs, random = self._costs, self._random
        seconds *= 1.0 + costs.jitter * random.random()
        if costs.hiccups and random.random() < costs.hiccups:
            seconds += costs.hiccup_s * random.random()
        return seconds

    def _in_order(self, actor: Actor, way: str, call: Callable[[], None]) -> None:
        """Not before what was sent the same way earlier."""
        due_at = max(self._clock.now + self._drawn(self._costs.message_s), actor.sent_at.get(way, 0.0))
        actor.sent_at[way] = due_at
        self._clock.at(due_at, call)

    def _post(self, actor: Actor, message: FromWorker) -> None:
        self._in_order(actor, "out", lambda: self._deliver(actor, message))

    def _deliver(self, actor: Actor, message: FromWorker) -> None:
        if actor.is_linked and not self._is_gone:
            self.fleet.take(actor.number, [message], self._clock.now)
            self._act()
            self._clock.after(0.0, self.flush)

    def _send(self, actor: Actor, messages: list[ToWorker]) -> None:
        for message in messages:
            self._in_order(actor, "in", lambda message=message: self._arrive(actor, message))  # type: ignore[misc]

    def _arrive(self, actor: Actor, message: ToWorker) -> None:
        process = actor.process
        if not actor.is_alive or process is None:
            return
        job = process.job
        was_waiting = job is not None and job.is_waiting
        process.take(message)
        if isinstance(message, Interrupt | Kill) and job is not None and message.who == job.who:
            self._interrupt(actor, job, is_killed=isinstance(message, Kill))
        elif was_waiting and job is not None and not job.is_waiting:
            if job.awaits is None:
                self._note_job("answered", actor, job, iteration=job.reports - 1)
            self._go_on(actor, job)
        if process.job is None and process.next is not None:
            self._begin(actor)

    # -- trials ------------------------------------------------------------------------------------

    def _is_running(self, actor: Actor, job: Job) -> bool:
        return actor.is_alive and actor.process is not None and actor.process.job is job

    def _begin(self, actor: Actor) -> None:
        assert actor.process is not None
        job = actor.process.begin()
        job.began_at = self._clock.now
        self._check_restored(job)
        self._note_job("began", actor, job)
        self._go_on(actor, job)

    def _check_restored(self, job: Job) -> None:
        uri = job.checkpoint
        if uri is None:
            assert job.iteration == 0, f"trial {job.trial} begins behind {job.iteration} reports from nothing"
            return
        data = self._store.get(f"{uri.removeprefix(f'{self._store.url}/')}.json")
        if data is None:
            raise CheckpointDamagedError(uri, "there is no such checkpoint (it was deleted too early)")
        behind = orjson.loads(data)["iteration"]
        assert job.iteration == behind, f"{behind} reports lie behind {uri}, not {job.iteration}"

    def _go_on(self, actor: Actor, job: Job) -> None:
        pace_s = self._pace(job.config, job.iteration + 1)
        self._after(pace_s, lambda: self._step(actor, job))

    def _step(self, actor: Actor, job: Job) -> None:
        if not self._is_running(actor, job):
            return
        try:
            metrics = self._curve(job.config, job.iteration + 1)
        except WorkerDied as died:
            self._die_in_trial(actor, str(died) or "killed by signal 9")
        except TrialHangs:
            self._deaf.add(job)
        except TrialOverMemory:
            self._end_over_memory(actor)
        except TrialStopped:
            self._finish(actor, is_stopped=True)
        except Exception as error:  # noqa: BLE001  it stands for user code, which may raise anything
            self._finish(actor, _describe(error))
        else:
            if metrics is None:
                self._finish(actor)
            else:
                self._report(actor, job, metrics)

    def _report(self, actor: Actor, job: Job, metrics: Mapping[str, JsonValue]) -> None:
        process = actor.process
        assert process is not None
        iteration = job.iteration + 1
        is_saved = bool(self._save_every) and iteration % self._save_every == 0
        is_waiting = bool(self._wait_every) and iteration % self._wait_every == 0
        is_saved = is_saved or job.wants_checkpoint
        if not job.may_report(has_checkpoint=is_saved):
            self._finish(actor, is_stopped=True)
            return
        process.report(job, metrics, is_waiting=is_waiting and not is_saved)
        self._note_job("reported", actor, job)
        if is_saved:
            process.begin_saving(job)
            self._after(self._costs.save_s, lambda: self._save(actor, job, metrics, is_waiting))
        else:
            self._end_or_go_on(actor, job, is_saved=False)

    def _save(self, actor: Actor, job: Job, metrics: Mapping[str, JsonValue], is_waiting: bool) -> None:
        if not self._is_running(actor, job) or actor.process is None:
            return
        rank = as_number(metrics.get(self._ranks_by)) if self._ranks_by else None
        actor.process.save(job, self._store_checkpoint(job), [*metrics], is_waiting=is_waiting, rank=rank)
        self._note_job("saved", actor, job)
        self._end_or_go_on(actor, job, is_saved=True)

    def _end_or_go_on(self, actor: Actor, job: Job, *, is_saved: bool) -> None:
        if job.stop_reason is not None and (is_saved or not job.wants_checkpoint):
            self._finish(actor, is_stopped=True)
        elif not job.is_waiting:
            self._go_on(actor, job)

    def _store_checkpoint(self, job: Job) -> str:
        path = f"{self._sweep_id}/checkpoints/{trial_id(job.trial)}/{job.next_checkpoint}"
        record = {"iteration": job.iteration, "attempt": job.attempt}
        if not self._store.put_if_absent(f"{path}.json", orjson.dumps(record)):
            raise RaysweepError(f"checkpoint number {job.next_checkpoint} of trial {job.trial} is used twice")
        return f"{self._store.url}/{path}"

    def _finish(self, actor: Actor, failure: FailureFacts | None = None, *, is_stopped: bool = False) -> None:
        process = actor.process
        assert process is not None
        job = process.finish(failure, is_stopped=is_stopped)
        how = "failed" if failure is not None else "stopped" if is_stopped else "returned"
        self._go_on_after(actor, process, job, how)

    def _go_on_after(self, actor: Actor, process: Process, job: Job, how: str) -> None:
        self._note_job(how, actor, job)
        if process.next is not None:
            self._begin(actor)

    def _interrupt(self, actor: Actor, job: Job, *, is_killed: bool) -> None:
        """As the signal does: not inside a report, and not a trial that hears nothing."""
        process = actor.process
        assert process is not None
        if is_killed:
            self._go_on_after(actor, process, process.kill(), "stopped")
        elif job.stop_reason and job not in self._deaf and not job.is_saving:
            self._finish(actor, is_stopped=True)

    def _die_in_trial(self, actor: Actor, message: str) -> None:
        failure = FailureFacts(origin="process", type="WorkerDied", message=message)
        if self._is_forked:
            self._finish(actor, failure)
        else:
            self.die(actor, failure_of(failure))

    def _end_over_memory(self, actor: Actor) -> None:
        process = actor.process
        assert process is not None
        job = process.exceed(
            FailureFacts(origin="memory", type="MemoryLimitExceeded", message="as asked", memory_bytes=2**31)
        )
        self._go_on_after(actor, process, job, "failed")
        if not self._is_forked:
            # It has said so; then its process ends, and the worker with it.
            gone = Failure(origin="process", type="WorkerDied", message="exit code 1")
            self._after(self._costs.message_s, lambda: self.die(actor, gone))

    def _note_job(self, what: str, actor: Actor, job: Job, iteration: int | None = None) -> None:
        self._note(
            what,
            slot=actor.number,
            trial=job.trial,
            attempt=job.attempt,
            iteration=job.iteration if iteration is None else iteration,
        )


def _describe(error: Exception) -> FailureFacts:
    bases = tuple(cls.__name__ for cls in type(error).__mro__)
    return FailureFacts(origin="exception", type=type(error).__name__, message=str(error)[:1000], bases=bases)
