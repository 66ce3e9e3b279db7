"""The spec of a full-scale training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from raysweep.documents.tuples import marked
from raysweep.documents.validation import Problem
from raysweep.specs.document import DEFAULT_STORAGE, Name, SpecDocument, StoragePath, Trainable
from raysweep.specs.identity import Kind
from raysweep.specs.parameters import check_command, require_command
from raysweep.specs.program import Command, ProgramSpec, with_runner
from raysweep.specs.scaling import Scaling
from raysweep.specs.schedule import Schedule, check_config
from raysweep.specs.train_parts import DataAddress, DatasetSource, Framework, TrainFailure, TrainStop

if TYPE_CHECKING:
    import os

    from raysweep.specs.schedule import ScheduledConfig


class TrainSpec(SpecDocument):
    """What one training run trains, with which config, on what. Frozen; invalid input raises SpecError."""

    kind: ClassVar[Kind] = "train"
    renamed_fields: ClassVar[dict[str, str]] = {
        "scaling_config": "scaling",
        "num_workers": "scaling.num_workers",
        "train_loop_config": "config",
        "resume_from_checkpoint": "warm_start_checkpoint",
        "resources": "scaling",
    }

    name: Name = "train"
    """The run's name; its id starts with it."""
    trainable: Trainable
    """What each worker runs: an import path `package.module:function`, a callable, or `command`."""
    command: Command | None = None
    """A program that the worker runs, in place of `trainable`; see the spec of a sweep."""
    program: ProgramSpec | None = None
    """How `command` gets its config, where its metrics and checkpoints are, and how it is ended."""
    config: Annotated[
        dict[str, Any],
        BeforeValidator(check_config),
        PlainSerializer(marked, return_type=dict[str, Any]),
    ] = Field(default_factory=dict)
    """What the trainable is given: plain JSON, and tuples, in a file as `{tuple: [1, 2]}`."""
    schedule: Schedule = ()
    """What a population's best trial was trained with: `[{from: 0, config: {…}}, {from: 20, config: {…}}]`.

    `from` counts reports. The trainable asks `rs.get_context().config_at(step, config)`.
    """
    framework: Framework = "data_parallel"
    """What sets up the workers: `data_parallel`, `torch`, `lightgbm`, `xgboost`, `tensorflow`, or a trainer.

    A trainer is named by its import path, `package.module:MyTrainer`: a class of Ray Train V2's
    `DataParallelTrainer`, or a function that makes one of the same arguments.
    """
    scaling: Scaling = Scaling()
    """The workers."""
    data: dict[str, DataAddress] = Field(default_factory=dict)
    """What it trains on, by a name: `{train: s3://bucket/flights/2013}`, paths or URLs of files or folders.

    For the model card, which says what lay there; the trainable takes what it reads from its config.
    """
    datasets: dict[str, DatasetSource] = Field(default_factory=dict)
    """Ray Data sets by name, of which each worker gets its part: `ray.train.get_dataset_shard(name)`."""
    warm_start_checkpoint: Annotated[str, Field(min_length=1)] | None = None
    """The URI of a checkpoint to start from."""
    max_failures: int = Field(default=1, ge=0)
    """How many times the run is retried after a failure."""
    failure: TrainFailure = TrainFailure()
    """How often it is retried after workers died, or nodes were taken away, and how soon."""
    stop: TrainStop = TrainStop()
    """When the run ends though its function has not returned; its last checkpoint is the model then."""
    storage_path: StoragePath = DEFAULT_STORAGE
    """Where the run is stored: a local path, or a URL of scheme file, s3, gs, az or memory."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Free labels; not part of the digest."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            trainable: str | Callable[..., Any] | None = None,
            command: Sequence[str | float] | None = None,
            program: ProgramSpec | Mapping[str, Any] | None = None,
            name: str = "train",
            config: Mapping[str, Any] = ...,
            schedule: Sequence[Mapping[str, Any] | ScheduledConfig] = ...,
            framework: str = "data_parallel",
            scaling: Scaling | Mapping[str, Any] | object = ...,
            data: Mapping[str, str] = ...,
            warm_start_checkpoint: str | None = None,
            datasets: Mapping[str, Any] = ...,
            max_failures: int = 1,
            failure: TrainFailure | Mapping[str, Any] = ...,
            stop: TrainStop | Mapping[str, Any] = ...,
            storage_path: str | os.PathLike[str] = "~/raysweep",
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return with_runner(given) if isinstance(given, Mapping) else given

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema (2020-12) of the JSON and YAML form. It accepts all that the model accepts."""
        return require_command(super().json_schema())

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """With `trainable`, or with `command` and `program`: the spec has one of the two."""
        fields: dict[str, Any] = write(self)
        fields.pop("trainable" if self.command is not None else "command", None)
        if self.command is None:
            fields.pop("program", None)
        return fields

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_command(self)
        if self.scaling.backend is not None:
            fix = "leave it out: framework says which trainer sets the workers up"
            raise Problem("is for the trials of a sweep", fix, ("scaling", "backend"))
        if self.scaling.by_config:
            fix = "leave it out, and give num_workers"
            raise Problem("is for the trials of a sweep", fix, ("scaling", "by_config"))
        if self.scaling.metrics != "rank0":
            fix = "leave it out: rank 0's metrics are the training's"
            raise Problem("is for the trials of a sweep", fix, ("scaling", "metrics"))
        return self
