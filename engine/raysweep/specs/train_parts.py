"""Field types of a training's spec: framework, limits, failures, data sets and the schedule of configs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from raysweep.documents.base import SpecModel
from raysweep.documents.code.trainable import check_reference
from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.specs.document import ImportPath, Trainable, as_given, check_storage_path
from raysweep.specs.policies import Deadline, PositiveSeconds, Seconds
from raysweep.specs.scheduled_config import ScheduledConfig
from raysweep.transfer.rules import EXAMPLE as EXAMPLE_OF_RULE
from raysweep.transfer.rules import LAW, SAME, parse_rule

DataAddress = Annotated[str, AfterValidator(check_storage_path)]
Format = Literal["parquet", "csv", "json", "text", "numpy", "images", "tfrecords", "binary_files"]
FRAMEWORKS: Final = ("data_parallel", "torch", "lightgbm", "xgboost", "tensorflow")


def _framework(given: Any) -> Any:
    """One that is known, or the import path of a trainer. Imports nothing. Raises Problem."""
    if not isinstance(given, str) or given in FRAMEWORKS:
        return given
    if ":" not in given:
        fix = f'{did_you_mean(given, FRAMEWORKS)}; or name a trainer: "package.module:MyTrainer"'
        raise Problem(f"{show(given)} is not known here", fix)
    return check_reference(given, "package.module:MyTrainer")


Framework = Annotated[
    str,
    BeforeValidator(_framework),
    WithJsonSchema({"anyOf": [{"enum": list(FRAMEWORKS)}, {"type": "string", "pattern": ".+:.+"}]}),
]


class BelowPrediction(SpecModel):
    """The rule that ends a run which has fallen below the score that a law predicts of it.

    Before its end it is compared with the learning curves of the better trials of the proxy scales, moved to
    the predicted score.
    """

    widths: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 2.0
    """The distance below: in half-widths of the 80 % interval of the predicted score."""
    reports: int = Field(default=3, ge=1)
    """The number of reports in a row that have to be so low; one that is not a number is."""
    steps: int | None = Field(default=None, ge=1)
    """The number of reports of the whole run.

    Default: as many as the completed trials, where all of them made equally many; else nothing is stopped.
    """


def _below(given: Any) -> Any:
    if isinstance(given, int | float) and not isinstance(given, bool):
        return {"widths": given}
    return given


class TrainStop(SpecModel):
    """The rules that end a training run before its function returns."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "time_total_s": "time_budget_s",
        "max_time_s": "time_budget_s",
    }

    deadline: Deadline = None
    """The end of the run: ISO 8601 with its offset from UTC, or `06:00 Europe/Berlin`.

    A time of day means the next one after the run's first start.
    """
    time_budget_s: PositiveSeconds = None
    """The longest time that the run is at work, all of its attempts together, in seconds."""
    below_prediction: (
        Annotated[BelowPrediction, BeforeValidator(_below, json_schema_input_type=BelowPrediction | float)]
        | None
    ) = Field(default=None, exclude_if=lambda given: given is None)
    """Ends a run whose reports are too far below the score that the law of `transfer` predicts.

    `2` means `{widths: 2}`. The run completes with `ended_by: below_prediction`, and without a model.
    """
    grace_s: Annotated[Seconds, Field(gt=0)] = 60.0
    """Seconds before that at which workers are asked for a checkpoint: `rs.should_checkpoint()` is true."""

    @property
    def is_set(self) -> bool:
        """True if there is a limit."""
        return self.deadline is not None or self.time_budget_s is not None


class TrainFailure(SpecModel):
    """The policy for a training run that fails, or whose workers die."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "max_retries": "max_failures",
        "retries": "max_failures",
    }

    max_failures: int = Field(default=1, ge=0)
    """The number of times that the run is retried after its own code failed."""
    max_worker_deaths: int | None = Field(default=None, ge=0)
    """The number of times that the run is retried after workers died (killed, out of memory, node lost).

    Default: they count as failures, against `max_failures`.
    """
    max_preemptions: int | None = Field(default=None, ge=0)
    """The number of times that the run is retried after nodes were taken away; default: without a limit."""
    backoff_initial_s: Seconds = 0.0
    """Seconds before the first retry after a failure or a death; doubles with each."""
    backoff_max_s: Seconds = 60.0
    """The longest such pause, in seconds."""


class DatasetSource(SpecModel):
    """A Ray Data set that the workers of a training share: its files, or a function that makes it."""

    files: DataAddress | None = None
    """A file, or a folder of files: a path or a URL."""
    format: Format = "parquet"
    """The format in which they are read: by `ray.data.read_parquet` and so on."""
    function: Trainable | None = None
    """Instead of files: what is called with the training's config and returns a `ray.data.Dataset`.

    An import path `package.module:function`, or in Python a callable.
    """
    split: bool = True
    """Give each worker a part of its own; otherwise each gets all of it."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return {"function": given} if isinstance(given, str) or callable(given) else given

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        left_out = ("files", "format") if self.function is not None else ("function",)
        return {name: value for name, value in fields.items() if name not in left_out}

    @model_validator(mode="after")
    def _check(self) -> Self:
        example = 'write {"files": "s3://bucket/train"}, or "package.module:function"'
        if self.function is None and self.files is None:
            raise Problem("does not say what is read", example)
        if self.function is not None and (self.files is not None or self.format != "parquet"):
            raise Problem("has a function, and files", example)
        return self


Dataset = Annotated[
    DatasetSource, BeforeValidator(as_given, json_schema_input_type=DatasetSource | ImportPath)
]


def _transfer(given: Any) -> Any:
    if not isinstance(given, Mapping):
        fix = "write such as {lr: law, rounds: rounds * scale.rows / proxy.rows}"
        raise Problem(f"expected parameters and how they are carried, got {show(given)}", fix)
    for name, how in given.items():
        if not isinstance(how, str) or not how.strip():
            problem = f"expected same, law or a rule, got {show(how)}"
            raise Problem(problem, EXAMPLE_OF_RULE, (name,))
        if how not in (SAME, LAW):
            try:
                parse_rule(how)
            except Problem as problem:
                raise Problem.of(problem.issues, (name,)) from None
    return {name: how.strip() for name, how in given.items()}


Transfer = Annotated[
    dict[str, str],
    BeforeValidator(_transfer),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}),
]


_SCHEDULE_FIX: Final = (
    'give a list such as [{"from": 0, "config": {"lr": 0.1}}, {"from": 20, "config": {"lr": 0.05}}]'
)


def _as_schedule(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return tuple(given)
    raise Problem(f"expected a list, got {show(given)}", _SCHEDULE_FIX)


def _check_order(given: tuple[ScheduledConfig, ...]) -> tuple[ScheduledConfig, ...]:
    starts = [each.start for each in given]
    if starts and starts[0] != 0:
        raise Problem(f"begins from {starts[0]}", "let the first config be from 0")
    for number, (before, after) in enumerate(pairwise(starts), start=1):
        if after <= before:
            raise Problem(
                f"{after} comes after {before}", "give the configs in order, each from once", (number, "from")
            )
    return given


Schedule = Annotated[tuple[ScheduledConfig, ...], BeforeValidator(_as_schedule), AfterValidator(_check_order)]
