"""The spec of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from raysweep.documents import tune_objects
from raysweep.documents.digest import digest_of
from raysweep.documents.mode import Mode
from raysweep.documents.validation import Problem, show
from raysweep.from_tune.class_options import TuneOptions
from raysweep.from_tune.schedulers import with_own_scheduler
from raysweep.schedulers.spec import SchedulerSpec, check_scheduler
from raysweep.search.spec import SearchSpec
from raysweep.space.constraints import Constraint, Constraints, parse_constraints
from raysweep.space.parsed import Space, normalise, parse, space_to_json, uses
from raysweep.space.schema import space_schema, value_schema
from raysweep.space.where import Where, check_where
from raysweep.specs.checks import check_pair
from raysweep.specs.costs import check_costs
from raysweep.specs.default_search import can_learn
from raysweep.specs.document import DEFAULT_STORAGE, Name, SpecDocument, StoragePath, Trainable, anywhere
from raysweep.specs.identity import Kind
from raysweep.specs.objectives import METRIC_SCHEMA, MODE_SCHEMA, check_several, joined, split
from raysweep.specs.open_ended import check_end
from raysweep.specs.parameters import check_command, require_command
from raysweep.specs.points import Points, check_points
from raysweep.specs.policies import CheckpointPolicy, FailurePolicy, StopPolicy
from raysweep.specs.program import Command, ProgramSpec, with_runner
from raysweep.specs.repeat import RepeatSpec, check_repeat
from raysweep.specs.resources import Resources, resources_of, resources_of_wrapped
from raysweep.specs.resources_by_config import check_by_config
from raysweep.specs.scaling import Scaling
from raysweep.specs.warm_start import Memory, WarmStartFrom, check_memory

if TYPE_CHECKING:
    import os

Isolation = Literal["worker", "process", "actor", "inline"]
ParamSpace = Annotated[
    dict[str, Any],
    BeforeValidator(normalise),
    PlainSerializer(space_to_json, return_type=dict[str, Any]),
    WithJsonSchema(
        {"type": "object"}
    ),  # json_schema() puts space_schema() here: pydantic knows no foreign $ref
]


class SweepSpec(SpecDocument):
    """What one sweep searches, how, and on what. Frozen; all invalid input raises SpecError."""

    kind: ClassVar[Kind] = "sweep"
    renamed_fields: ClassVar[dict[str, str]] = {
        "config": "param_space",
        "space": "param_space",
        "params": "param_space",
        "direction": "mode",
        "objective": "metric",
        "n_trials": "num_samples",
        "num_trials": "num_samples",
        "resources_per_trial": "resources",
        "scaling_config": "scaling",
        "num_workers": "scaling.num_workers",
        "points_to_evaluate": "points",
        "search_alg": "search",
        "searcher": "search",
        "max_concurrent": "max_concurrent_trials",
        "local_dir": "storage_path",
        "storage": "storage_path",
        "max_retries": "failure.max_failures",
        "fail_fast": "failure.breaker_trials",
        "run_or_experiment": "trainable",
        "cmd": "command",
        "entrypoint": "command",
    }

    name: Name
    """The sweep's name; its id starts with it."""
    trainable: Trainable
    """What a trial runs: an import path `package.module:function`, or in Python a callable; or `command`."""
    command: Command | None = None
    """A program that a trial runs, in place of `trainable`: `[python, train.py, --lr, "{lr}", "{args}"]`.

    Placeholders stand for parameters and for `{args}`, `{config_file}`, `{number}`, `{seed}` and others.
    """
    program: ProgramSpec | None = None
    """How `command` gets its config, where its metrics and checkpoints are, and how it is ended."""
    param_space: ParamSpace
    """The search space: a mapping of names to domains, constants and nested mappings."""
    metric: Annotated[str, Field(min_length=1), WithJsonSchema(METRIC_SCHEMA)]
    """Which reported value ranks the trials.

    Several, such as `[auc, latency_ms]`, have a Pareto front; the first one ranks, and is what stands here.
    """
    mode: Annotated[Mode, WithJsonSchema(MODE_SCHEMA)]
    """Whether the metric is better when it is larger (`max`) or smaller (`min`).

    Of several one for each, in their order; here is then that of the first.
    """
    others: dict[str, Mode] = Field(default_factory=dict)
    """The metrics after the first, by name, each with its mode; written as lists of `metric` and `mode`."""
    constraints: Constraints = ()
    """What a trial's metrics have to satisfy to be the best: `["latency_ms <= 20"]`."""
    num_samples: Annotated[int, Field(ge=1)] | None = 1
    """How many configs are drawn; with a grid, each grid point runs `num_samples` times.

    None (null): as many as there is time for, until a limit in `stop` ends the sweep.
    """
    repeat: RepeatSpec | None = None
    """How many times each config runs, each time with another seed; `num_samples` counts configs.

    The search is told the mean, and the best config is the one with the best mean; or `{times, race}`.
    """
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Makes the configs repeatable; default: drawn once and stored with the sweep."""
    resources: Resources = Resources()
    """What one trial takes."""
    scaling: Scaling | None = None
    """Makes each trial a gang of workers, placed at once or not at all; in place of `resources`."""
    isolation: Isolation | None = None
    """Where a trial runs: `worker` (in a warm worker), `process` (a forked child) or `actor` (a fresh actor).

    Or `inline`: in the process that runs the sweep, one at a time, for a debugger.
    Default: `process` where a trial takes GPUs, else `worker`; `worker` with `resources.train`.
    """
    where: Where = ()
    """Relations that each config satisfies: `["min_lr < max_lr"]`."""
    search: SearchSpec = SearchSpec()
    """How configs are found."""
    points: Points = ()
    """Configs that run first, whatever the search; parameters that one leaves out are drawn."""
    scheduler: SchedulerSpec = SchedulerSpec()
    """Which trials are stopped early."""
    score: Literal["last", "best"] = "last"
    """Which report of a trial ranks it: its last, or its best."""
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None
    """The most trials that run at once; default: as many as the cluster holds."""
    autoscaled: bool = False
    """The cluster adds nodes on demand (KubeRay, `ray up`): ask for workers also where no node has room now.

    As many as `max_concurrent_trials`, which must be set.
    """
    failure: FailurePolicy = FailurePolicy()
    """What is done when trials fail."""
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    """Which checkpoints are kept."""
    stop: StopPolicy = StopPolicy()
    """When trials, or the sweep, end early."""
    warm_start: WarmStartFrom = None
    """What it starts from: `champion`, `last` (night) or a number of nights; same name and storage path.

    The champion is run again first; of earlier nights all trials that fit the space are told to the search.
    Or `{"nights": 14, "anchors": 4}`: as far as some of their configs, run again, show that they still hold.
    """
    tune: TuneOptions = TuneOptions()
    """How a class of Ray Tune runs: when it makes checkpoints, whether it is used again."""
    storage_path: StoragePath = DEFAULT_STORAGE
    """Where the sweep is stored: a local path, or a URL of scheme file, s3, gs, az or memory."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Free labels; not part of the digest."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            name: str,
            trainable: str | Callable[..., Any] | None = None,
            command: Sequence[str | float] | None = None,
            program: ProgramSpec | Mapping[str, Any] | None = None,
            param_space: Mapping[str, Any],
            metric: str | Sequence[str],
            mode: str | Sequence[str],
            others: Mapping[str, str] = ...,
            constraints: str | Sequence[str] = (),
            num_samples: int | None = 1,
            repeat: int | Mapping[str, Any] | None = None,
            seed: int | None = None,
            resources: Resources | Mapping[str, Any] | object = ...,
            scaling: Scaling | Mapping[str, Any] | object | None = None,
            isolation: str | None = None,
            where: str | Sequence[str] = (),
            search: SearchSpec | str | type | Mapping[Any, Any] = ...,
            points: Sequence[Mapping[str, Any]] = (),
            scheduler: SchedulerSpec | str | type | Mapping[Any, Any] | object = ...,
            score: str = "last",
            max_concurrent_trials: int | None = None,
            autoscaled: bool = False,
            failure: FailurePolicy | Mapping[str, Any] = ...,
            checkpoint: CheckpointPolicy | Mapping[str, Any] = ...,
            stop: StopPolicy | Mapping[str, Any] = ...,
            warm_start: str | int | Memory | Mapping[str, Any] | None = None,
            tune: TuneOptions | Mapping[str, Any] = ...,
            storage_path: str | os.PathLike[str] = "~/raysweep",
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        """What `tune.with_resources` asks for becomes `resources`, a scheduler of Ray's one of raysweep's;
        several metrics are taken apart."""
        if not isinstance(given, Mapping):
            return given
        given = split(with_own_scheduler(with_runner(given)))
        trainable = given.get("trainable")
        asked = tune_objects.resources_of(trainable)
        if asked is None:
            return given
        fields = {**given, "trainable": tune_objects.without_resources(trainable)}
        return fields | {"resources": resources_of_wrapped(asked, given.get("resources"))}

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.__dict__["search"] = self.search.opened(learns=can_learn(self))
        if self.search.options.needs_grid and not uses(self.param_space, "grid_search"):
            raise Problem(
                f"{self.search.kind!r} needs a grid_search in param_space",
                'write {"grid_search": [...]} for a parameter, or search: random',
                ("search",),
            )
        check_command(self)
        check_pair(self)
        self._check_scaling()
        self._check_train()
        check_several(self)
        check_costs(self)
        check_where(self.where, self.param_space)
        if self.where and self.search.options.is_listed:
            raise Problem("has no say in a list of configs", "leave it out", ("where",))
        check_by_config(self)
        check_end(self)
        check_repeat(self)
        check_points(self.points, self.search, self.param_space, self.num_samples)
        check_memory(self)
        check_scheduler(self.scheduler, self.param_space, self.num_samples, self.max_concurrent_trials)
        if self.isolation == "inline" and self.max_concurrent_trials != 1:
            raise Problem(
                f"{show(self.max_concurrent_trials)} trials at once cannot run inline, in one process",
                "set max_concurrent_trials: 1, or another isolation",
                ("max_concurrent_trials",),
            )
        if self.isolation == "inline" and self.resources.pin_cpus:
            why = "an inline trial runs where the process that runs the sweep does"
            raise Problem(why, "leave it out, or choose another isolation", ("resources", "pin_cpus"))
        if self.autoscaled and self.max_concurrent_trials is None:
            raise Problem(
                "nothing says how far the cluster is to grow",
                "set max_concurrent_trials to the number of trials to run at once",
                ("autoscaled",),
            )
        return self

    def _check_scaling(self) -> None:
        if self.scaling is None:
            return
        if self.scaling.min_workers is not None:
            raise Problem(
                "may not be a range in a sweep: a gang is placed whole or not at all",
                "give one number of workers",
                ("scaling", "num_workers"),
            )
        if self.resources != Resources():
            raise Problem(
                "scaling says already what a trial takes",
                "remove resources, and give what each worker takes as scaling.resources_per_worker",
                ("resources",),
            )
        if self.isolation == "inline":
            raise Problem(
                "inline is one process, and a gang is several",
                "use worker, process (each trial in fresh processes) or actor",
                ("isolation",),
            )
        if self.isolation == "worker" and self.scaling.backend == "tensorflow":
            raise Problem(
                "worker keeps processes from trial to trial, and TensorFlow's servers end only with theirs",
                "use process (the default with tensorflow), which imports TensorFlow once for all trials, or"
                " actor",
                ("isolation",),
            )

    def _check_train(self) -> None:
        if self.resources.train is None or self.isolation not in ("process", "inline"):
            return
        why = (
            "a forked process has no Ray"
            if self.isolation == "process"
            else "inline trials hold no resources"
        )
        raise Problem(
            f"{why}, which resources.train needs: the trial starts its workers by it",
            "use worker, or actor (a fresh process for each trial)",
            ("isolation",),
        )

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        fields.pop("trainable" if self.command is not None else "command", None)
        if self.command is None:
            fields.pop("program", None)
        return joined(fields, self.others)

    def digest(self) -> str:
        """32 hex digits over everything except tags and storage path: equal specs have equal digests.

        A search that is left open counts as such, and not as the kind that it is by the number of samples.
        """
        fields = self.to_dict()
        fields["resources"].pop("gpu_part", None)  # what a cluster has made of gpu_memory
        return digest_of(anywhere(fields))

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, validated as a whole; `metric` stands for all metrics."""
        return super().replace(**({"others": {}} if "metric" in changes else {}), **changes)

    def settled_by(self, stored: SweepSpec) -> Self:
        """This spec, with what it leaves open as the stored sweep has it."""
        settled = {
            name: getattr(self, name).settled_by(getattr(stored, name)) for name in ("search", "resources")
        }
        changed = {name: value for name, value in settled.items() if value is not getattr(self, name)}
        return self.replace(**changed) if changed else self

    @property
    def is_open_ended(self) -> bool:
        """Whether only a limit ends it: no number of samples, and a search that goes on without one."""
        return self.num_samples is None and not self.search.options.is_listed

    @property
    def effective_isolation(self) -> Isolation:
        """`isolation`, or its default for these resources."""
        if self.isolation is not None:
            return self.isolation
        if self.scaling is not None and self.scaling.backend == "tensorflow":
            return "process"
        resources = self.trial_resources
        return "process" if self.may_have_gpus and resources.train is None else "worker"

    @property
    def is_inline(self) -> bool:
        """Whether trials run in the process that runs the sweep, where they hold nothing of the cluster."""
        return self.isolation == "inline"

    @property
    def may_have_gpus(self) -> bool:
        """Whether trials, or some of them, take GPUs."""
        return self.trial_resources.total_gpus > 0 or self.resources.by_config.gpu is not None

    @cached_property
    def trial_resources(self) -> Resources:
        """What one trial takes, with all its workers."""
        return self.resources if self.scaling is None else resources_of(self.scaling)

    @property
    def compared(self) -> tuple[str, Mode]:
        """The metric by which the scheduler compares trials, and its mode."""
        comparing = self.scheduler.comparing
        options = comparing[1] if comparing is not None else None
        if options is None or options.metric is None:
            return self.metric, self.mode
        mode = options.mode or self.objectives.get(options.metric)
        return options.metric, mode or self.mode

    @property
    def objectives(self) -> dict[str, Mode]:
        """All metrics with their modes, in their order."""
        return {self.metric: self.mode, **self.others}

    @cached_property
    def parsed_constraints(self) -> tuple[Constraint, ...]:
        """`constraints`, parsed."""
        return parse_constraints(self.constraints)

    @property
    def space(self) -> Space:
        """`param_space`, parsed. Raises TrainableImportError for a `sample_from` that cannot be imported."""
        return parse(self.param_space, self.where)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema (2020-12) of the JSON and YAML form. It accepts all that the model accepts."""
        schema = super().json_schema()
        schema["properties"]["param_space"].update(space_schema())
        schema["$defs"]["SpaceValue"] = value_schema()
        return require_command(schema)
