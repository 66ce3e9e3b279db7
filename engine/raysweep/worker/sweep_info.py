"""The facts that a worker must know of its sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Self

from raysweep.documents.tuples import Tuples

if TYPE_CHECKING:
    from raysweep.specs import SweepSpec

_COUNTED: Final = "training_iteration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassOptions:
    """The options of a class of Ray Tune: see `spec.tune`."""

    checkpoint_frequency: int = 0
    checkpoint_at_end: bool = False
    reuse_actors: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerRoom:
    """The room of a trial beside its own process, for what it starts: bundles of its placement group."""

    bundles: tuple[Mapping[str, float], ...] = ()
    first: int = 0
    """The place of the first of them in the group; the others follow."""
    strategy: str = "PACK"
    data_cpus: int = 0
    """CPUs for Ray Data, in the bundle after them."""

    @property
    def data_bundle(self) -> int:
        """The place in the group of the bundle that Ray Data has, if `data_cpus`."""
        return self.first + len(self.bundles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rungs:
    """The times at which something is decided about a trial, as far as they are known beforehand."""

    attr: str = ""
    """The metric that is the time; empty: the number of the report, from 1."""
    times: tuple[float, ...] = ()
    """Sorted."""
    interval: float = 0.0
    """At each multiple of this, too; 0: there are no others."""
    below: float | None = None
    """Nothing is decided at this time and after it; None: there is no such time."""

    @classmethod
    def of(cls, spec: SweepSpec) -> Self:
        """Those of the scheduler below its `max_t`: a trial that comes as far ends by itself, as a rule.

        None where a trial is the driver of a Ray Train run, whose reports others make.
        """
        if spec.driver is not None:
            return cls()
        known = spec.scheduler.options.rung_times()
        times = (time for time in known.times if known.max_t is None or time < known.max_t)
        return cls(
            attr="" if known.attr == _COUNTED else known.attr,
            times=tuple(sorted(times)),
            interval=known.interval,
            below=known.max_t,
        )

    def __bool__(self) -> bool:
        """True if there are any."""
        return bool(self.times) or self.interval > 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlace:
    """Goes to a worker as JSON."""

    sweep_id: str
    storage_path: str
    resources: dict[str, float]
    is_sized: bool = False
    """They follow from the trial's config."""
    metric: str = ""
    """The metric that ranks the trials; empty: that is not known, or there is none (`is_ranked`)."""
    is_ranked: bool = True
    """True if there is a metric."""
    """Ranks the trial's checkpoints, and is what a number that a trainable returns is reported as."""
    ranks_by: str = ""
    """The metric that ranks the trial's checkpoints, where that is another."""
    upload: Literal["block", "latest"] = "block"
    upload_limit: float | None = None
    """See `specs.policies.CheckpointPolicy`."""
    tune: ClassOptions = ClassOptions()
    inner: InnerRoom = InnerRoom()
    reduced: tuple[str, ...] | None = None
    """Of a gang whose reports are reduced: which metrics, all if empty; None: rank 0's reports count."""
    limits: tuple[tuple[str, float | None, float | None, float | None], ...] = ()
    """See `StopPolicy.trial_limits`: a class of Ray Tune, which runs step by step, ends with the step that
    reaches one."""
    nested: tuple[str, ...] = ()
    """Names such as `eval/acc` that the spec has: metrics of a report `{"eval": {"acc": 1}}`, too."""
    filled: tuple[str, ...] = ()
    """Names of the spec that Ray Tune makes itself, such as `time_total_s`; see `worker.filled`."""
    tuples: Tuples = ()
    """The tuples of the search space, which are lists in a trial's config until the trainable gets it."""
    rungs: Rungs = Rungs()
    """The reports at which a trial of one process waits for a verdict; see `worker.rungs`."""
    begun_at: float = 0.0
    """The begin of the sweep, in Unix seconds."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables of the trackers, for what trials log themselves; `{trial}` is the trial's id,
    `{number}` its number with eight digits."""
    openers: tuple[str, ...] = ()
    """Functions, `module:name`, that open a trial's run at a tracker before it begins (`worker.tracking`)."""
    evaluations_ahead: int | None = None
    """The evaluations of its checkpoints that a trial may be ahead of; None: they are not evaluated."""
    validates: bool = False
    """True if the `validation_config` of the trial's trainer evaluates."""
    evaluation_resources: Mapping[str, float] = field(default_factory=dict)
    """The resources of one evaluation."""
