"""A model cluster in virtual time under the real fleet: nodes, groups, actors, links, trials on curves."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from pydantic import JsonValue

from raysweep import fleet as fl
from raysweep.core import SweepState
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import RaysweepError
from raysweep.fleet.invariants import check
from raysweep.messages import FailureFacts, FromWorker, Ready, ToWorker, Unready
from raysweep.simulate.delays import Delays
from raysweep.simulate.evaluators import Evaluators
from raysweep.simulate.nodes import Node, Nodes
from raysweep.simulate.processes import Actor, Process
from raysweep.simulate.trials import Trials, Work
from raysweep.specs import SweepSpec
from raysweep.storage.objects.store import Store


class SimulatedCluster:
    """Everything under one controller. `emit` gets the fleet's events, `note` what happens to trials.

    `now` is the controller's clock.
    """

    def __init__(
        self,
        *,
        spec: SweepSpec,
        nodes: Nodes,
        delays: Delays,
        work: Work,
        store: Store,
        sweep_id: str,
        emit: Callable[[ev.Event], None],
        note: Callable[..., None],
        now: Callable[[], float],
    ) -> None:
        # Of a gang, one process stands for all.
        self.fleet = fl.Fleet(replace(fl.FleetPolicy.of(spec), world_size=0))
        self.nodes = nodes
        self.actors: dict[int, Actor] = {}
        self._delays = delays
        self._clock = delays.clock
        self._trials = Trials(
            work, spec=spec, delays=delays, store=store, sweep_id=sweep_id, note=note, die=self.die
        )
        self._evaluators = Evaluators(work, spec, delays, self._take_evaluation)
        self._emit = emit
        self._note = note
        self._now = now
        self._fails_to_load: Callable[[], bool] = lambda: False
        self._is_gone = self._is_letting_go = False
        self._alarm_at: float | None = None

    # -- the fleet's shell -------------------------------------------------------------------------

    def carry(self, command: cmd.Command) -> None:
        """A command of the core to its slots."""
        fleet, at = self.fleet, self._now()
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
                raise RaysweepError(f"{type(command).__name__} is not a command for slots")
        self._clock.after(0.0, self.flush)
        self._act()

    def set_load_failures(self, fails_to_load: Callable[[], bool]) -> None:
        """From here on this is asked for each worker: whether it cannot load the trainable."""
        self._fails_to_load = fails_to_load

    def hurry(self) -> None:
        """The controller's process is about to be killed."""
        self._is_letting_go = True
        self.fleet.hurry(self._now())
        self._act()

    def flush(self) -> None:
        """Send the messages that the fleet has collected."""
        if not self._is_gone:
            self.fleet.flush()
            self._act()

    def avoid(self, nodes: Collection[str]) -> None:
        """These nodes are about to go, or gone."""
        self.fleet.avoid(nodes)
        self._act()

    def check(self, state: SweepState) -> None:
        """The fleet has what the core believes that it has, once it has heard all that the fleet said."""
        evaluations = self.fleet.evaluations
        if self.fleet.events:
            return
        if evaluations is not None and not evaluations.is_idle:
            check(self.fleet)  # what is held back is not known to the core yet
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
        """The controller is gone: no worker continues, but writes under way at that moment still land."""
        for actor in self.actors.values():
            self._trials.land(actor)
            actor.is_alive = actor.is_linked = False
        self.actors.clear()
        self.nodes.forget_groups()
        self._is_gone = True

    def _act(self) -> None:
        fleet = self.fleet
        while True:
            while fleet.actions:
                self._do(fleet.actions.popleft())
            events = fleet.take_events()
            while events:
                self._emit(events.popleft())
            if not fleet.actions:
                break
        self._set_alarm()

    def _do(self, action: fl.Action) -> None:
        match action:
            case fl.CreateGroup(group=group, needs=needs, excluded=excluded):
                self.nodes.ask(group, needs, excluded)
                self._delays.after(self._delays.costs.place_s, self.place_groups)
            case fl.RemoveGroup(group=group):
                del self.nodes.groups[group]
                self._delays.after(self._delays.costs.place_s, self.place_groups)
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
            case fl.StartEvaluation():
                self._evaluators.start(action)
            case fl.CancelEvaluation():
                self._evaluators.cancel(action)
            case fl.ExplainDelay(slot=slot):
                self._emit(ev.SlotDelayed(at=self._now(), slot=slot, problem="no place"))

    def _check_that_nobody_else_is_killed(self, number: int) -> None:
        """A trial that has run for a while is killed only for its own sake, or at the end of everything."""
        slot, process = self.fleet.crew.slot_of(number), self.actors[number].process
        job = process.job if process is not None else None
        if slot is None or job is None or self._is_letting_go:
            return
        forced = slot.forced
        is_meant = forced is not None and forced.job.who == job.who
        # What has just begun may have done so while the decision was on its way.
        costs = self._delays.costs
        way_s = costs.message_s * (1.0 + costs.jitter) + (costs.hiccup_s if costs.hiccups else 0.0)
        assert is_meant or self._clock.now - job.began_at <= 2 * way_s + 0.1, (
            f"trial {job.trial} is killed, and has done nothing"
        )

    def _set_alarm(self) -> None:
        at = self.fleet.alarms.next_at
        if at is not None and (self._alarm_at is None or at < self._alarm_at):
            self._alarm_at = at
            self._clock.after(at - self._now(), lambda: self._tick(at))

    def _tick(self, at: float) -> None:
        if self._alarm_at == at and not self._is_gone:
            self._alarm_at = None
            self.fleet.tick(self._now())
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
            self._delays.after(self._delays.costs.start_worker_s, lambda: self._come_up(actor))

    def _come_up(self, actor: Actor) -> None:
        if not actor.is_alive or actor.is_up or actor.node is None or not actor.node.is_alive:
            return
        actor.is_up = actor.is_linked = True
        actor.process = Process(
            lambda message: self._post(actor, message),
            is_forked=self._trials.is_forked,
            max_trials=self._trials.max_trials,
        )
        self.fleet.connected(actor.number, self._now())
        self._delays.after(self._delays.costs.load_s, lambda: self._load(actor))

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
        """An actor is gone; Ray reports it some time later, or never."""
        if not actor.is_alive:
            return
        self.end_process(actor)
        if is_told:
            self._delays.after(self._delays.costs.notice_death_s, lambda: self._say_ended(actor, failure))

    def _say_ended(self, actor: Actor, failure: Failure) -> None:
        if self.actors.get(actor.number) is actor and not self._is_gone:
            self.fleet.worker_ended(actor.number, failure, self._now())
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
        self._delays.after(self._delays.costs.place_s, self.place_groups)

    def end_process(self, actor: Actor) -> None:
        """The process is gone; what it has said is still under way, then its link closes."""
        if not actor.is_alive:
            return
        actor.is_alive = False
        self._trials.end(actor)
        if actor.is_linked:
            self._in_order(actor, "out", lambda: self._close_link(actor))

    def cut_link(self, actor: Actor) -> None:
        """The connection breaks; the process ends for that, without a message."""
        self.end_process(actor)

    def _close_link(self, actor: Actor) -> None:
        if actor.is_linked and not self._is_gone:
            actor.is_linked = False
            self.fleet.link_closed(actor.number, self._now())
            self.flush()

    def _take_evaluation(self, number: int, metrics: dict[str, JsonValue] | None, problem: str) -> None:
        evaluations = self.fleet.evaluations
        if self._is_gone or evaluations is None:
            return
        if metrics is None:
            evaluations.failed(number, problem, self._now())
        else:
            evaluations.done(number, metrics, self._now())
        self._act()
        self._clock.after(0.0, self.flush)

    # -- links -------------------------------------------------------------------------------------

    def _in_order(self, actor: Actor, way: str, call: Callable[[], None]) -> None:
        """Not before what was sent the same way earlier."""
        due_at = max(
            self._clock.now + self._delays.drawn(self._delays.costs.message_s), actor.sent_at.get(way, 0.0)
        )
        actor.sent_at[way] = due_at
        self._clock.at(due_at, call)

    def _post(self, actor: Actor, message: FromWorker) -> None:
        self._in_order(actor, "out", lambda: self._deliver(actor, message))

    def _deliver(self, actor: Actor, message: FromWorker) -> None:
        if actor.is_linked and not self._is_gone:
            self.fleet.take(actor.number, [message], self._now())
            self._act()
            self._clock.after(0.0, self.flush)

    def _send(self, actor: Actor, messages: list[ToWorker]) -> None:
        for message in messages:
            self._in_order(actor, "in", lambda message=message: self._trials.take(actor, message))  # type: ignore[misc]
