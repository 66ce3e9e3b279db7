"""A shell without a cluster: carries commands out on model workers, keeps a journal, crashes and resumes.

Everything that can be in flight is in flight: commands to a worker and messages from it wait in one queue
each until somebody delivers them, so a test can hold back, double and lose what it likes. What the model
itself asserts, while it carries commands out:

- commands name slots that exist, and no more slots than `max_concurrent_trials` are open;
- no trial runs on two workers, no finished trial is started, no end of a trial is told to the searcher twice;
- a trial resumes from a checkpoint that is still stored, with the number of reports that lie behind it;
- no checkpoint number is given out twice;
- the lineage of a trial says by which config each report behind its checkpoints was made, through all donors;
- the checkpoint that a trial's own code would get if it asked for one is never deleted; nor is any that the
  state knows, paused trials' and donors' among them;
- of the trials that are done, `keep_top_k` keep checkpoints, and none that lost its own is better than these;
- nothing goes in circles: each recall is paid for by a slot that fell idle, and no timer is set to a moment
  that has just come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from datetime import UTC, datetime
from itertools import count
from typing import Any

from raysweep.core import SweepState, decode, step
from raysweep.core.loop import Loop
from raysweep.core.state.compiled_spec import checkpoint_metric
from raysweep.core.state.frozen import FrozenState, freeze, thaw
from raysweep.core.state.invariants import check
from raysweep.core.state.trial import Slot
from raysweep.core.views.scores import as_number, told
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.core.vocabulary.stop_reasons import STOPS
from raysweep.runs.ownership.sweep_claim import in_order
from raysweep.schedulers import load_scheduler
from raysweep.space.amounts import amounts_of, size_of
from raysweep.specs import SweepSpec
from tests.unit.core.toys import METRIC, RAISED, STEP, Searcher
from tests.unit.core.workers import End, Job, Worker
from tests.unit.core.world_checks import Circles, check_lineage, check_top, count_charged


class SweepModel:
    """One sweep, its controllers one after the other, and the cluster under them. A test moves each part."""

    def __init__(
        self,
        spec: SweepSpec,
        *,
        length: int = 3,
        save_every: int = 1,
        total: int | None = None,
        tick_s: float = 0.125,
    ) -> None:
        load_scheduler(spec)
        self.spec = spec
        self.length = length
        self.save_every = save_every
        self.total = spec.num_samples if total is None else total
        self.tick_s = tick_s
        self.turn = 0
        self.now = 1000.0
        self.journal: list[bytes] = []
        self.durable = 0
        self.largest_bytes = 0
        self.beyond: tuple[str, ...] = ()
        self.has_told_time = self.has_released = False
        self.stored: set[str] = set()
        self.damaged: set[str] = set()
        self.ever_stored: dict[str, int] = {}
        self.made_by: dict[str, tuple[Any, ...]] = {}
        self.numbers: set[tuple[int, int]] = set()
        self.state = SweepState.create(spec, 7)
        self.twin: SweepState | None = None
        self.generation = 0
        self.recent: dict[int, bytes] = {}
        self.keeps_recent = False
        self.frozen: deque[tuple[FrozenState, bytes]] = deque()
        self._lose_cluster()

    def _lose_cluster(self) -> None:
        self.loop = Loop(self.state, self._write, self._carry)
        self.finished: set[int] = set()
        self.carried: list[cmd.Command] = []
        self.workers: dict[int, Worker] = {}
        self.asks: deque[cmd.SuggestConfigs] = deque()
        self.untold: deque[cmd.TellSearch] = deque()
        self.unflushed: list[cmd.Command] = []
        self.timer: float | None = None
        self.is_ending = False
        self.has_left = False
        self.sent: list[ev.Event] = []
        self.circles = Circles()
        self.searcher = self._searcher()
        self.avoided: set[str] = set()

    # -- the controller --------------------------------------------------------------------------

    def start(self, capacity: int = 4, *, is_reopening: bool = False, **wanted: Any) -> None:
        """A controller claims the next generation."""
        self.generation += 1
        self.searcher = self._searcher()
        self._tell_again(wanted.get("retried", ()))
        self.send(
            ev.ControllerStarted(
                at=self.now,
                generation=self.generation,
                is_reopening=is_reopening,
                **wanted,
            )
        )
        self.flush()  # the claim is durable before anything else happens
        room = {"memory_bytes": self.largest_bytes, "beyond": self.beyond}
        self.send(ev.CapacityChanged(at=self.now, slots=capacity, **room))

    def send(self, event: ev.Event) -> list[cmd.Command]:
        """Journal an event, apply it, carry its commands out."""
        self.now = max(self.now, event.at)
        self.finished = {number for number, trial in self.state.trials.items() if trial.state in FINAL}
        self.carried = commands = []
        if isinstance(event, ev.CapacityChanged):
            self.largest_bytes, self.beyond = event.memory_bytes, event.beyond
        self.circles.note_room(event)
        charged = count_charged(self.state)
        self.loop.emit(event)
        if isinstance(event, ev.SlotFailed) or (isinstance(event, ev.SlotLost) and not event.was_handed):
            assert count_charged(self.state) == charged, (
                "a trial is charged for a worker that was handed nothing"
            )
        self.circles.check(self.state, event, self.carried)
        self._check_verdicts(event)
        if self.twin is not None:
            assert step(self.twin, event) == commands, "a state restored from JSON does something else"
        return commands

    def _check_verdicts(self, event: ev.Event) -> None:
        """What has been reported counts: a target that was reached, a time that was told."""
        state, target = self.state, self.state.rules.ends.target
        if isinstance(event, ev.TrialReported):
            trial = state.trials[event.trial]
            self.has_told_time |= STEP in trial.results.last
            if state.phase == "running" and target is not None and trial.results.best_score is not None:
                assert trial.results.best_score > target, (
                    f"trial {event.trial} reached the target, and nobody noticed"
                )
        if state.end.fault_field == "scheduler.asha.time_attr":
            assert not self.has_told_time, "a time that was reported is said to be missing in the spec"

    def _write(self, line: bytes) -> None:
        self.journal.append(line)
        check(self.state)
        if self.keeps_recent:
            frozen = freeze(self.state)
            now = b"".join(frozen.parts())
            self.recent[len(self.journal)] = now
            self.recent.pop(len(self.journal) - 64, None)
            self._keep(frozen, now)

    def _keep(self, frozen: FrozenState, now: bytes) -> None:
        """What was frozen stays as it was, whatever has happened since."""
        self.frozen.append((frozen, now))
        if len(self.frozen) > 8:
            frozen, then = self.frozen.popleft()
            assert b"".join(frozen.parts()) == then, "an ended trial was changed"

    def snapshot(self) -> bytes:
        """The state as JSON text, as a snapshot has it."""
        return b"".join(freeze(self.state).parts())

    def fork_twin(self) -> None:
        """From here on a second state, restored from the JSON of the first, must do the same."""
        self.twin = thaw(self.snapshot())
        assert self.twin.to_json() == self.state.to_json()

    def flush(self) -> None:
        """The journal becomes durable; what waited for that is done."""
        self.durable = len(self.journal)
        waiting, self.unflushed = self.unflushed, []
        for command in waiting:
            if isinstance(command, cmd.DeleteCheckpoint):
                self.stored.discard(command.uri)
                jobs = [job for worker in self._alive() for job in (worker.job, *worker.queue) if job]
                asking = [job for job in jobs if job.newest == command.uri]
                assert all(map(self._is_told_to_end, asking)), "a trial may still ask for it"
            elif isinstance(command, cmd.AnswerReport) and command.slot in self.workers:
                self.workers[command.slot].inbox.append(command)
        check_top(self.state, self.spec, has_released=self.has_released)
        for trial in self.state.trials.values():
            needed = {checkpoint.uri for _, checkpoint in trial.needed}
            assert needed <= self.stored, f"trial {trial.number} needs {needed - self.stored}: deleted"
            check_lineage(trial, self.made_by)

    def _is_told_to_end(self, job: Job) -> bool:
        """Whether nothing counts any more that the attempt does: not even whether it fails."""
        reason = self.state.trials[job.start.trial].stop_reason
        return reason is not None and not STOPS[reason].counts

    def crash(self, keep: int | None = None, capacity: int = 4) -> None:
        """The controller dies with all workers; the next one replays the first `keep` events."""
        keep = len(self.journal) if keep is None else keep
        del self.journal[keep:]
        self.durable = keep
        self.state = SweepState.create(self.spec, 7)
        for line in self.journal:
            step(self.state, decode(line))
        if keep in self.recent:
            assert self.snapshot() == self.recent[keep], "the replayed state is not the one that was lost"
        self.has_told_time = self.state.reports.has_timed
        self.twin = None
        self._lose_cluster()
        if self.state.phase != "ended":
            self.start(capacity)

    def go_on(self, capacity: int = 4, **wanted: Any) -> None:
        """A person wants more of a sweep that has ended: trials that failed again, or the best further."""
        self._lose_cluster()
        self.start(capacity, is_reopening=True, **wanted)
        self.flush()

    def release(self, every: int) -> None:
        """A budget takes checkpoints of a sweep that has ended, and stays so: every so-manyth."""
        held = [
            (trial.number, each.number) for trial in self.state.trials.values() for each in trial.checkpoints
        ]
        self._lose_cluster()
        self.generation += 1
        self.send(
            ev.ControllerStarted(at=self.now, generation=self.generation, released=tuple(held[::every]))
        )
        left = [
            (trial.number, each.number) for trial in self.state.trials.values() for each in trial.checkpoints
        ]
        assert left == [each for each in held if each not in held[::every]]
        assert self.state.phase == "ended"
        self.has_released = True
        self.flush()

    def reopen(self, later_s: float, capacity: int = 4) -> None:
        """What ended by a deadline or a budget continues, with more of it."""
        self._lose_cluster()
        self.start(capacity, is_reopening=True)
        old = self.state.spec.stop
        deadline = None if old.deadline is None else datetime.fromtimestamp(self.now + later_s, UTC)
        stop = old.replace(deadline=deadline, time_budget_s=None, budget={})
        spec = self.state.spec.replace(stop=stop)
        changes = ("stop: more",)
        self.send(ev.SpecChanged(at=self.now, spec=spec.model_dump(mode="json"), changes=changes))
        self.flush()

    def extend(self, count: int) -> None:
        """More samples are wanted from here on."""
        self.total += count
        self.searcher.total = self.total
        spec = self.state.spec.replace(num_samples=self.state.spec.num_samples + count)
        self.send(ev.SpecChanged(at=self.now, spec=spec.model_dump(mode="json"), changes=("num_samples",)))
        self.flush()

    # -- commands --------------------------------------------------------------------------------

    def _carry(self, command: cmd.Command) -> None:
        self.carried.append(command)
        match command:
            case cmd.OpenSlot():
                assert command.slot not in self.workers
                self.workers[command.slot] = Worker(command.slot)
                limit = self.spec.max_concurrent_trials
                assert limit is None or len(self.workers) <= limit, "more slots than max_concurrent_trials"
            case cmd.CloseSlot():
                worker = self.workers.pop(command.slot)
                assert worker.is_lost or (worker.job is None and not worker.queue), "a busy slot is closed"
            case cmd.SuggestConfigs():
                assert not self.asks, "asked twice at once"
                self.asks.append(command)
            case cmd.TellSearch():
                # One thread has both: what is told while it is asked is told afterwards.
                (self.untold.append if self.asks else self._tell)(command)
            case cmd.TellRung():
                assert (command.trial, command.time, command.value) in self.state.search.rungs
            case cmd.StartTrial():
                goes_further = self.state.trials[command.trial].continued.max_t is not None
                assert command.trial not in self.finished or goes_further, (
                    f"trial {command.trial} is finished and started again"
                )
                assert command.checkpoint is None or command.checkpoint in self.stored
                behind = self.ever_stored.get(command.checkpoint or "", 0)
                assert command.iteration == behind, f"{behind} reports lie behind {command.checkpoint}"
                self.workers[command.slot].inbox.append(command)
            case cmd.StopTrial() | cmd.RecallTrials():
                self.workers[command.slot].inbox.append(command)
            case cmd.AnswerReport() | cmd.DeleteCheckpoint():
                self.unflushed.append(command)
            case cmd.SetTimer():
                self.timer = command.at
            case cmd.ExcludeNode():
                self.avoided.add(command.node)
            case cmd.EndSweep():
                assert not self.state.line.active
                self.is_ending = True
                self.workers.clear()
            case cmd.LeaveSweep():
                assert not any(worker.job or worker.queue for worker in self._alive())
                self.has_left = True

    def _searcher(self) -> Searcher:
        rules = self.state.rules
        return Searcher(self.total, not rules.search.is_blind, heeds_order=rules.search.is_logged)

    def _tell(self, command: cmd.TellSearch) -> None:
        self.searcher.tell(command.trial, command.value, command.end)

    def _tell_again(self, retried: Container[int]) -> None:
        """As a takeover does. Asked again in the order that was noted, it suggests what it had suggested."""
        for number, is_told in in_order(self.state):
            trial = self.state.trials[number]
            known = told(self.state, trial) if is_told else None
            if known is not None and (number not in retried or self.state.rules.search.is_logged):
                self.searcher.tell(number, known.value, known.end)
            elif not is_told and self.state.rules.search.is_logged:
                config = trial.config if trial.ancestry.suggested is None else trial.ancestry.suggested
                assert self.searcher.ask(number) == config, f"trial {number} would be another one"

    def _alive(self) -> Iterable[Worker]:
        return (worker for worker in self.workers.values() if not worker.is_lost)

    # -- the cluster -----------------------------------------------------------------------------

    def answer_ask(self) -> None:
        """The searcher answers."""
        ask = self.asks.popleft()
        asked = [self.searcher.ask(number) for number in range(ask.first, ask.first + ask.count)]
        configs = tuple(config for config in asked if config is not None)
        is_exhausted = len(configs) < ask.count
        while self.untold:
            self._tell(self.untold.popleft())
        self.send(
            ev.ConfigsSuggested(at=self.now, first=ask.first, configs=configs, is_exhausted=is_exhausted)
        )

    def has_place(self, worker: Worker) -> bool:
        """Whether a node has room for the slot."""
        slot = self.state.slots.get(worker.slot)
        if slot is not None and {slot.needs.size, self._shape(slot)} & {*self.beyond}:
            return False
        need = (slot.needs.memory_bytes or 0) if slot is not None else 0
        return not self.largest_bytes or need <= self.largest_bytes

    def _shape(self, slot: Slot) -> str:
        """The size of a gang with the memory of its members: whoever looks for room counts both."""
        memory = (
            {"memory": float(slot.needs.memory_bytes)}
            if slot.needs.memory_bytes and self.state.spec.scaling
            else {}
        )
        return size_of(amounts_of(slot.needs.size) | memory)

    def open_slot(self, worker: Worker) -> None:
        """A worker comes up, on a node that is not about to go and not excluded."""
        worker.open(self.now, self.node_for(worker))

    def node_for(self, worker: Worker) -> str:
        """The node where a worker is placed."""
        nodes = (f"n{number % 3 if number < worker.slot + 3 else number}" for number in count(worker.slot))
        return next(node for node in nodes if node not in self.avoided)

    def drain_node(self, node: str, deadline: float | None) -> None:
        """A node is about to go: nothing new is placed on it."""
        self.avoided.add(node)
        self.send(ev.NodeDraining(at=self.now, node=node, deadline=deadline))

    def fail_slot(self, worker: Worker, failure: Failure, node: str = "") -> None:
        """A worker does not come up, or the one that was to come in its place."""
        worker.fail(self.now, failure, node)

    def lose_slot(self, worker: Worker, failure: Failure, *, was_handed: bool = True) -> None:
        """A worker dies, with what it runs; the controller learns of it in time."""
        worker.lose(self.now, failure, was_handed=was_handed)

    def deliver(self, worker: Worker) -> ev.Event:
        """The controller gets the next message of a worker."""
        event = worker.outbox.popleft()
        self.sent.append(event)
        if isinstance(event, ev.SlotFailed | ev.SlotLost):
            self.workers.pop(worker.slot, None)
        self.send(event)
        return event

    def take_command(self, worker: Worker) -> None:
        """A worker gets the next command."""
        worker.take(self.now)

    def begin(self, worker: Worker) -> None:
        """User code of the next trial in the queue begins."""
        job = worker.begin(self.now)
        runs = [other for other in self._alive() if other.job and other.job.start.trial == job.start.trial]
        assert runs == [worker], f"trial {job.start.trial} runs on {len(runs)} workers"

    def report(
        self,
        worker: Worker,
        values: list[Any],
        *,
        is_waiting: bool = False,
        keys: tuple[str, ...] = (METRIC,),
    ) -> None:
        """The running trial reports one row a value; under `STEP`, how far it is."""
        assert worker.job is not None
        behind = worker.job.iteration
        rows = [
            [behind + number if key == STEP else value for key in keys]
            for number, value in enumerate(values, start=1)
        ]
        worker.report(self.now, keys, rows, is_waiting=is_waiting)

    def save(self, worker: Worker) -> None:
        """The running trial stores a checkpoint of where it is."""
        job = worker.job
        assert job is not None
        assert job.reports
        trial, number = job.who[0], job.next_checkpoint
        assert (trial, number) not in self.numbers, f"checkpoint {number} of trial {trial} is stored twice"
        self.numbers.add((trial, number))
        uri = f"mem://{trial}/{number}"
        self.stored.add(uri)
        self.ever_stored[uri] = job.iteration
        own = (job.start.config,) * job.reports
        self.made_by[uri] = (*self.made_by.get(job.start.checkpoint or "", ()), *own)
        ranks_by = checkpoint_metric(self.spec)
        worker.save(self.now, uri, rank=as_number(job.last.get(ranks_by)) if ranks_by else None)

    def meets_damage(self, job: Job) -> bool:
        """Whether what the attempt is to resume from is damaged, and there is an older one to say so for."""
        is_first = job.newest == job.start.checkpoint and job.reports == 0
        return is_first and job.start.has_older and job.newest in self.damaged

    def finish(self, worker: Worker, how: End, failure: Failure = RAISED) -> None:
        """The running trial ends."""
        worker.finish(self.now, how, failure)
