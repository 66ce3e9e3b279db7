"""The fields of a sweep's spec, and the values that follow from them alone.

`specs.checks` has functions over these fields; `specs.sweep.SweepSpec` runs them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from raysweep.documents.json_values import leaves
from raysweep.documents.mode import Mode
from raysweep.from_tune.class_options import TuneOptions
from raysweep.hooks.spec import Callbacks
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.search.spec import SearchSpec
from raysweep.space.amounts import USUAL, Need, Needs
from raysweep.space.constraints import Constraints
from raysweep.space.parsed import is_domain
from raysweep.space.scales import Scale, ScaleField, ScalesField, without_share
from raysweep.space.where import Where
from raysweep.specs.document import DEFAULT_STORAGE, Name, SpecDocument, StoragePath, Trainable
from raysweep.specs.identity import Kind
from raysweep.specs.policies import CheckpointPolicy, FailurePolicy, StopPolicy
from raysweep.specs.sweep_parts import (
    METRIC_SCHEMA,
    MODE_SCHEMA,
    IsolationSpec,
    ParamSpace,
    Points,
    RepeatSpec,
    ShareSpec,
    WarmStartFrom,
)
from raysweep.specs.trial.command import Command
from raysweep.specs.trial.evaluate import Evaluate
from raysweep.specs.trial.program import ProgramSpec
from raysweep.specs.trial.resources import Resources, resources_of
from raysweep.specs.trial.scaling import Driver, Scaling
from raysweep.specs.trial.shape import Shape

_RAY_NAMES: Final = {"cpu": "CPU", "gpu": "GPU"}


class SweepFields(SpecDocument):
    """The fields of `SweepSpec`, checked one by one."""

    model_config = ConfigDict(defer_build=True)  # `SweepSpec` is the model that documents are read by

    kind: ClassVar[Kind] = "sweep"
    renamed_fields: ClassVar[dict[str, str]] = {
        "config": "param_space",
        "space": "param_space",
        "params": "param_space",
        "direction": "mode",
        "objective": "metric",
        "n_trials": "num_samples",
        "num_trials": "num_samples",
        "local_dir": "storage_path",
        "storage": "storage_path",
        "loggers": "callbacks",
        "max_retries": "failure.max_failures",
        "fail_fast": "failure.breaker_trials",
        "run_or_experiment": "trainable",
        "cmd": "command",
        "entrypoint": "command",
    }

    name: Name
    """The sweep's name; its id starts with it."""
    trainable: Trainable
    """Code of a trial: an import path `package.module:function`, or in Python a callable; or `command`."""
    command: Command | None = None
    """A program that a trial runs, in place of `trainable`: `[python, train.py, --lr, "{lr}", "{args}"]`.

    Placeholders stand for parameters and for `{args}`, `{config_file}`, `{number}`, `{seed}` and others.
    """
    program: ProgramSpec | None = None
    """The rules for `command`: its config, its metrics and checkpoints, and its end."""
    param_space: ParamSpace
    """The search space: a mapping of names to domains, constants and nested mappings."""
    metric: Annotated[str, WithJsonSchema(METRIC_SCHEMA)] = ""
    """The reported value that ranks the trials; default: none is ranked, and every config just runs.

    Several, such as `[auc, latency_ms]`, have a Pareto front; the first one ranks, and is what stands here.
    """
    mode: Annotated[Mode, WithJsonSchema(MODE_SCHEMA)] = "min"
    """The direction that is better: larger (`max`) or smaller (`min`); required with a metric.

    Of several one for each, in their order; here is then that of the first.
    """
    scale: ScaleField = Field(default_factory=dict)
    """The size at which all trials run, by names of your own: `{rows: 80000}`. Each config has these values.

    A training says its own; by the two, `transfer` carries parameters from one to the other.
    """
    scales: ScalesField = ()
    """Several such sizes, each with a `share` of `num_samples`: `[{rows: 20000}, {rows: 40000, share: 0.5}]`.

    The smaller ones run first, the larger ones begin with the best of those. The best trial is one of the
    largest. Without `share`, each gets an equal part of the rest.
    """
    others: dict[str, Mode] = Field(default_factory=dict)
    """The metrics after the first, by name, each with its mode; written as lists of `metric` and `mode`."""
    constraints: Constraints = ()
    """Constraints on a trial's metrics to be the best: `["latency_ms <= 20"]`."""
    num_samples: Annotated[int, Field(ge=1)] | None = 1
    """The number of configs to draw; with a grid, each grid point runs `num_samples` times.

    None (null): as many as there is time for, until a limit in `stop` ends the sweep.
    """
    repeat: RepeatSpec | None = None
    """The number of runs of each config, each with another seed; `num_samples` counts configs.

    The search is told the mean, and the best config is the one with the best mean; or `{times, race}`.
    """
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Makes the configs repeatable; default: drawn once and stored with the sweep."""
    resources: Resources = Resources()
    """The resources of one trial."""
    scaling: Scaling | None = None
    """Gives each trial several workers, placed at once or not at all; in place of `resources`.

    The trainable runs in each of them; with `scaling.driver`, it runs once and starts them by Ray Train.
    """
    isolation: IsolationSpec | None = None
    """Place of a trial: `worker` (in a warm worker), `process` (a forked child) or `actor` (a fresh actor).

    `{worker: {max_trials: 50}}` replaces a worker after 50 trials, and after any that failed.
    Or `inline`: in the process that runs the sweep, one at a time, for a debugger.
    Default: `process` where a trial takes GPUs, else `worker`; `worker` with `scaling.driver`.
    """
    where: Where = ()
    """Relations that each config satisfies: `["min_lr < max_lr"]`."""
    search: SearchSpec = SearchSpec()
    """The search for configs."""
    points: Points = ()
    """Configs that run first, whatever the search; parameters that one leaves out are drawn."""
    scheduler: SchedulerSpec = SchedulerSpec()
    """The rule that stops trials early."""
    score: Literal["last", "best"] = "last"
    """The report of a trial that ranks it: its last, or its best."""
    max_concurrent_trials: Annotated[int, Field(ge=1)] | None = None
    """The most trials that run at once; default: as many as the cluster holds."""
    autoscaled: bool = False
    """The cluster adds nodes on demand (KubeRay, `ray up`): ask for workers also where no node has room now.

    As many as `max_concurrent_trials`, which must be set.
    """
    share: ShareSpec | None = None
    """Shares the cluster with the other sweeps that have this field, by weight and priority.

    Default: it takes the slots that it gets and keeps them. It is not part of the digest.
    """
    failure: FailurePolicy = FailurePolicy()
    """The policy for failures of trials."""
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    """The policy for checkpoints."""
    stop: StopPolicy = StopPolicy()
    """The rules that end trials, or the sweep, early."""
    warm_start: WarmStartFrom = None
    """Earlier runs to start from: `champion`, `last` (night) or a number; same name and storage path.

    The champion is run again first; of earlier nights all trials that fit the space are told to the search.
    Or `{"nights": 14, "anchors": 4}`: as far as some of their configs, run again, show that they still hold.
    """
    tune: TuneOptions = TuneOptions()
    """Options of a class of Ray Tune: when it makes checkpoints, and if it is used again."""
    callbacks: Callbacks = ()
    """Callbacks as the sweep runs, beside it: trackers, and classes of your own by import path.

    For example `[mlflow, {webhook: {url_from: SLACK_URL}}, "my_module:Mine"]`. They are not part of the
    digest, and may change whenever the sweep is resumed.
    """
    evaluate: Evaluate = None
    """The evaluation of the trials' checkpoints apart from training, in resources of its own."""
    storage_path: StoragePath = DEFAULT_STORAGE
    """The storage of the sweep: a local path, or a URL of scheme file, s3, gs, az or memory."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Free labels; not part of the digest."""

    @property
    def is_open_ended(self) -> bool:
        """True if only a limit ends it: no number of samples, and a search that continues without one."""
        return self.num_samples is None and not self.search.options.is_listed

    @cached_property
    def trial_resources(self) -> Resources:
        """The resources of one trial, with all its workers."""
        return self.resources if self.scaling is None else resources_of(self.scaling)

    @cached_property
    def shape(self) -> Shape:
        """The placement group of a usual trial."""
        return self.shape_for(USUAL)

    def shape_for(self, needs: Needs) -> Shape:
        """The placement group of a trial with these needs."""
        return self.trial_resources.shape(needs, is_gang=self.gang is not None)

    @property
    def gang(self) -> Scaling | None:
        """`scaling`, where the trainable runs in each worker."""
        return None if self.scaling is None or self.scaling.driver is not None else self.scaling

    @property
    def driver(self) -> Driver | None:
        """The driver of a Ray Train run that each trial is; None: it is none."""
        return None if self.scaling is None else self.scaling.driver

    @property
    def needs(self) -> tuple[Need, ...]:
        """The amounts of a trial that depend on its config."""
        return self.resources.needs if self.scaling is None else (*self.resources.needs, *self.scaling.needs)

    @property
    def use_per_slot_hour(self) -> dict[str, float]:
        """The use of one slot in an hour, of what a budget counts: `cpu_hours`, `gpu_hours`, `cost`."""
        total = self.shape.total
        prices = {_RAY_NAMES.get(name, name): price for name, price in self.stop.cost_per_hour.items()}
        cost = sum(amount * prices.get(name, 0.0) for name, amount in total.items())
        return {"cpu_hours": total.get("CPU", 0.0), "gpu_hours": total.get("GPU", 0.0), "cost": cost}

    @property
    def objectives(self) -> dict[str, Mode]:
        """All metrics with their modes, in their order."""
        return {self.metric: self.mode, **self.others} if self.metric else {}

    @property
    def is_ranked(self) -> bool:
        """True if a metric ranks the trials."""
        return bool(self.metric)

    @cached_property
    def proxy_scales(self) -> tuple[dict[str, float], ...]:
        """The values of all its scales, the smallest first; empty where it names none."""
        return (self.scale,) if self.scale else tuple(map(without_share, self.scales))

    @property
    def has_several_scales(self) -> bool:
        """True if its trials have different scales."""
        return len(self.proxy_scales) > 1

    @property
    def largest_scale(self) -> dict[str, float]:
        """The scale of its best trial; empty where it names none."""
        return self.proxy_scales[-1] if self.proxy_scales else {}

    @cached_property
    def config_space(self) -> dict[str, Any]:
        """`param_space`, and beside its parameters the scales that a config can have."""
        values = {name: [each[name] for each in self.proxy_scales] for name in self.largest_scale}
        return self.param_space | {name: {"choice": list(dict.fromkeys(all))} for name, all in values.items()}

    @property
    def full_scales(self) -> tuple[dict[str, float], ...]:
        """`proxy_scales`, each with the number of workers as rules name it."""
        if self.scaling is not None and self.scaling.by_config.num_workers is not None:
            return self.proxy_scales  # as the config says
        workers = 1 if self.scaling is None else self.scaling.max_workers
        return tuple({"workers": workers, **each} for each in self.proxy_scales or ({},))

    def space_at(self, scale: Scale) -> dict[str, Any]:
        """`param_space` with the values of one scale as constants."""
        return {**self.param_space, **scale}

    @property
    def parameter_paths(self) -> list[str]:
        """The dotted paths of its configs; those inside a branch have the branch's path."""
        return [path for path, _ in leaves(self.config_space, is_leaf=is_domain)]
