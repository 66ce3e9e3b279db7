"""The workers of one training run, or of each trial that is a gang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from raysweep.documents.base import SpecModel
from raysweep.documents.code import ray_objects
from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.space.amounts import Need, parse_amount
from raysweep.specs.trial.bundles import Amount, ProcessResources
from raysweep.specs.trial.resources_by_config import ScalingByConfig
from raysweep.specs.trial.shape import Strategy

Backend = Literal["torch", "gloo", "nccl", "tensorflow", "horovod"]
ProcessGroup = Literal["gloo", "nccl", "tensorflow", "horovod"]
Reduction = Literal["rank0", "mean", "sum", "max", "min", "each"]


def check_pinned(cpus: float) -> None:
    """Raises Problem where a process has no whole CPUs to be pinned to."""
    if cpus < 1 or cpus % 1:
        raise Problem(f"a process with {cpus:g} CPUs cannot be pinned", "give whole CPUs", ("pin_cpus",))


_HALF: Final = 0.5
"""With more of a GPU than this, two workers do not share it."""


def torch_group(gpus: float) -> Literal["gloo", "nccl"]:
    """The process group of `backend: torch` for workers that have so many GPUs each."""
    # Ranks that share a device cannot meet through NCCL.
    return "nccl" if gpus and gpus.is_integer() else "gloo"


def _backend(given: Any) -> Any:
    """Also Ray's `TorchConfig`. One that is not known is refused by its name."""
    if ray_objects.is_torch_config(given):
        return ray_objects.torch_backend(given)
    if isinstance(given, str) and given not in (known := get_args(Backend)):
        fix = f"{did_you_mean(given, known)}; with null the trainable sets its own up from get_context()"
        raise Problem(f"{show(given)} is not known here", fix)
    return given


def _metrics(given: Any) -> Any:
    """One reduction for all metrics, or one by name. What is not known is refused by its name."""
    known = get_args(Reduction)
    if isinstance(given, str):
        if given not in known:
            raise Problem(f"{show(given)} is not known here", did_you_mean(given, known))
        return given
    if not isinstance(given, Mapping):
        fix = f'write {", ".join(known)}, or one of these by metric: {{"loss": "mean"}}'
        raise Problem(f"{show(given)} is not a way to reduce metrics", fix)
    if not given:
        raise Problem("names no metric", 'name one: {"loss": "mean"}, or leave metrics out')
    for name, how in given.items():
        if not isinstance(name, str) or not name:
            raise Problem(f"{show(name)} is not a name of a metric", 'write names: {"loss": "mean"}')
        if how not in known:
            raise Problem(f"{show(how)} is not known here", did_you_mean(str(how), known), (name,))
    return dict(given)


def _number_of_workers(given: Any) -> int | tuple[int, int]:
    """One number, or a range of two. Not validated as a union: its errors would name the branches."""
    if not isinstance(given, list | tuple):
        return _count(given)
    if len(given) != 2:
        raise Problem(f"expected a number or two, got {show(given)}", "write 4, or a range: [2, 8]")
    least, most = (_count(number) for number in given)
    if least > most:
        raise Problem(f"{show(given)} is not a range", "write the smaller number first: [2, 8]")
    return least, most


def _count(given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise Problem(f"expected a whole number, got {show(given)}", "write 4, or a range: [2, 8]")
    if given < 1:
        raise Problem(f"must be >= 1, got {given}", "give a number >= 1")
    return given


_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
_RANGE: dict[str, Any] = {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2}
Workers = Annotated[
    int | tuple[int, int],
    PlainValidator(_number_of_workers),
    PlainSerializer(lambda given: list(given) if isinstance(given, tuple) else given),
    WithJsonSchema({"anyOf": [_COUNT, _RANGE]}),
]


class Driver(ProcessResources):
    """The process of a trial that starts its workers by Ray Train's `trainer.fit()`: what it takes itself."""

    renamed_fields: ClassVar[dict[str, str]] = {
        **ProcessResources.renamed_fields,
        "labels": "label_selector",
        "data_num_cpus": "data_cpus",
        "num_data_cpus": "data_cpus",
        "cpus_for_data": "data_cpus",
        "dataset_cpus": "data_cpus",
        "datasets_cpus": "data_cpus",
        "data_workers": "data_cpus",
        "dataset_workers": "data_cpus",
        "datasets": "data_cpus",
    }

    cpu: Amount = 0.0
    """CPUs of the driver itself; fractions allowed."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the driver's node must have, in place of `scaling.label_selector`."""
    data_cpus: int = Field(default=0, ge=0)
    """The CPUs of one node that are held for Ray Data: the trainer's `datasets`, and the trial's own reads.

    At least one for each data set. Without, a trainer with `datasets` is refused.
    """

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if self.label_selector and not self.to_bundle():
            fix = "give it something of that node, such as memory: 500000000"
            raise Problem("requires a driver that takes something", fix, ("label_selector",))
        return self


class Scaling(SpecModel):
    """The workers of one training run, or of each trial of a sweep.

    Also made from a `ray.train.ScalingConfig`.
    """

    renamed_fields: ClassVar[dict[str, str]] = {
        "workers": "num_workers",
        "strategy": "placement_strategy",
        "labels": "label_selector",
        "min_workers": "scaling.num_workers: [2, 8]",
        "data_cpus": "scaling.driver.data_cpus",
    }

    num_workers: Workers = 1
    """Number of workers that train together; in a training also a range, `[2, 8]`: as many as have room."""
    resize_interval_s: float | None = Field(default=None, ge=0)
    """With a range: workers have run so many seconds before they are ended for more; default: 10."""
    resources: ProcessResources = ProcessResources()
    """The resources of each worker; default: 1 CPU."""
    driver: Driver | None = None
    """In a sweep: the trainable runs once, and starts these workers itself by `trainer.fit()` of Ray Train.

    They are placed together with it, or not at all. `{}` is a driver that takes nothing itself. Default: the
    trainable runs in each worker.
    """
    placement_strategy: Strategy = "PACK"
    """The placement of the workers on nodes."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the node of each worker must have."""
    by_config: ScalingByConfig = ScalingByConfig()
    """In a sweep: how many workers a trial has, and what each takes, by its config.

    `num_workers` and `resources` are then the least.
    """
    pin_cpus: bool = False
    """Run each worker on CPUs that no other pinned worker or trial of the node runs on."""
    backend: Annotated[Backend | None, BeforeValidator(_backend)] = None
    """In a sweep: the process group that stands when the trainable is called; default: none.

    `torch` has `nccl` where each worker has whole GPUs, else `gloo`. Also a `ray.train.torch.TorchConfig`.
    `tensorflow` sets TF_CONFIG, `horovod` what `hvd.init()` needs.
    """
    metrics: Annotated[Reduction | dict[str, Reduction], BeforeValidator(_metrics)] = "rank0"
    """In a sweep: what a trial's report is made of; default: rank 0's report.

    `mean`, `sum`, `max` or `min` of what all ranks report in their report of the same number: of each metric
    that is a number or, as in `{"loss": "mean", "n": "sum"}`, of those that are named; the rest is rank 0's.
    `each` keeps rank 0's, with the others' beside it as `loss/rank1` and so on. All ranks then have to report
    equally often.
    """

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return ray_objects.scaling_fields(given) if ray_objects.is_scaling_config(given) else given

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.resize_interval_s is not None and self.min_workers is None:
            fix = "leave it out, or write num_workers: [2, 8]"
            raise Problem("is of a number of workers that may change", fix, ("resize_interval_s",))
        if self.backend == "nccl" and not self.resources.gpu:
            raise Problem("'nccl' needs GPUs", "set resources: {gpu: 1}, or write torch", ("backend",))
        self._check_shared_gpus()
        if not self.worker_bundle():
            raise Problem("asks for nothing", "give an amount above 0, such as cpu: 1", ("resources",))
        if self.pin_cpus:
            check_pinned(self.resources.cpu)
        if self.by_config.resources.memory is not None and not self.resources.memory:
            fix = "give resources.memory too: the least that a worker takes, in bytes"
            problem = "requires resources.memory"
            raise Problem(problem, fix, ("by_config", "resources", "memory"))
        if self.driver is not None:
            self._check_driver()
        return self

    def _check_driver(self) -> None:
        both = {
            "backend": "the trainer sets its own up",
            "by_config": "all trials hold the same workers",
            "pin_cpus": "Ray Train starts the workers",
        }
        for name, why in both.items():
            if getattr(self, name):
                raise Problem("cannot be combined with driver", f"leave it out: {why}", (name,))
        if self.metrics != "rank0":
            fix = "leave it out: rank 0's metrics are the trial's"
            raise Problem("cannot be combined with driver", fix, ("metrics",))

    @property
    def max_workers(self) -> int:
        """`num_workers`, or the larger number of its range."""
        return self.num_workers if isinstance(self.num_workers, int) else self.num_workers[1]

    @property
    def min_workers(self) -> int | None:
        """The smaller number where `num_workers` is a range."""
        return None if isinstance(self.num_workers, int) else self.num_workers[0]

    def _check_shared_gpus(self) -> None:
        gpus = self.worker_bundle().get("GPU", 0.0)
        has_several = self.max_workers > 1 or self.by_config.num_workers is not None
        may_share = 0 < gpus <= _HALF and has_several and self.placement_strategy != "STRICT_SPREAD"
        if self.backend == "nccl" and may_share:
            problem = f"nccl connects no two workers on one GPU, and these have {gpus:g} of one each"
            fix = "write torch, which uses gloo then, or give each worker a whole GPU"
            raise Problem(problem, fix, ("backend",))

    def worker_bundle(self) -> dict[str, float]:
        """The resources of one worker, in Ray's keys."""
        return self.resources.to_bundle()

    @property
    def needs(self) -> tuple[Need, ...]:
        """The number of workers and each worker's amounts, where they depend on a trial's config."""
        needs = []
        if (text := self.by_config.num_workers) is not None:
            least = float(self.max_workers)
            needs.append(Need("scaling.by_config.num_workers", "num_workers", parse_amount(text), least))
        for name, text in self.by_config.resources.given.items():
            field, is_pinned = f"scaling.by_config.resources.{name}", self.pin_cpus and name == "cpu"
            least = self.resources.usual(name)
            needs.append(Need(field, name, parse_amount(text), least, is_pinned=is_pinned))
        return tuple(needs)

    @property
    def reduced_metrics(self) -> tuple[str, ...] | None:
        """The metrics that are reduced: these, or all where that is empty; None: rank 0's reports count."""
        if self.metrics == "rank0":
            return None
        return () if isinstance(self.metrics, str) else tuple(self.metrics)

    @property
    def process_group(self) -> ProcessGroup | None:
        """The process group of the workers of a trial that takes the usual amounts."""
        if self.backend != "torch":
            return self.backend
        return torch_group(self.worker_bundle().get("GPU", 0.0))
