"""`run_sweep`: returns the outcome of a key's sweep, or resumes, follows or starts that sweep."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from raysweep.cluster.interrupts import Interrupts, heard_by
from raysweep.cluster.late_delivery import deliver_rest
from raysweep.cluster.placement import Placement
from raysweep.cluster.placing import is_this_machine, placed, stage_of
from raysweep.cluster.preparation import (
    check_backend,
    check_evaluator,
    check_new,
    check_trainable,
    keeping_parameters,
    spec_fault,
)
from raysweep.cluster.progress_callback import Listener
from raysweep.cluster.ray.sweep_metrics import SweepMetrics
from raysweep.core import SweepState, make_outcome
from raysweep.core.seeds import derive_seed
from raysweep.delivery.beside import BEFORE_OUTCOME_S, Beside
from raysweep.delivery.trace import keep_traceparent
from raysweep.documents.wall_clock import check_scheduled_at
from raysweep.errors import FencedError, RaysweepError, SpecError, StorageError, SweepInterrupted
from raysweep.hooks.loading import load_callbacks
from raysweep.hooks.prometheus import PrometheusOptions
from raysweep.outcome import SweepOutcome, SweepProgress
from raysweep.outcome.showing.formatting import show_progress
from raysweep.programs.allowed import check_programs
from raysweep.programs.runner import runnable
from raysweep.runs.across_runs.budget import keep_budget, plan_budget
from raysweep.runs.across_runs.pins import PinReader
from raysweep.runs.across_runs.spending import reserve
from raysweep.runs.folder import OUTCOME_GIVE_UP_AFTER_S, SweepFolder
from raysweep.runs.ownership.departure import put_aside, withdraw
from raysweep.runs.ownership.holder import note_left
from raysweep.runs.ownership.reopening import NOT_CONTINUED, check_same, told
from raysweep.runs.ownership.sweep_claim import (
    OnProgress,
    Ownership,
    SweepRequest,
    check_not_lost,
    find_holder,
    find_outcome,
    follow,
    hold,
)
from raysweep.runs.ownership.wholeness import check_end
from raysweep.runs.policies import load_policies
from raysweep.specs import RunRequest, SweepSpec, TrainSpec
from raysweep.specs.code_digest import code_digest_of
from raysweep.specs.continuing import Continue
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.retries import retrying
from raysweep.threads import result_of, start_thread
from raysweep.version import __version__
from raysweep.worker.inline import InlineStage

if TYPE_CHECKING:
    from raysweep.cluster.controller import Controller

log = logging.getLogger("raysweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The training that a sweep of one trial is."""

    spec: TrainSpec
    check_cluster: Callable[[], None]
    """Refuses, once the cluster is there, and before anything of the run is stored, what it cannot hold."""


def run_sweep(
    request: RunRequest[SweepSpec],
    *,
    address: str | None = None,
    on_progress: OnProgress | None = None,
    takeover: bool = False,
    num_cpus: float | None = None,
    scheduled_at: datetime | None = None,
    continuing: Continue = NOT_CONTINUED,
    training: Training | None = None,
) -> SweepOutcome:
    """`raysweep.run_sweep` where the address is not that of a Jobs API; args and errors as there.

    `training`: the training that the sweep is.
    """
    asked, folder = _ask(request, scheduled_at, continuing, training=training)
    check = training.check_cluster if training is not None else _pass
    interrupts = Interrupts(breaks_off=True)
    try:
        return _off_loop(
            lambda stage: _run(
                asked, folder, address, on_progress, takeover, num_cpus, interrupts, stage, check
            ),
            interrupts,
            asked,
        )
    except KeyboardInterrupt as error:
        # Raised anew: of where it was caught inside, a user who pressed Ctrl-C does not want to read.
        raise _interrupted(folder, error) from None


def run_connected(
    request: RunRequest[SweepSpec],
    interrupts: Interrupts,
    *,
    on_progress: OnProgress | None,
    takeover: bool,
    scheduled_at: datetime | None = None,
    continuing: Continue = NOT_CONTINUED,
    job_number: int = 0,
    training: Training | None = None,
) -> SweepOutcome:
    """`run_sweep` on the Ray that this process is connected to, for a caller with signals of its own.

    Call it off the main thread: there the controller would take SIGINT and SIGTERM itself. `interrupts` ends
    or cancels it, and so does a request in the storage that names `job_number`, however old it is.
    """
    asked, folder = _ask(request, scheduled_at, continuing, job_number, training)
    check = training.check_cluster if training is not None else _pass
    return _beside_trials(
        asked, lambda stage: _run(asked, folder, None, on_progress, takeover, None, interrupts, stage, check)
    )


def _pass() -> None:
    """A sweep is checked by `find_room`."""


def _ask(
    request: RunRequest[SweepSpec],
    scheduled_at: datetime | None,
    continuing: Continue,
    job_number: int = 0,
    training: Training | None = None,
) -> tuple[SweepRequest, SweepFolder]:
    check_scheduled_at(scheduled_at)
    spec, run = request.spec, request.run
    continuing.check_for(spec)
    folder = SweepFolder(open_store(spec.storage_path), run.id)
    seed = spec.seed if spec.seed is not None else derive_seed(0, run.id)
    at = scheduled_at.timestamp() if scheduled_at is not None else None
    asked = SweepRequest(
        spec=spec,
        key=run.key,
        seed=seed,
        scheduled_at=at,
        continuing=continuing,
        job_number=job_number,
        code=code_digest_of(spec if training is None else training.spec),
        train=training.spec.to_stored() if training is not None else None,
    )
    return asked, folder


def _run(
    asked: SweepRequest,
    folder: SweepFolder,
    address: str | None,
    on_progress: OnProgress | None,
    takeover: bool,
    num_cpus: float | None,
    interrupts: Interrupts,
    stage: InlineStage | None,
    check_cluster: Callable[[], None],
) -> SweepOutcome:
    listener = on_progress = Listener(on_progress) if on_progress is not None else None
    has_run = False
    while True:
        interrupts.check()
        outcome = find_outcome(folder, asked)
        if outcome is not None:
            return outcome if has_run else told(outcome, code=asked.code, now=time.time())
        holder, generation = find_holder(folder)
        if holder is not None and not takeover:
            check_same(folder, asked.spec, None)
            _follow(folder, on_progress, holder, interrupts)
            has_run = True
            continue
        load_policies(asked.spec)
        load_callbacks(asked.spec)
        if folder.read_spec() is None:
            check_not_lost(folder, generation)
            check_new(asked.spec, asked.seed, time.time(), asked.scheduled_at)
        folder.store.check_writable()
        reserve(folder.store, folder.sweep_id, asked.spec)
        if stage is None or isinstance(asked.spec.trainable, str):
            is_local = is_this_machine(address)
            if asked.spec.command is not None:
                check_programs(asked.spec, is_local=is_local)
            else:
                check_trainable(asked.spec.trainable, is_local=is_local)
            check_evaluator(asked.spec, is_local=is_local)
            if is_local:
                check_backend(asked.spec)
        if listener is not None:
            listener.stage(stage_of(address))
        with keeping_parameters(asked.spec.trainable), placed(address, num_cpus) as placement:
            interrupts.check()
            if listener is not None:
                listener.stage("claiming the sweep")
            placement.check(asked.spec)
            spec, share = placement.share_gpus(asked.spec)
            asked = replace(asked, spec=spec)
            placement.find_room(asked.spec)
            check_cluster()
            placement.prepare(asked.spec)
            with interrupts.keeping():
                held = hold(folder, asked, after=None if takeover else generation)
                if held is None:
                    continue
                is_late = asked.continuing.retry is not None and held.state.phase in ("stopping", "ending")
                try:
                    note = "" if share is None else str(share)
                    outcome = _carry_through(held, placement, on_progress, interrupts, stage, note)
                finally:
                    if held.state.clock.started_at is not None:
                        note_left(folder.sweep_id, held.claim.generation, held.state.clock.started_at)
            if not is_late:
                return outcome
            # It was about to end as it had been before it was asked for anything: now that can be done.
            has_run = True


def _follow(
    folder: SweepFolder, on_progress: OnProgress | None, holder: SweepProgress, interrupts: Interrupts
) -> None:
    """Watch another process's sweep. Ctrl-C ends only that."""

    def look(progress: SweepProgress) -> None:
        interrupts.check()
        if on_progress is not None:
            on_progress(progress)

    try:
        follow(folder, look)
    except KeyboardInterrupt:
        note = "only this call was: run it again to follow it"
        raise SweepInterrupted(folder.sweep_id, note, f"it keeps running in {holder.holder}") from None


def _interrupted(folder: SweepFolder, error: KeyboardInterrupt) -> SweepInterrupted:
    if isinstance(error, SweepInterrupted):
        return SweepInterrupted(error.sweep_id, error.note, error.so_far)
    return SweepInterrupted(folder.sweep_id, so_far="before a trial ran")


def _carry_through(
    held: Ownership,
    placement: Placement,
    on_progress: OnProgress | None,
    interrupts: Interrupts,
    stage: InlineStage | None,
    note: str,
) -> SweepOutcome:
    from raysweep.cluster.controller import Controller

    folder, state = held.folder, held.state
    metrics = _make_metrics(held) if placement.has_metrics else None
    shown = on_progress if metrics is None else _both(metrics, on_progress)
    controller = Controller(held, placement, shown, stage, note)
    beside = Beside(folder, held.asked.spec.callbacks, address=placement.address)
    interrupts.pass_to(controller.requests)
    keep_traceparent(folder, held.asked.spec.callbacks)
    try:
        beside.start()
        _run_controller(controller, held)
        outcome = make_outcome(
            state, sweep_id=folder.sweep_id, key=held.asked.key, uri=folder.uri, version=__version__
        )
        notes = beside.finish(BEFORE_OUTCOME_S) if state.phase == "ended" else ()
        first = (beside.note_until_done,) if notes is None else notes
        folder.write_outcome_if_absent(_noted(outcome, first))
        progress = controller.progress()
        if metrics is not None:
            metrics.show(progress, is_last=True)
        if on_progress is not None:
            on_progress(progress)
        _keep_budget(folder, state.spec)
        if notes is None:
            notes = deliver_rest(folder, beside, first, interrupts)
    finally:
        beside.close()
    return _noted(outcome, notes)


def _make_metrics(held: Ownership) -> SweepMetrics | None:
    """The sweep's numbers as metrics of Ray, where a callback asks for them."""
    asked = [each.options for each in held.asked.spec.callbacks]
    intervals = [each.interval_s for each in asked if isinstance(each, PrometheusOptions)]
    return SweepMetrics(held.state, min(intervals)) if intervals else None


def _both(metrics: SweepMetrics, on_progress: OnProgress | None) -> OnProgress:
    def show(progress: SweepProgress) -> None:
        metrics.show(progress)
        if on_progress is not None:
            on_progress(progress)

    return show


def _run_controller(controller: Controller, held: Ownership) -> None:
    """Run the sweep to its end; where it has none, leave it in order."""
    folder, state = held.folder, held.state
    try:
        controller.run_to_end()
        retrying(OUTCOME_GIVE_UP_AFTER_S)(folder.check_is_there)
        if state.end.fault == "spec":
            raise spec_fault(state)
        retrying(OUTCOME_GIVE_UP_AFTER_S)(
            check_end, folder, state, claim=held.claim.number, last=controller.last_segment
        )
    except SpecError as error:
        error.kept_uri = _make_way(folder, state, controller.progress())
        raise
    except FencedError:
        raise
    except BaseException as error:
        progress = controller.progress()
        _leave(folder, progress)
        if isinstance(error, KeyboardInterrupt):
            raise SweepInterrupted(folder.sweep_id, so_far=show_progress(progress)) from None
        raise


def _noted(outcome: SweepOutcome, notes: tuple[str, ...]) -> SweepOutcome:
    return outcome.model_copy(update={"notes": (*outcome.notes, *notes)}) if notes else outcome


def _keep_budget(folder: SweepFolder, spec: SweepSpec) -> None:
    """Have the sweeps of this name give up what is over their budget; that fails no sweep."""
    budget_bytes = spec.checkpoint.storage_budget
    if budget_bytes is None:
        return
    try:
        pins = PinReader(folder.store)
        plan = plan_budget(folder.store, spec.name, budget_bytes, pins)
        keep_budget(folder.store, plan, pins)
    except RaysweepError as error:
        log.warning("checkpoint.storage_budget: not kept for now, `raysweep gc` tries again: %s", error)
        return
    if plan.over_bytes:
        log.warning("checkpoint.storage_budget: exceeded by %d bytes that are pinned", plan.over_bytes)


def _make_way(folder: SweepFolder, state: SweepState, progress: SweepProgress) -> str:
    """Let the mended spec have the same key, where this one cannot be resumed; where is it that anything ran?

    Nothing that has run is ever deleted.
    """
    if not any(trial.started_at is not None for trial in state.trials.values()):
        withdraw(folder)
        return ""
    if state.phase == "ended" and not state.end.reopened:
        return put_aside(folder)
    _leave(folder, progress)
    return folder.uri


def _leave(folder: SweepFolder, progress: SweepProgress) -> None:
    """Say that no process runs the sweep any more: this one may live on, and may even resume it."""
    with suppress(StorageError):
        folder.check_is_there()
        folder.write_progress(progress.model_copy(update={"has_left": True}))


def _off_loop(
    call: Callable[[InlineStage | None], SweepOutcome], interrupts: Interrupts, asked: SweepRequest
) -> SweepOutcome:
    """Run where no event loop runs: here, or (in a notebook, in async code) on a thread of its own."""
    is_inline = asked.spec.is_inline
    is_here = not _has_loop() and not is_inline
    with heard_by(interrupts, is_here=is_here):
        if is_here or is_inline:
            return _beside_trials(asked, call)
        context = copy_context()
        return result_of(start_thread(lambda: context.run(call, None), "raysweep-run"))


def _beside_trials(asked: SweepRequest, call: Callable[[InlineStage | None], SweepOutcome]) -> SweepOutcome:
    """Run the sweep here; or, where trials are to run here, beside them on a thread of its own."""
    if not asked.spec.is_inline:
        return call(None)
    stage, context = InlineStage(runnable(asked.spec)), copy_context()
    running = start_thread(lambda: context.run(call, stage), "raysweep-run")
    stage.serve(running)
    return running.result()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
