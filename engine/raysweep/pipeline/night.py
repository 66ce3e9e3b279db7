"""One run of a pipeline, from sweep to release."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from raysweep.cluster.placing import check_training
from raysweep.documents.digest import digest_of
from raysweep.errors import SweepFailedError
from raysweep.hooks.model_registry import check_registry
from raysweep.jobs.options import JobOptions
from raysweep.outcome import (
    GateOutcome,
    PipelineOutcome,
    SweepOutcome,
    SweepProgress,
    TrainOutcome,
    TrialOutcome,
)
from raysweep.outcome.judgement import Judgement
from raysweep.pipeline.approval import await_approval
from raysweep.pipeline.gate import run_gate
from raysweep.pipeline.judging import await_release, is_released, run_judge
from raysweep.pipeline.night_end import ending_by, night_end, why_not_begun
from raysweep.pipeline.registering import record_training, register_night
from raysweep.provision.lifetime import shared
from raysweep.run import is_job_place, run_sweep, run_training
from raysweep.specs import RunRequest, TrainSpec
from raysweep.specs.identity import key_within
from raysweep.specs.pipeline import PipelineSpec
from raysweep.step.brief import (
    best_config,
    best_schedule,
    named_trial,
    stored_outcome,
    why_not_trained,
)


def run_pipeline(
    pipeline: PipelineSpec | Mapping[str, Any] | str | os.PathLike[str],
    *,
    key: str,
    address: Any = None,
    storage_path: str | None = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
    num_cpus: float | None = None,
    job: JobOptions | None = None,
) -> PipelineOutcome:
    """Sweep, gate, train, judge, and an approval; with the same key, resume, or return the outcome.

    Args:
        pipeline: A `PipelineSpec`, a mapping, or the path of a YAML or JSON file.
        key: Names the run.
        address: As in `run_sweep`; one embedded Ray serves all steps.
        storage_path: In place of that of the specs.
        on_progress: Called during the sweeps.
        num_cpus: As in `run_sweep`.
        job: As in `run_sweep`, for each of the jobs.

    Raises:
        SweepFailedError: The sweep ended without a result that may be used.
        TrainingFailedError: The training failed.
        RaysweepError: As `run_sweep` and `run_training`.
    """
    spec = PipelineSpec.from_any(pipeline).stored_at(storage_path)
    if spec.registry is not None:
        check_registry(spec.registry)
    if spec.train is not None and not is_job_place(address):
        check_training(address)
    run_id = RunRequest.of(spec.sweep, key).run.id
    watch: dict[str, Any] = {"on_progress": on_progress, "num_cpus": num_cpus}
    rest = _Rest(spec, key)
    with shared(address, run_id) as there:
        place: dict[str, Any] = {"address": there, "job": job}
        with _one_ray(there):
            outcome: SweepOutcome = run_sweep(spec.sweep, key=key, **place, **watch).raise_for_status()
            ends_at = night_end(spec.deadline, outcome)
            verdict = None
            if spec.gate is not None:
                more: dict[str, Any] = {"approval": spec.approval, "ends_at": ends_at}
                more["is_judged"] = spec.judge is not None
                verdict = run_gate(spec.sweep, outcome, spec.gate, **place, **watch, **more)
            is_waiting = verdict is not None and verdict.is_waiting
            if not is_waiting:
                outcome = outcome if verdict is None else with_gate(outcome, verdict)
                rest.run(outcome, ends_at, place, watch)
        if is_waiting and spec.gate is not None and verdict is not None:
            # Without Ray: it may take hours.
            outcome = with_gate(outcome, await_approval(spec.sweep, outcome, spec.gate, verdict))
            with _one_ray(there):
                rest.run(outcome, ends_at, place, watch)
    if rest.judgement is not None:
        await_release(outcome, rest.judgement)
    return PipelineOutcome(
        sweep=outcome,
        gate=outcome.gate,
        train=rest.trained,
        skipped=(why_not_trained(outcome) or rest.late) if spec.train else "",
        judgement=rest.judgement,
        released=is_released(outcome) if rest.judgement is not None else None,
        registered=register_night(spec, outcome, rest.trained),
    )


class _Rest:
    """The steps of a night after its gate: training and judgement."""

    def __init__(self, spec: PipelineSpec, key: str) -> None:
        self._spec, self._key = spec, key
        self.trained: TrainOutcome | None = None
        self.late = ""
        self.judgement: Judgement | None = None

    def run(
        self,
        outcome: SweepOutcome,
        ends_at: datetime | None,
        place: Mapping[str, Any],
        watch: Mapping[str, Any],
    ) -> None:
        """Train what the gate promoted, and judge its model."""
        spec = self._spec
        self.trained, self.late = _train(spec, outcome, self._key, ends_at, place)
        if self.trained is not None:
            record_training(outcome, self.trained)
        if spec.judge is not None and self.trained is not None:
            more: dict[str, Any] = {"approval": spec.judge_approval, "ends_at": ends_at}
            self.judgement = run_judge(
                spec.judge, outcome, self.trained, sweep=spec.sweep, **place, **watch, **more
            )


def _train(
    spec: PipelineSpec, outcome: SweepOutcome, key: str, ends_at: datetime | None, place: Mapping[str, Any]
) -> tuple[TrainOutcome | None, str]:
    """The training, or why the end of the night kept it from being begun."""
    train, late = spec.train, ""
    if train is not None and ends_at is not None and outcome.promoted is not False:
        train = ending_by(train, ends_at, outcome)
        late = why_not_begun(training_request(train, outcome, key), ends_at)
    return (None, late) if late else (train_best(train, outcome, key=key, **place), "")


def with_gate(outcome: SweepOutcome, gate: GateOutcome) -> SweepOutcome:
    """The sweep's outcome with the gate's verdict, and its `why` with the gate's."""
    own = outcome.own_why or outcome.why
    update = {"promoted": gate.promoted, "gate": gate, "own_why": own, "why": f"{own}; {gate.why}"}
    return outcome.model_copy(update=update)


def train_best(
    train: TrainSpec | None,
    outcome: SweepOutcome,
    *,
    key: str,
    address: Any = None,
    job: JobOptions | None = None,
) -> TrainOutcome | None:
    """Train the config that the sweep hands on; None where nothing is to be trained.

    With a gate that is the best of the candidates that were run again.
    """
    if train is None or outcome.promoted is False:
        return None
    request = training_request(train, outcome, key)
    return run_training(request.spec, key=request.run.key, address=address, job=job).raise_for_status()


def training_request(
    train: TrainSpec, given: SweepOutcome | Mapping[str, Any] | None, key: str | None
) -> RunRequest[TrainSpec]:
    """The training of what a sweep hands on.

    Args:
        train: The training's spec; its own `config` wins.
        given: A sweep's outcome, or the brief of it; None: nothing is handed on.
        key: Names the night; None: the spec is the key, which has the config in it.

    Raises:
        SweepFailedError, SpecError, SweepNotFoundError, StorageError: As `with_best`.
    """
    spec = with_best(train, given)
    return RunRequest.of(spec, training_key(spec, given, key) if key is not None else None)


def training_key(spec: TrainSpec, given: SweepOutcome | Mapping[str, Any] | None, key: str) -> str:
    """The key of a night's training: of its own for each config that the sweep hands on.

    A retry is the same training; where the sweep has continued and has another config, another one.

    Args:
        spec: The training's spec, with that config in it.
        given: The sweep's outcome, or the brief of it; None: nothing is handed on, and `key` is the key.
        key: Names the night.

    Raises:
        SweepFailedError, SpecError, SweepNotFoundError, StorageError: As `with_best`.
    """
    if given is None:
        return key
    handed = _what_is_handed(given)
    if spec.carried is not None:
        handed = [handed, spec.carried.config]
    return key_within(key, "best", digest_of(handed)[:12])


def with_best(train: TrainSpec, given: SweepOutcome | Mapping[str, Any] | None) -> TrainSpec:
    """The training of what a sweep hands on, by its outcome or the brief of it; None: as it is.

    Raises:
        SweepFailedError: The sweep has no best trial.
        SpecError, SweepNotFoundError, StorageError: As `best_config`.
    """
    from raysweep.training.from_outcome import train_spec_of, train_spec_with
    from raysweep.training.model_card import source_tags

    if given is None:
        return train
    if not isinstance(given, SweepOutcome):
        if train.scale or train.transfer:
            whole = stored_outcome(given)
            return train_spec_of(train, whole, named_trial(given, whole))
        tags = source_tags(given)
        return train_spec_with(train, best_config(given), tags=tags, schedule=best_schedule(given))
    best = _handed(given)
    if train.scale or train.transfer:
        given = stored_outcome(given)  # with all trials
    return train_spec_of(train, given, best)


def _what_is_handed(given: SweepOutcome | Mapping[str, Any]) -> Any:
    """The config; beside it the schedule that led to it, where there is one."""
    if isinstance(given, SweepOutcome):
        best = _handed(given)
        config, schedule = best.config, best.schedule
    else:
        config, schedule = dict(best_config(given)), best_schedule(given)
    return [config, [each.model_dump() for each in schedule]] if schedule else config


def _handed(given: SweepOutcome) -> TrialOutcome:
    # The gate's best may be a trial that a task's result did not keep.
    whole = stored_outcome(given) if given.gate is not None else given
    best = handed_on(whole.model_copy(update={"gate": given.gate})).best
    if best is None:
        raise SweepFailedError(whole)
    return best


def handed_on(outcome: SweepOutcome) -> SweepOutcome:
    """The outcome with the gate's best candidate as its best trial."""
    best = outcome.gate.best if outcome.gate is not None else None
    if best is None:
        return outcome
    name = best.trial_in(outcome.sweep_id)
    trial = next((trial for trial in outcome.trials if trial.trial_id == name), None)
    if trial is None and name != best.trial_id:  # a challenger of an earlier night
        trial = TrialOutcome(
            trial_id=name,
            number=len(outcome.trials),
            state="completed",
            config=best.config,
            score=best.mean,
            checkpoint_uri=best.checkpoint_uri,
        )
    return outcome if trial is None else outcome.model_copy(update={"best": trial})


def _one_ray(address: Any) -> Any:
    from raysweep.cluster.ray.connection import sharing

    return nullcontext() if is_job_place(address) else sharing()
