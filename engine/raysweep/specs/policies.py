"""Policies: retries of trials, the checkpoints that are kept, and the end of the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from raysweep.documents.base import SpecModel
from raysweep.documents.code.trainable import PYTHON_ONLY, check_reference, trainable_ref
from raysweep.documents.sizes import Bytes, BytesPerSecond
from raysweep.documents.validation import Problem, show
from raysweep.documents.wall_clock import check_wall_clock, looks_like_wall_clock

_FUNCTION_EXAMPLE: Final = "package.module:function"
Seconds = Annotated[float, Field(ge=0)]


def _seconds(given: Any) -> Any:
    return given.total_seconds() if isinstance(given, timedelta) else given


PositiveSeconds = Annotated[Annotated[float, Field(gt=0)] | None, BeforeValidator(_seconds)]


def _aware(given: Any) -> Any:
    """A moment with its offset, in UTC, so that one moment has one spelling."""
    example = 'write one such as "2026-11-21T06:00:00+01:00"'
    if given is None:
        return None
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given.strip())
        except ValueError:
            raise Problem(f"{show(given)} is not a date and time in ISO 8601", example) from None
    elif isinstance(given, datetime):
        moment = given
    else:
        raise Problem(f"expected a date and time, got {show(given)}", example)
    if moment.utcoffset() is None:
        raise Problem(
            f"{moment.isoformat()} has no offset from UTC",
            f'write "{moment.isoformat()}+00:00", or with your offset',
        )
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        raise Problem(f"{show(given)} is out of range", example) from None
    # A plain datetime: subclasses such as pendulum's do not compare equal in every field.
    return datetime(*utc.timetuple()[:6], utc.microsecond, tzinfo=UTC)


def _deadline(given: Any) -> Any:
    """A moment in UTC, or a wall-clock time with its zone, as text."""
    if isinstance(given, str) and looks_like_wall_clock(given):
        return check_wall_clock(given)
    return _aware(given)


Deadline = Annotated[datetime | str | None, BeforeValidator(_deadline)]


class FailurePolicy(SpecModel):
    """The policy for failures of trials."""

    renamed_fields: ClassVar[dict[str, str]] = {"max_retries": "max_failures", "retries": "max_failures"}

    former_fields: ClassVar[dict[str, str]] = {"max_ooms": "write max_worker_deaths, which counts these too"}

    max_failures: int = Field(default=1, ge=0)
    """The number of times that a trial is retried after its own code failed."""
    max_worker_deaths: int = Field(default=3, ge=0)
    """The number of times that a trial is retried after its worker died, hung or ran out of memory."""
    backoff_initial_s: Seconds = 1.0
    """Seconds before the first retry; doubles with each."""
    backoff_max_s: Seconds = 60.0
    """The longest pause before a retry, in seconds."""
    max_failed_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    """The sweep fails when more than this part of its trials failed; default: no limit."""
    breaker_trials: int = Field(default=3, ge=0)
    """The sweep fails at once when its first `breaker_trials` trials all fail in user code; 0: never."""
    non_finite: Literal["fail", "ignore"] = "fail"
    """The effect of a NaN or infinite metric: it fails the trial, or is ignored."""
    oom_memory_factor: float = Field(default=2.0, ge=1)
    """After running out of memory it asks for this many times as much, where a node has it; 1: no more."""
    memory_limit_factor: Annotated[float, Field(ge=1)] | None = None
    """A trial that uses more than this times its `resources.memory` is ended before it takes its node down;
    default: it is left to Ray's memory monitor."""
    report_timeout_s: PositiveSeconds = None
    """A trial that has not reported for this many seconds hangs: it is killed, and retried as after a
    worker's death. The time in which a checkpoint is stored counts too. Default: no limit."""
    start_timeout_s: PositiveSeconds = 600.0
    """The longest time for a worker to load the trainable, in seconds; None: no limit."""
    placement_timeout_s: Annotated[float, BeforeValidator(_seconds), Field(gt=0)] = 300.0
    """After this many seconds without a place for a worker, or for what a trial has asked Ray for, the reason
    is said. With nothing running and no node that could hold a trial, the sweep is left, resumable."""
    bad_node_failures: int = Field(default=3, ge=0)
    """A node where this many trials failed, while none failed elsewhere, gets no more; 0: never."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.backoff_max_s < self.backoff_initial_s:
            raise Problem(
                f"{self.backoff_max_s} is below backoff_initial_s {self.backoff_initial_s}",
                f"set backoff_max_s to at least {self.backoff_initial_s}",
                ("backoff_max_s",),
            )
        return self


class BestCheckpoints(SpecModel):
    """The best checkpoints of a trial: those of the reports that are best by a metric."""

    metric: Annotated[str, Field(min_length=1)] | None = None
    """The reported metric that ranks them; default: the sweep's."""
    mode: Literal["min", "max"] | None = None
    """The better direction: `min` or `max`; default: as for the sweep's metric. Required for another."""
    num: int = Field(default=1, ge=1)
    """The number that are kept. A report without a number under the metric is not ranked."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.metric is not None and self.mode is None:
            raise Problem(
                f"nothing says whether less or more {show(self.metric)} is better",
                "set mode to min or max",
                ("mode",),
            )
        return self


def _keep_best(given: Any) -> bool | BestCheckpoints:
    """Not validated as a union: its errors would name the branches."""
    if isinstance(given, bool):
        return given
    if isinstance(given, Mapping | BestCheckpoints):
        return BestCheckpoints.model_validate(given)
    raise Problem(
        f"expected true, false or a mapping, got {show(given)}",
        'write true, or such as {"metric": "accuracy", "mode": "max", "num": 2}',
    )


def _best_to_json(best: bool | BestCheckpoints) -> Any:
    return best.model_dump(exclude_none=True) if isinstance(best, BestCheckpoints) else best


KeepBest = Annotated[
    bool | BestCheckpoints,
    PlainValidator(_keep_best, json_schema_input_type=bool | BestCheckpoints),
    PlainSerializer(_best_to_json),
]


class CheckpointPolicy(SpecModel):
    """The way a trial's checkpoints are stored, and those that are kept."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "keep": "keep_last",
        "keep_every": "every_n",
        "keep_top": "keep_top_k",
        "budget": "storage_budget",
    }
    former_fields: ClassVar[dict[str, str]] = {
        "parallel_puts": "set the variable RAYSWEEP_PARALLEL_PUTS on the nodes",
        "node_cache": "set the variable RAYSWEEP_NODE_CACHE on the nodes, such as 2GiB",
    }

    keep_last: int = Field(default=1, ge=1)
    """The number of the newest checkpoints that are kept."""
    keep_best: KeepBest = True
    """Keep the checkpoint of the best report too; or `{metric, mode, num}`: by any metric."""
    every_n: Annotated[int, Field(ge=1)] | None = None
    """Every n-th checkpoint of a trial is kept besides."""
    keep_top_k: Annotated[int, Field(ge=1)] | None = None
    """Of the trials that completed or were stopped, only the so many best keep checkpoints; default: all do.

    What may still continue keeps its own: trials that run, wait, are paused, failed, or were cut by the end.
    """
    storage_budget: Annotated[Bytes, Field(ge=0)] | None = None
    """The most that the checkpoints of all ended sweeps of this name take up, in bytes or as `50GiB`.

    Applied when a sweep has ended, and by `raysweep gc NAME`: what nothing pins goes, oldest and worst first.
    """
    upload: Literal["block", "latest"] = "block"
    """If a trial makes checkpoints faster than they can be stored: it waits (`block`), or those that wait
    are skipped for the newest one (`latest`). One that it waits for is never skipped, nor is its last."""
    upload_limit: BytesPerSecond | None = None
    """The most that a worker uploads per second, over time: bytes, or as `50MiB/s`; default: no limit."""
    on_damage: Literal["fall_back", "fail"] = "fall_back"
    """If a trial's newest checkpoint is damaged or lost: it resumes from the one before (`fall_back`),
    or `rs.get_checkpoint()` raises (`fail`), as it does where the trial keeps no other."""


class Budget(SpecModel):
    """The budget of the sweep in all, counted from a worker's start to its end, idle or not."""

    renamed_fields: ClassVar[dict[str, str]] = {"money": "cost", "gpus": "gpu_hours", "cpus": "cpu_hours"}

    cpu_hours: Annotated[float | None, Field(gt=0)] = None
    """CPU-hours."""
    gpu_hours: Annotated[float | None, Field(gt=0)] = None
    """GPU-hours."""
    cost: Annotated[float | None, Field(gt=0)] = None
    """Money, in the currency of `stop.cost_per_hour`."""


class Plateau(SpecModel):
    """No more progress: the sweep ends when `window` completed trials in a row have not moved the best."""

    window: int = Field(default=10, ge=1)
    """The number of completed trials."""
    min_improvement: float = Field(default=0.0, ge=0)
    """The least improvement of the best, over these trials together, that counts."""
    min_trials: int = Field(default=0, ge=0)
    """The sweep does not end so before this many trials have completed."""


class TrialLimit(SpecModel):
    """A limit with a direction: the trial ends when it reports a value beyond it."""

    above: float | None = None
    """Ends the trial above this value."""
    below: float | None = None
    """Ends the trial below this value."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.above is None and self.below is None:
            raise Problem("requires above or below", 'write {"above": 10}')
        if self.above is not None and self.below is not None and self.below > self.above:
            raise Problem(
                f"below {self.below:g} and above {self.above:g} leave no value inside",
                "make below the smaller of the two",
            )
        return self


class TrialPlateau(SpecModel):
    """One trial makes no more progress: its last reports hardly differ (Ray Tune's TrialPlateauStopper)."""

    metric: Annotated[str, Field(min_length=1)] | None = None
    """The reported value that is looked at; default: the sweep's metric."""
    std: float = Field(default=0.01, gt=0)
    """The trial ends when the standard deviation of its last values is below this."""
    num_results: int = Field(default=4, ge=2)
    """The number of the last values to compare."""
    grace_period: int = Field(default=4, ge=0)
    """The trial does not end so before this many reports."""
    metric_threshold: float | None = None
    """Only a trial whose value is at least as good as this ends so; default: any."""
    mode: Literal["min", "max"] | None = None
    """The direction that is good, for the threshold: `min` or `max`; default: as for the sweep's metric."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.metric is not None and self.metric_threshold is not None and self.mode is None:
            raise Problem(
                f"nothing says whether less or more {show(self.metric)} is better",
                "set mode to min or max",
                ("mode",),
            )
        return self


class TrialPatience(SpecModel):
    """One trial makes no more progress: so many reports have not improved its best."""

    reports: int = Field(default=10, ge=1)
    """The number of reports in a row."""
    min_improvement: float = Field(default=0.0, ge=0)
    """An improvement of the best counts if it is larger than this."""
    grace_period: int = Field(default=0, ge=0)
    """The trial does not end so before this many reports."""


def _limit(given: Any, as_number: ValidatorFunctionWrapHandler) -> Any:
    return TrialLimit.model_validate(given) if isinstance(given, Mapping | TrialLimit) else as_number(given)


def _limit_to_json(limit: float | TrialLimit) -> Any:
    return limit.model_dump(exclude_none=True) if isinstance(limit, TrialLimit) else limit


Limit = Annotated[
    # Not a union: its errors would name the branches.
    float,
    WrapValidator(_limit),
    PlainSerializer(_limit_to_json),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {
                    "type": "object",
                    "properties": {"above": {"type": "number"}, "below": {"type": "number"}},
                    "minProperties": 1,
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class TrialWilcoxon(SpecModel):
    """A trial is worse than the best one, report by report (Optuna's WilcoxonPruner; Wilcoxon, 1945)."""

    p_threshold: float = Field(default=0.1, ge=0, le=1)
    """The trial is stopped when it is worse with a p-value below this; 0: never."""
    n_startup_steps: int = Field(default=2, ge=0)
    """It is not stopped before so many of its reports can be compared; two at least."""


def _function_path(given: Any) -> str:
    """The import path of a function; one that has none could not be found again by a resume."""
    if isinstance(given, str) and not given.startswith(PYTHON_ONLY):
        checked = check_reference(given)
        assert isinstance(checked, str), "of text, it gives text"
        return checked
    path = trainable_ref(check_reference(given))
    if path.startswith(PYTHON_ONLY):
        name = path.removeprefix(PYTHON_ONLY).strip().split("#")[0]
        raise Problem(
            f"the function {name!r} has no import path, by which a resume could find it",
            f'move it into a module, and name it "{_FUNCTION_EXAMPLE}"',
        )
    return path


FunctionPath = Annotated[str, BeforeValidator(_function_path)]


class StopPolicy(SpecModel):
    """The rules by which a trial, or the whole sweep, has done enough."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "time_total_s": "stop.trial_time_s",
        "max_t": "scheduler.asha.max_t",
    }

    deadline: Deadline = None
    """The end of the sweep, finished or not: ISO 8601 with its offset from UTC, or `06:00 Europe/Berlin`.

    A time of day means the next one after the sweep's scheduled start.
    """
    time_budget_s: PositiveSeconds = None
    """The longest time that the sweep runs, all of its controllers together, in seconds."""
    budget: Budget = Budget()
    """The budget of the sweep: CPU-hours, GPU-hours, money."""
    budget_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """The caller's budget that it counts against (`raysweep budget`), with all other sweeps of this key."""
    cost_per_hour: dict[str, Annotated[float, Field(ge=0)]] = Field(default_factory=dict)
    """The cost of an hour of each resource: `{cpu: 0.05, gpu: 2.5}`, and custom resources by name."""
    plateau: Plateau | None = None
    """The sweep ends when it makes no more progress."""
    min_trials: int = Field(default=0, ge=0)
    """A sweep that its deadline or a budget ended with fewer finished trials counts as a failure."""
    target: float | None = None
    """The sweep ends when a trial's metric is at least as good as this."""
    trial: dict[str, Limit] = Field(default_factory=dict)
    """Limits for each trial, by reported name: a number (it ends at or above it), or `{above: 10}`."""
    trial_time_s: PositiveSeconds = None
    """The longest time that one attempt of a trial runs, in seconds."""
    trial_plateau: TrialPlateau | None = None
    """A trial ends when its last reports hardly differ."""
    trial_patience: TrialPatience | None = None
    """A trial ends when its best has not improved for so many reports."""
    trial_wilcoxon: TrialWilcoxon | None = None
    """A trial is stopped when its reports are significantly worse than those of the best completed trial.

    For reports that are results of the same cases in the same order: folds, data sets, problem instances.
    """
    trial_if: FunctionPath | None = None
    """A trial ends when this function of its reports returns true: an import path `package.module:function`.

    It is called after each report with all of them, a list of dicts, and returns a bool, by these alone.
    """
    grace_s: Annotated[float, BeforeValidator(_seconds), Field(ge=0)] = 10.0
    """The time that a trial which is told to stop has before it is killed, in seconds."""

    @property
    def trial_limits(self) -> tuple[tuple[str, float | None, float | None, float | None], ...]:
        """For each limited value its name, and where it ends the trial: at or above, above, below."""
        limits: dict[str, Any] = dict(self.trial)
        return tuple(
            (name, None, limit.above, limit.below)
            if isinstance(limit, TrialLimit)
            else (name, limit, None, None)
            for name, limit in limits.items()
        )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.budget.cost is not None and not any(self.cost_per_hour.values()):
            raise Problem(
                "needs prices", "add stop.cost_per_hour, such as {cpu: 0.05, gpu: 2.5}", ("budget", "cost")
            )
        return self
