"""The spec of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pydantic import (
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from raysweep.documents.code import tune_objects
from raysweep.documents.digest import digest_of
from raysweep.documents.mode import Mode
from raysweep.from_tune.class_options import TuneOptions
from raysweep.from_tune.schedulers import with_own_scheduler
from raysweep.hooks.spec import with_masked
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.search.spec import SearchSpec
from raysweep.space.constraints import Constraint, parse_constraints
from raysweep.space.parsed import Space, parse
from raysweep.space.schema import space_schema, value_schema
from raysweep.specs.checks.search import can_learn
from raysweep.specs.checks.sweep import check_sweep
from raysweep.specs.document import anywhere
from raysweep.specs.policies import CheckpointPolicy, FailurePolicy, StopPolicy
from raysweep.specs.sweep_fields import SweepFields
from raysweep.specs.sweep_parts import (
    Isolation,
    Memory,
    ShareSpec,
    WorkerIsolation,
    join_metrics,
    split_metrics,
    with_goal,
)
from raysweep.specs.trial.evaluate import EvaluateSpec
from raysweep.specs.trial.program import ProgramSpec, require_command, with_runner
from raysweep.specs.trial.resources import Resources, resources_of_wrapped
from raysweep.specs.trial.scaling import Scaling

if TYPE_CHECKING:
    import os


class SweepSpec(SweepFields):
    """The spec of one sweep: its space, its search, its resources. Frozen; invalid input raises SpecError."""

    model_config = ConfigDict(defer_build=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            trainable: str | Callable[..., Any] | None = None,
            command: Sequence[str | float] | None = None,
            program: ProgramSpec | Mapping[str, Any] | None = None,
            param_space: Mapping[str, Any],
            metric: str | Sequence[str] | None = None,
            mode: str | Sequence[str] | None = None,
            others: Mapping[str, str] = ...,
            constraints: str | Sequence[str] = (),
            scale: Mapping[str, float] = ...,
            scales: Sequence[Mapping[str, float]] = (),
            num_samples: int | None = 1,
            repeat: int | Mapping[str, Any] | None = None,
            seed: int | None = None,
            resources: Resources | Mapping[str, Any] | object = ...,
            scaling: Scaling | Mapping[str, Any] | object | None = None,
            isolation: str | Mapping[str, Any] | None = None,
            where: str | Sequence[str] = (),
            search: SearchSpec | str | type | Mapping[Any, Any] = ...,
            points: Sequence[Mapping[str, Any]] = (),
            scheduler: SchedulerSpec | str | type | Mapping[Any, Any] | object = ...,
            score: str = "last",
            max_concurrent_trials: int | None = None,
            autoscaled: bool = False,
            share: ShareSpec | Mapping[str, Any] | None = None,
            failure: FailurePolicy | Mapping[str, Any] = ...,
            checkpoint: CheckpointPolicy | Mapping[str, Any] = ...,
            stop: StopPolicy | Mapping[str, Any] = ...,
            warm_start: str | int | Memory | Mapping[str, Any] | None = None,
            tune: TuneOptions | Mapping[str, Any] = ...,
            callbacks: Sequence[object] = (),
            evaluate: EvaluateSpec | Callable[..., Any] | str | Mapping[str, Any] | None = None,
            storage_path: str | os.PathLike[str] = "~/raysweep",
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """Turn `tune.with_resources` into `resources`, and a scheduler of Ray's into one of raysweep's; take
        several metrics apart."""
        if not isinstance(given, Mapping):
            return given
        given = split_metrics(with_own_scheduler(with_runner(given)))
        if given.keys() <= cls.model_fields.keys():  # else the unknown field is named, not what it left out
            given = with_goal(given)
        trainable = given.get("trainable")
        asked = tune_objects.resources_of(trainable)
        if asked is None:
            return given
        fields = {**given, "trainable": tune_objects.without_resources(trainable)}
        return fields | {"resources": resources_of_wrapped(asked, given.get("resources"))}

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.__dict__["search"] = self.search.opened(learns=can_learn(self))
        check_sweep(self)
        return self

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        fields.pop("trainable" if self.command is not None else "command", None)
        if self.command is None:
            fields.pop("program", None)
        if not self.callbacks:
            fields.pop("callbacks", None)
        if self.evaluate is None:
            fields.pop("evaluate", None)
        if self.share is None:
            fields.pop("share", None)
        for name in ("scale", "scales"):
            if not getattr(self, name):
                fields.pop(name, None)
        return join_metrics(fields, self.others)

    def to_stored(self) -> dict[str, Any]:
        """As `to_dict`, for the storage: the secrets of callbacks are masked."""
        return with_masked(self.to_dict(), self.callbacks)

    def digest(self) -> str:
        """32 hex digits over all but tags, callbacks, share and storage path: equal for equal specs.

        A search that is left open counts as such, and not as the kind that it is by the number of samples.
        """
        fields = self.to_dict()
        fields["resources"].pop("gpu_part", None)  # what a cluster has made of gpu_memory
        return digest_of(anywhere(fields))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated as a whole; `metric` stands for all metrics."""
        if "metric" in changes:
            changes = {"others": {}} | changes
        elif not self.is_ranked:
            changes = {"metric": None, "mode": None} | changes
        return super().replace(**changes)

    def settled_by(self, stored: SweepSpec) -> Self:
        """This spec, with what it leaves open as the stored sweep has it."""
        settled = {
            name: getattr(self, name).settled_by(getattr(stored, name)) for name in ("search", "resources")
        }
        changed = {name: value for name, value in settled.items() if value is not getattr(self, name)}
        return self.replace(**changed) if changed else self

    @property
    def effective_isolation(self) -> Isolation:
        """`isolation`, or its default for these resources."""
        if self.isolation is not None:
            return "worker" if isinstance(self.isolation, WorkerIsolation) else self.isolation
        if self.scaling is not None and self.scaling.backend == "tensorflow":
            return "process"
        return "process" if self.may_have_gpus and self.driver is None else "worker"

    @property
    def worker_max_trials(self) -> int | None:
        """After how many trials a worker is replaced; None: never for that reason."""
        return self.isolation.worker.max_trials if isinstance(self.isolation, WorkerIsolation) else None

    @property
    def is_inline(self) -> bool:
        """True if trials run in the process that runs the sweep, where they hold nothing of the cluster."""
        return self.isolation == "inline"

    @property
    def may_have_gpus(self) -> bool:
        """True if trials, or some of them, take GPUs."""
        return "GPU" in self.shape.total or any(need.name == "gpu" for need in self.needs)

    @property
    def compared(self) -> tuple[str, Mode]:
        """The metric by which the scheduler compares trials, and its mode."""
        comparing = self.scheduler.comparing
        options = comparing[1] if comparing is not None else None
        if options is None or options.metric is None:
            return self.metric, self.mode
        mode = options.mode or self.objectives.get(options.metric)
        return options.metric, mode or self.mode

    @cached_property
    def parsed_constraints(self) -> tuple[Constraint, ...]:
        """`constraints`, parsed."""
        return parse_constraints(self.constraints)

    @property
    def space(self) -> Space:
        """`config_space`, parsed. Raises TrainableImportError for a `sample_from` that cannot be imported."""
        return parse(self.config_space, self.where)

    @property
    def parameter_space(self) -> Space:
        """`param_space` alone, parsed: without scales and `where`. Raises as `space`."""
        return parse(self.param_space)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema (2020-12) of the JSON and YAML form. It accepts all that the model accepts."""
        schema = super().json_schema()
        schema["properties"]["param_space"].update(space_schema())
        schema["$defs"]["SpaceValue"] = value_schema()
        return require_command(schema)
