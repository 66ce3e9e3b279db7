"""The workers of one training run, or of each trial that is a gang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)

from raysweep.documents import ray_objects
from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.space.amounts import refusal
from raysweep.specs.bundles import ray_bundle
from raysweep.specs.resources_by_config import ScalingByConfig

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Backend = Literal["torch", "gloo", "nccl", "tensorflow", "horovod"]
ProcessGroup = Literal["gloo", "nccl", "tensorflow", "horovod"]
Reduction = Literal["rank0", "mean", "sum", "max", "min", "each"]


def _countable(amount: float) -> float:
    if fix := refusal("", amount):
        raise Problem(f"{amount:g} is no amount that Ray takes", fix)
    return amount


Amount = Annotated[float, Field(ge=0), AfterValidator(_countable)]


def check_pinned(cpus: float) -> None:
    """Raises Problem where a process has no whole CPUs to be pinned to."""
    if cpus < 1 or cpus % 1:
        raise Problem(f"a process with {cpus:g} CPUs cannot be pinned", "give whole CPUs", ("pin_cpus",))


_HALF: Final = 0.5
"""With more of a GPU than this, two workers do not share it."""


def torch_group(gpus: float) -> Literal["gloo", "nccl"]:
    """What `backend: torch` is for workers that have so many GPUs each."""
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
        raise Problem(f"{show(given)} is no way to reduce metrics", fix)
    if not given:
        raise Problem("names no metric", 'name one: {"loss": "mean"}, or leave metrics out')
    for name, how in given.items():
        if not isinstance(name, str) or not name:
            raise Problem(f"{show(name)} is no name of a metric", 'write names: {"loss": "mean"}')
        if how not in known:
            raise Problem(f"{show(how)} is not known here", did_you_mean(str(how), known), (name,))
    return dict(given)


def _of_range(fields: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """`num_workers: [2, 8]` as its two numbers."""
    given = fields.get("num_workers")
    if not isinstance(given, list | tuple):
        return fields
    if len(given) != 2 or "min_workers" in fields:
        raise Problem(f"expected a number or two, got {show(given)}", "write [2, 8]", ("num_workers",))
    return {**fields, "num_workers": given[1], "min_workers": given[0]}


_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
_RANGE: dict[str, Any] = {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2}
Workers = Annotated[int, WithJsonSchema({"anyOf": [_COUNT, _RANGE]})]


class Scaling(SpecModel):
    """The workers of one training run, or of each trial of a sweep.

    Also made from a `ray.train.ScalingConfig`.
    """

    renamed_fields: ClassVar[dict[str, str]] = {
        "workers": "num_workers",
        "strategy": "placement_strategy",
        "labels": "label_selector",
    }

    num_workers: Workers = Field(default=1, ge=1)
    """How many workers train together; in a training also a range, `[2, 8]`: as many as have room."""
    min_workers: int | None = Field(default=None, ge=1)
    """The smaller number of that range, of which `num_workers` is then the larger."""
    resize_interval_s: float | None = Field(default=None, ge=0)
    """With a range: workers have run so many seconds before they are ended for more; default: 10."""
    use_gpu: bool = False
    """Whether each worker takes a GPU (one, unless `resources_per_worker` says otherwise)."""
    resources_per_worker: Annotated[dict[str, Amount] | None, BeforeValidator(ray_bundle)] = None
    """What each worker takes, in Ray's keys; default: 1 CPU, or 1 GPU with `use_gpu`."""
    placement_strategy: Strategy = "PACK"
    """How the workers are placed on nodes."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that the node of each worker must have."""
    by_config: ScalingByConfig = ScalingByConfig()
    """In a sweep: how many workers a trial has, and what each takes, by its config.

    `num_workers` and `resources_per_worker` are then the least.
    """
    pin_cpus: bool = False
    """Whether each worker runs on CPUs that no other pinned worker or trial of the node runs on."""
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
        fields = ray_objects.scaling_fields(given) if ray_objects.is_scaling_config(given) else given
        return _of_range(fields) if isinstance(fields, Mapping) else fields

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_workers is not None and self.min_workers > self.num_workers:
            problem = f"{self.min_workers} is above num_workers, {self.num_workers}"
            raise Problem(problem, "write num_workers: [2, 8], the smaller number first", ("min_workers",))
        if self.resize_interval_s is not None and self.min_workers is None:
            fix = "leave it out, or write num_workers: [2, 8]"
            raise Problem("is of a number of workers that may change", fix, ("resize_interval_s",))
        if self.backend == "nccl" and not self.use_gpu:
            raise Problem("'nccl' needs GPUs", "set use_gpu: true, or write torch", ("backend",))
        self._check_shared_gpus()
        if self.pin_cpus:
            check_pinned(self.worker_bundle().get("CPU", 0.0))
        self._check_by_config()
        each = self.resources_per_worker
        if each is None:
            return self
        if not any(each.values()) and not self.use_gpu:
            raise Problem(
                "asks for nothing", 'give an amount above 0, such as {"CPU": 1}', ("resources_per_worker",)
            )
        if each.get("GPU") and not self.use_gpu:
            raise Problem("has a GPU, but use_gpu is false", "set use_gpu: true", ("resources_per_worker",))
        if self.use_gpu and each.get("GPU") == 0:
            raise Problem("has 0 GPU, but use_gpu is true", "set use_gpu: false", ("resources_per_worker",))
        return self

    def _check_shared_gpus(self) -> None:
        gpus = self.worker_bundle().get("GPU", 0.0)
        has_several = self.num_workers > 1 or self.by_config.num_workers is not None
        may_share = 0 < gpus <= _HALF and has_several and self.placement_strategy != "STRICT_SPREAD"
        if self.backend == "nccl" and may_share:
            problem = f"nccl connects no two workers on one GPU, and these have {gpus:g} of one each"
            fix = "write torch, which uses gloo then, or give each worker a whole GPU"
            raise Problem(problem, fix, ("backend",))

    def _check_by_config(self) -> None:
        asked, where = self.by_config.resources_per_worker, ("by_config", "resources_per_worker")
        if "GPU" in asked and not self.use_gpu:
            raise Problem("has a GPU, but use_gpu is false", "set use_gpu: true", (*where, "GPU"))
        if "memory" in asked and not self.worker_bundle().get("memory"):
            fix = "give resources_per_worker.memory too: the least that a worker takes, in bytes"
            problem = "says what a worker takes beyond memory, which is not given"
            raise Problem(problem, fix, (*where, "memory"))

    def worker_bundle(self) -> dict[str, float]:
        """What one worker takes, in Ray's keys."""
        default = {"GPU": 1.0} if self.use_gpu else {"CPU": 1.0}
        bundle = dict(self.resources_per_worker) if self.resources_per_worker is not None else default
        if self.use_gpu:
            bundle.setdefault("GPU", 1.0)
        return {name: float(amount) for name, amount in bundle.items() if amount}

    @property
    def reduced_metrics(self) -> tuple[str, ...] | None:
        """Which metrics are reduced: these, or all where that is empty; None: rank 0's reports count."""
        if self.metrics == "rank0":
            return None
        return () if isinstance(self.metrics, str) else tuple(self.metrics)

    @property
    def process_group(self) -> ProcessGroup | None:
        """What connects the workers of a trial that takes the usual amounts."""
        if self.backend != "torch":
            return self.backend
        return torch_group(self.worker_bundle().get("GPU", 0.0))


class RunScaling(Scaling):
    """The workers of a Ray Train run that a trial starts, and the CPUs of its data sets."""

    renamed_fields: ClassVar[dict[str, str]] = {
        **Scaling.renamed_fields,
        "data_num_cpus": "data_cpus",
        "num_data_cpus": "data_cpus",
        "cpus_for_data": "data_cpus",
        "dataset_cpus": "data_cpus",
        "datasets_cpus": "data_cpus",
        "data_workers": "data_cpus",
        "dataset_workers": "data_cpus",
        "datasets": "data_cpus",
    }

    data_cpus: int = Field(default=0, ge=0)
    """So many CPUs of one node are held for Ray Data: the trainer's `datasets`, and what the trial reads.

    At least one for each data set. Without, a trainer with `datasets` is refused.
    """

    @model_validator(mode="before")
    @classmethod
    def _read_plain(cls, given: Any) -> Any:
        is_plain = isinstance(given, Scaling) and not isinstance(given, RunScaling)
        return given.model_dump() if is_plain else given
