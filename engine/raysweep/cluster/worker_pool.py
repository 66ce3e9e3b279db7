"""The fleet's shell: sends its actions to pool and links, and returns their events. It decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final

from raysweep import fleet as fl
from raysweep.cluster.evaluators import Evaluators
from raysweep.cluster.inline_worker import InlinePool
from raysweep.cluster.placement import Holdings, Placement, Pool
from raysweep.cluster.server import LinkServer
from raysweep.core.state.trial import trial_id
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.messages import FromWorker
from raysweep.specs import SweepSpec
from raysweep.worker.inline import InlineStage
from raysweep.worker.runner import TRACEBACK_CHARS, shorten
from raysweep.worker.setup import WorkerSetup

Emit = Callable[[ev.Event], None]
KeepTraceback = Callable[[int, int, str], str]
log = logging.getLogger("raysweep")


class SlotKeeper:
    """The slots of one controller. Methods and callbacks run on the event loop.

    `keep_traceback` stores a text in the background and says where; `now` is the controller's clock.
    """

    def __init__(
        self,
        spec: SweepSpec,
        placement: Placement,
        setup: WorkerSetup,
        server: LinkServer,
        emit: Emit,
        keep_traceback: KeepTraceback,
        *,
        now: Callable[[], float],
        evaluators: Evaluators | None = None,
        stage: InlineStage | None = None,
    ) -> None:
        self.fleet = fl.Fleet(fl.FleetPolicy.of(spec), self._shorten)
        self._placement = placement
        self.pool = self._make_pool(spec, setup, stage)
        self._server = server
        self._emit = emit
        self._keep_traceback = keep_traceback
        self._now = now
        self._evaluators = evaluators
        self._names: dict[int, str] = {}
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = float("inf")
        fleet = self.fleet
        self.carry: Final[dict[type[cmd.Command], Callable[[Any], None]]] = {
            cmd.OpenSlot: self._then(lambda command: fleet.open(command, now())),
            cmd.CloseSlot: self._then(fleet.close),
            cmd.ExcludeNode: self._then(fleet.exclude),
            cmd.StartTrial: fleet.start_trial,
            cmd.StopTrial: self._then(lambda command: fleet.stop_trial(command, now())),
            cmd.RecallTrials: self._then(lambda command: fleet.recall(command, now())),
        }
        """The functions that carry out the core's commands to slots."""

    def _make_pool(self, spec: SweepSpec, setup: WorkerSetup, stage: InlineStage | None) -> Pool:
        if stage is not None:
            return InlinePool(spec.shape_for, setup, self._take_ended, stage)
        return self._placement.make_pool(spec, setup, self._take_ended, self._take_started)

    def answer(self, command: cmd.AnswerReport) -> None:
        """Let a waiting trial continue, at once."""
        self.fleet.answer(command)
        self.flush()

    def flush(self) -> None:
        """Send what was said since the last flush, one frame a worker."""
        self.fleet.flush()
        self._act()

    def hurry(self) -> None:
        """End within a second: this process is about to be killed."""
        self.fleet.hurry(self._now())
        self._act()

    def avoid(self, nodes: Collection[str]) -> None:
        """These nodes are about to go, or gone."""
        self.fleet.avoid(nodes)
        self._act()

    def close_all(self) -> None:
        """End every worker, remove every placement group."""
        self.fleet.close_all()
        self._act()

    def find_holdings(self) -> Holdings:
        """The holdings of this sweep on the cluster."""
        workers = {
            self._names.get(member.number, ""): _running(slot.begun)
            for slot in self.fleet.slots.values()
            for member in slot.members
        }
        groups = self.pool.find_groups()
        if self._evaluators is not None:
            groups |= self._evaluators.find_groups()
        return Holdings(groups=groups, workers=workers, owns_cluster=self._placement.is_all_ours)

    # -- from the workers --------------------------------------------------------------------------

    def take(self, name: str, messages: list[FromWorker]) -> None:
        """Messages of a worker, in order."""
        number = self.pool.number_of(name)
        if number is not None:
            self.fleet.take(number, messages, self._now())
            self._act()

    def take_worker_connected(self, name: str) -> None:
        """A worker's process is up."""
        number = self.pool.number_of(name)
        if number is not None:
            self.fleet.connected(number, self._now())
            self._act()

    def take_worker_gone(self, name: str) -> None:
        """The link to a worker is closed."""
        number = self.pool.number_of(name)
        if number is not None:
            self.fleet.link_closed(number, self._now())
            self._act()

    def _take_started(self, number: int) -> None:
        """A worker is started for which there was no room before."""
        self._names[number] = self.pool.name_of(number)

    def _take_ended(self, number: int, error: BaseException | None) -> None:
        slot, worker = self.fleet.crew.slot_of(number), self.fleet.crew.find(number)
        node = (worker.node or slot.node) if slot is not None and worker is not None else ""
        failure = self.pool.explain_end(error, node)
        where = f" on node {node[:8]}" if node else ""  # an inline one has no node
        log.warning("worker%s ended: %s: %s", where, failure.type, failure.message)
        self.fleet.worker_ended(number, failure, self._now())
        self._act()

    def _shorten(self, trial: int, attempt: int, failure: Failure) -> Failure:
        if trial < 0 or len(failure.traceback) <= TRACEBACK_CHARS:
            return failure
        uri = self._keep_traceback(trial, attempt, failure.traceback)
        return replace(failure, traceback=shorten(failure.traceback, TRACEBACK_CHARS), traceback_uri=uri)

    def take_evaluation(self, number: int, metrics: dict[str, Any], problem: str) -> None:
        """An evaluation has ended; `problem`: why it gave no metrics."""
        evaluations = self.fleet.evaluations
        assert evaluations is not None, "an evaluation was wanted"
        if problem:
            evaluations.failed(number, problem, self._now())
        else:
            evaluations.done(number, metrics, self._now())
        self._act()

    # -- what the fleet wants ----------------------------------------------------------------------

    def _then(self, call: Callable[[Any], None]) -> Callable[[Any], None]:
        def carry(command: Any) -> None:
            call(command)
            self._act()

        return carry

    def _act(self) -> None:
        actions = self.fleet.actions
        while True:
            while actions:
                self._do(actions.popleft())
            events = self.fleet.take_events()
            while events:
                self._emit(events.popleft())
            if not actions:
                break
        self._set_alarm()

    def _do(self, action: fl.Action) -> None:
        match action:
            case fl.Send(worker=number, messages=messages):
                self._server.send(self._names[number], messages)
            case fl.CreateGroup():
                self.pool.create_group(action)
            case fl.RemoveGroup():
                self.pool.remove_group(action)
            case fl.StartWorker(worker=number):
                self.pool.start(action)
                self._names[number] = self.pool.name_of(number)
            case fl.KillWorker(worker=number):
                self.pool.kill(number)
            case fl.HangUp(worker=number):
                name = self._names.pop(number)
                self.pool.forget(number, name)
                self._server.hang_up(name)
            case fl.StartEvaluation() if self._evaluators is not None:
                self._evaluators.start(action)
            case fl.CancelEvaluation() if self._evaluators is not None:
                self._evaluators.cancel(action)
            case fl.ExplainDelay(slot=slot, group=group):
                problem = self._placement.explain_place(self.pool.bundles_of(group), self.find_holdings())
                self._emit(ev.SlotDelayed(at=self._now(), slot=slot, problem=problem))

    def _set_alarm(self) -> None:
        at = self.fleet.alarms.next_at
        if at is None or at >= self._alarm_at:
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_later(max(0.0, at - self._now()), self._tick)

    def _tick(self) -> None:
        self._alarm, self._alarm_at = None, float("inf")
        self.fleet.tick(self._now())
        self.flush()


def _running(handed: Any) -> str:
    return trial_id(handed.trial) if handed is not None else ""
