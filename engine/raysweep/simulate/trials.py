"""The trials of a simulation: user code on curves, in processes that a model cluster has started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import JsonValue

from raysweep.core import trial_id
from raysweep.core.state.compiled_parts import checkpoint_metric
from raysweep.core.views.scores import as_number
from raysweep.core.vocabulary.failures import Failure
from raysweep.errors import CheckpointDamagedError, Infeasible, RaysweepError, TrialStopped
from raysweep.fleet.message_events import failure_of
from raysweep.messages import FailureFacts, Interrupt, Kill, ToWorker
from raysweep.simulate.delays import Delays
from raysweep.simulate.processes import Actor, Job, Process
from raysweep.specs import SweepSpec
from raysweep.storage.objects.store import Store
from raysweep.worker.rows import to_json
from raysweep.worker.rungs import RungWatch
from raysweep.worker.sweep_info import Rungs

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The behaviour of trials: `curve` gives their reports, `pace` the seconds that these take.

    A checkpoint comes with every `save_every`-th report, and every `wait_every`-th waits for the journal;
    0: none.
    """

    curve: Curve
    pace: Pace
    save_every: int
    wait_every: int
    evaluation: Curve | None = None
    """The result of an evaluation, by config and iteration; what it raises, the evaluation raises."""
    evaluate_s: float = 1.0


class Trials:
    """Moves the trials along. `note` gets what happens to them; `die` ends an actor with its trial."""

    def __init__(
        self,
        work: Work,
        *,
        spec: SweepSpec,
        delays: Delays,
        store: Store,
        sweep_id: str,
        note: Callable[..., None],
        die: Callable[[Actor, Failure], None],
    ) -> None:
        self.is_forked = spec.effective_isolation == "process"
        self.max_trials = spec.worker_max_trials
        self._work = work
        self._delays = delays
        self._ranks_by = checkpoint_metric(spec)
        self._ahead = spec.evaluate.ahead if spec.evaluate is not None else None
        self._rungs = Rungs.of(spec) if spec.scaling is None else Rungs()
        self._store = store
        self._sweep_id = sweep_id
        self._note = note
        self._die = die
        self._deaf: set[Job] = set()

    def take(self, actor: Actor, message: ToWorker) -> None:
        """A message arrives at an actor."""
        process = actor.process
        if not actor.is_alive or process is None:
            return
        job = process.job
        was_waiting = job is not None and job.is_waiting
        awaited = job.awaits if job is not None else None
        process.take(message)
        if isinstance(message, Interrupt | Kill) and job is not None and message.who == job.who:
            self._interrupt(actor, job, is_killed=isinstance(message, Kill))
        elif was_waiting and job is not None and not job.is_waiting:
            if job.awaits is None:
                self._note_job("answered", actor, job, iteration=awaited)
            if not job.is_saving:
                self._end_or_go_on(actor, job, is_saved=False)
        if process.job is None and process.next is not None:
            self._begin(actor)

    def end(self, actor: Actor) -> None:
        """The actor's process is gone, and what ran in it."""
        if actor.process is None:
            return
        job, actor.process.job = actor.process.job, None
        if job is not None:
            self._note_job("died", actor, job)

    def land(self, actor: Actor) -> None:
        """Let a checkpoint that is being stored at this moment land, whatever becomes of the actor."""
        job = actor.process.job if actor.process is not None else None
        if actor.is_alive and job is not None and job.is_saving:
            self._store_checkpoint(job)

    def _is_running(self, actor: Actor, job: Job) -> bool:
        return actor.is_alive and actor.process is not None and actor.process.job is job

    def _begin(self, actor: Actor) -> None:
        assert actor.process is not None
        job = actor.process.begin()
        job.began_at = self._delays.clock.now
        if self._rungs:
            job.rungs = RungWatch(self._rungs, job.iteration, lambda: self._delays.clock.now)
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
        if job.rungs is not None:
            job.rungs.begin_step()
        pace_s = self._work.pace(job.config, job.iteration + 1)
        self._delays.after(pace_s, lambda: self._step(actor, job))

    def _step(self, actor: Actor, job: Job) -> None:
        if not self._is_running(actor, job):
            return
        try:
            metrics = self._reported(job)
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

    def _reported(self, job: Job) -> dict[str, JsonValue] | None:
        """The next report of the trial, as its worker would send it; None: it has returned."""
        metrics = self._work.curve(job.config, job.iteration + 1)
        return None if metrics is None else {name: to_json(value) for name, value in metrics.items()}

    def _report(self, actor: Actor, job: Job, metrics: Mapping[str, JsonValue]) -> None:
        process = actor.process
        assert process is not None
        iteration = job.iteration + 1
        is_saved = bool(self._work.save_every) and iteration % self._work.save_every == 0
        is_waiting = bool(self._work.wait_every) and iteration % self._work.wait_every == 0
        is_saved = is_saved or job.wants_checkpoint
        if not job.may_report(has_checkpoint=is_saved):
            self._finish(actor, is_stopped=True)
            return
        patience_s = 0.0 if job.rungs is None or is_waiting else job.rungs.patience_s(metrics, job.reports)
        is_evaluated = is_saved and self._ahead is not None
        process.report(
            job,
            metrics,
            is_waiting=bool(patience_s) or (is_waiting and not is_saved),
            is_evaluated=is_evaluated,
        )
        self._note_job("reported", actor, job)
        if is_saved:
            process.begin_saving(job)
            save_s = self._delays.costs.save_s
            self._delays.after(save_s, lambda: self._save(actor, job, metrics, is_waiting, patience_s))
        else:
            self._end_or_go_on(actor, job, is_saved=False, patience_s=patience_s)

    def _save(
        self,
        actor: Actor,
        job: Job,
        metrics: Mapping[str, JsonValue],
        is_waiting: bool,
        patience_s: float,
    ) -> None:
        if not self._is_running(actor, job) or actor.process is None:
            return
        rank = as_number(metrics.get(self._ranks_by)) if self._ranks_by else None
        actor.process.save(job, self._store_checkpoint(job), [*metrics], is_waiting=is_waiting, rank=rank)
        self._note_job("saved", actor, job)
        self._end_or_go_on(actor, job, is_saved=True, patience_s=patience_s)

    def _end_or_go_on(self, actor: Actor, job: Job, *, is_saved: bool, patience_s: float = 0.0) -> None:
        """The report returns, or waits: at a rung for `patience_s` at most, else until it is answered.

        Or until an evaluation is in, of which it is too far ahead.
        """
        if is_saved and self._ahead is not None and len(job.unjudged) > self._ahead:
            job.awaits, patience_s = job.unjudged[-1 - self._ahead], 0.0
        if job.stop_reason is not None and (is_saved or not job.wants_checkpoint):
            self._finish(actor, is_stopped=True)
        elif not job.is_waiting:
            self._go_on(actor, job)
        elif patience_s:
            report = job.awaits
            self._delays.clock.after(patience_s, lambda: self._lose_patience(actor, job, report))

    def _lose_patience(self, actor: Actor, job: Job, report: int | None) -> None:
        if self._is_running(actor, job) and job.awaits == report and job.is_waiting:
            job.awaits = None
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
        if self.is_forked:
            self._finish(actor, failure)
        else:
            self._die(actor, failure_of(failure))

    def _end_over_memory(self, actor: Actor) -> None:
        process = actor.process
        assert process is not None
        job = process.exceed(
            FailureFacts(origin="memory", type="MemoryLimitExceeded", message="as asked", memory_bytes=2**31)
        )
        self._go_on_after(actor, process, job, "failed")
        if not self.is_forked:
            # It has said so; then its process ends, and the worker with it.
            gone = Failure(origin="process", type="WorkerDied", message="exit code 1")
            self._delays.after(self._delays.costs.message_s, lambda: self._die(actor, gone))

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
    origin: Literal["exception", "infeasible"] = (
        "infeasible" if isinstance(error, Infeasible) else "exception"
    )
    return FailureFacts(origin=origin, type=type(error).__name__, message=str(error)[:1000], bases=bases)
