"""A model cluster in virtual time: workers that come up, run trials along their curves, and die."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import orjson
from pydantic import JsonValue

from raysweep.core import commands as cmd
from raysweep.core import events as ev
from raysweep.core import trial_id
from raysweep.core.failures import Failure
from raysweep.errors import CheckpointDamagedError, RaysweepError, TrialStopped
from raysweep.simulate.clock import Clock
from raysweep.simulate.workers import Job, Worker
from raysweep.storage.store import Store

Curve = Callable[[Mapping[str, Any], int], Mapping[str, JsonValue] | None]
"""(config, iteration) -> what the trial reports at that iteration (1, 2, …), or None: it has returned.

What it raises, the trial raises; `WorkerDied` takes the worker with it.
"""
Pace = Callable[[Mapping[str, Any], int], float]


class WorkerDied(Exception):
    """Raised by a curve: the trial's process is gone, as after SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """How long things take in a simulation, in virtual seconds. `jitter` adds up to that part at random."""

    start_worker_s: float = 1.0
    message_s: float = 0.0005
    save_s: float = 0.02
    notice_death_s: float = 0.2
    put_s: float = 0.005
    commit_interval_s: float = 0.25
    restart_s: float = 5.0
    jitter: float = 0.0


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


class SimulatedCluster:
    """The workers of one controller. `emit` gets their events, `note` what happens to them."""

    def __init__(
        self,
        *,
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
        self._clock = clock
        self._costs = costs
        self._curve = curve
        self._pace = pace
        self._random = random
        self._store = store
        self._sweep_id = sweep_id
        self._save_every = save_every
        self._wait_every = wait_every
        self._emit = emit
        self._note = note
        self._workers: dict[int, Worker] = {}
        self._sent_at: dict[tuple[int, str], float] = {}
        self._saving: dict[int, Worker] = {}

    # -- commands ----------------------------------------------------------------------------------

    def open(self, slot: int) -> None:
        """Start a worker."""
        worker = self._workers[slot] = Worker(slot)
        self._after(self._costs.start_worker_s, lambda: self._come_up(worker))

    def close(self, slot: int) -> None:
        """End an idle worker."""
        worker = self._workers.pop(slot)
        assert worker.job is None, f"slot {slot} is closed while a trial runs in it"
        worker.is_lost = True

    def send(self, command: cmd.StartTrial | cmd.StopTrial | cmd.RecallTrials | cmd.AnswerReport) -> None:
        """A command goes to its slot; commands to one slot arrive in order."""
        worker = self._workers.get(command.slot)
        if worker is not None:
            worker.inbox.append(command)
            self._in_order(worker, "in", self._costs.message_s, lambda: self._arrive(worker))

    def end(self) -> None:
        """Every worker ends."""
        for worker in self._workers.values():
            worker.is_lost = True
        self._workers.clear()

    def lose_controller(self) -> None:
        """The controller is gone: no worker goes on, but what is being stored at that moment still lands."""
        for worker in self._saving.values():
            if worker.job is not None:
                self._store_checkpoint(worker.job)
        self.end()

    # -- what happens ------------------------------------------------------------------------------

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._clock.after(seconds * (1.0 + self._costs.jitter * self._random.random()), call)

    def _in_order(self, worker: Worker, way: str, seconds: float, call: Callable[[], None]) -> None:
        """Not before what was sent the same way earlier."""
        due_at = self._clock.now + seconds * (1.0 + self._costs.jitter * self._random.random())
        due_at = max(due_at, self._sent_at.get((worker.slot, way), 0.0))
        self._sent_at[worker.slot, way] = due_at
        self._clock.at(due_at, call)

    def _post(self, worker: Worker, count: int, delay_s: float = 0.0) -> None:
        """Send the newest `count` messages of the outbox."""
        for _ in range(count):
            self._in_order(worker, "out", delay_s + self._costs.message_s, lambda: self._deliver(worker))

    def _deliver(self, worker: Worker) -> None:
        event = worker.outbox.popleft()
        if self._workers.get(worker.slot) is not worker:
            return
        if isinstance(event, ev.SlotLost):
            del self._workers[worker.slot]
        self._emit(event)

    def _come_up(self, worker: Worker) -> None:
        if not worker.is_lost:
            worker.open(self._clock.now, f"node{worker.slot}")
            self._note("opened", slot=worker.slot)
            self._post(worker, 1)

    def _arrive(self, worker: Worker) -> None:
        if worker.is_lost or not worker.inbox:
            return
        job, before = worker.job, len(worker.outbox)
        was_waiting = job is not None and job.is_waiting
        command = worker.take(self._clock.now)
        self._post(worker, len(worker.outbox) - before)
        if isinstance(command, cmd.StopTrial) and job is not None and job.stop_reason:
            self._clock.after(command.grace_s, lambda: self._force(worker, job))
        if was_waiting and job is not None and not job.is_waiting:
            if job.awaits is None:
                self._note_job("answered", worker, job, iteration=job.reports - 1)
            self._go_on(worker, job)
        if worker.job is None and worker.queue:
            self._begin(worker)

    def _begin(self, worker: Worker) -> None:
        job = worker.begin(self._clock.now)
        self._check_restored(job)
        self._note_job("began", worker, job)
        self._post(worker, 1)
        self._go_on(worker, job)

    def _check_restored(self, job: Job) -> None:
        uri = job.start.checkpoint
        if uri is None:
            assert job.iteration == 0, (
                f"trial {job.who[0]} begins behind {job.iteration} reports from nothing"
            )
            return
        data = self._store.get(f"{uri.removeprefix(f'{self._store.url}/')}.json")
        if data is None:
            raise CheckpointDamagedError(uri, "there is no such checkpoint (it was deleted too early)")
        behind = orjson.loads(data)["iteration"]
        assert job.iteration == behind, f"{behind} reports lie behind {uri}, not {job.iteration}"

    def _go_on(self, worker: Worker, job: Job) -> None:
        pace_s = self._pace(job.start.config, job.iteration + 1)
        self._after(pace_s, lambda: self._step(worker, job))

    def _is_running(self, worker: Worker, job: Job) -> bool:
        return not worker.is_lost and worker.job is job

    def _step(self, worker: Worker, job: Job) -> None:
        if not self._is_running(worker, job):
            return
        if job.must_stop:
            self._finish(worker, "stopped")
            return
        try:
            metrics = self._curve(job.start.config, job.iteration + 1)
        except WorkerDied as died:
            self._die(worker, job, str(died) or "killed by signal 9")
        except TrialStopped:
            self._finish(worker, "stopped")
        except Exception as error:  # noqa: BLE001  it stands for user code, which may raise anything
            self._finish(worker, "failed", _describe(error))
        else:
            if metrics is None:
                self._finish(worker, "returned")
            else:
                self._report(worker, job, metrics)

    def _report(self, worker: Worker, job: Job, metrics: Mapping[str, JsonValue]) -> None:
        iteration = job.iteration + 1
        is_saved = bool(self._save_every) and iteration % self._save_every == 0
        is_waiting = bool(self._wait_every) and iteration % self._wait_every == 0
        worker.report(
            self._clock.now,
            tuple(metrics),
            [list(metrics.values())],
            is_waiting=is_waiting and not is_saved,
        )
        self._note_job("reported", worker, job)
        self._post(worker, 1)
        if is_saved:
            self._saving[worker.slot] = worker
            self._after(self._costs.save_s, lambda: self._save(worker, job, tuple(metrics), is_waiting))
        elif not is_waiting:
            self._go_on(worker, job)

    def _save(self, worker: Worker, job: Job, keys: tuple[str, ...], is_waiting: bool) -> None:
        self._saving.pop(worker.slot, None)
        if not self._is_running(worker, job):
            return
        worker.save(self._clock.now, self._store_checkpoint(job))
        self._note_job("saved", worker, job)
        if job.stop_reason is not None:
            self._post(worker, 1)
            self._finish(worker, "stopped")
            return
        if is_waiting:
            # The answer to a report without rows comes when the checkpoint's record is durable.
            worker.report(self._clock.now, keys, [], is_waiting=True)
        self._post(worker, 2 if is_waiting else 1)
        if not is_waiting or not job.is_waiting:
            self._go_on(worker, job)

    def _store_checkpoint(self, job: Job) -> str:
        path = f"{self._sweep_id}/checkpoints/{trial_id(job.who[0])}/{job.next_checkpoint}"
        record = {"iteration": job.iteration, "attempt": job.who[1]}
        if not self._store.put_if_absent(f"{path}.json", orjson.dumps(record)):
            raise RaysweepError(
                f"checkpoint number {job.next_checkpoint} of trial {job.who[0]} is used twice"
            )
        return f"{self._store.url}/{path}"

    def _finish(
        self, worker: Worker, how: Any, failure: Failure | None = None, *, was_killed: bool = False
    ) -> None:
        job = worker.job
        assert job is not None
        worker.finish(self._clock.now, how, failure, was_killed=was_killed)
        self._saving.pop(worker.slot, None)
        self._note_job(how, worker, job)
        self._post(worker, 1)
        if worker.queue:
            self._begin(worker)

    def _force(self, worker: Worker, job: Job) -> None:
        if self._is_running(worker, job):
            self._finish(worker, "stopped", was_killed=True)

    def _die(self, worker: Worker, job: Job, how: str) -> None:
        failure = Failure(origin="process", type="WorkerDied", message=how)
        self._note_job("died", worker, job)
        worker.lose(self._clock.now, failure)
        self._post(worker, 1, delay_s=self._costs.notice_death_s)

    def _note_job(self, what: str, worker: Worker, job: Job, iteration: int | None = None) -> None:
        self._note(
            what,
            slot=worker.slot,
            trial=job.who[0],
            attempt=job.who[1],
            iteration=job.iteration if iteration is None else iteration,
        )


def _describe(error: Exception) -> Failure:
    bases = tuple(cls.__name__ for cls in type(error).__mro__)
    return Failure(origin="exception", type=type(error).__name__, message=str(error)[:1000], bases=bases)
