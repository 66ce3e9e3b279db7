"""What one trial, or one training run, takes of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from raysweep.spec import rayobjects
from raysweep.spec.amounts import parse_amount
from raysweep.spec.base import SpecModel
from raysweep.spec.sizes import Bytes
from raysweep.spec.validation import Path, Problem, did_you_mean, show

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Amount = Annotated[float, Field(ge=0)]
Backend = Literal["torch", "gloo", "nccl", "tensorflow", "horovod"]
ProcessGroup = Literal["gloo", "nccl", "tensorflow", "horovod"]
Reduction = Literal["rank0", "mean", "sum", "max", "min", "each"]

_RAY_KEYS = {"cpu": "CPU", "gpu": "GPU", "CPU": "CPU", "GPU": "GPU", "memory": "memory"}


def ray_bundle(given: Any, path: Path = ()) -> Any:
    """One bundle with Ray's keys: `{"cpu": 1}` becomes `{"CPU": 1}`. Other than mappings is left as it is."""
    if not isinstance(given, Mapping):
        return given
    bundle: dict[Any, Any] = {}
    for key, value in given.items():
        name: Any = _RAY_KEYS.get(key, key)
        if name in bundle:
            raise Problem(
                f"{name} is given twice", f"keep one of {name!r} and {name.lower()!r}", (*path, name)
            )
        bundle[name] = value
    return bundle


def _bundles(given: Any) -> Any:
    if not isinstance(given, list | tuple):
        return given
    return tuple(ray_bundle(bundle, (number,)) for number, bundle in enumerate(given))


def _amount_text(given: Any) -> Any:
    if given is not None and not isinstance(given, str):
        raise Problem(f"expected an expression, got {show(given)}", 'write such as "1e9 + 4e6 * batch_size"')
    return given if given is None else parse_amount(given).text


class ByConfig(SpecModel):
    """What a trial takes beyond the sweep's usual amounts, as an expression of its parameters."""

    memory: Annotated[str | None, BeforeValidator(_amount_text)] = None
    """Heap memory of the trial in bytes, such as `"1e9 + 4e6 * width"`; never below `resources.memory`."""


class Resources(SpecModel):
    """What one trial takes: one bundle of amounts, or several `bundles`, the first being the trial's own.

    With `train`, the workers of a Ray Train run that the trial starts; its own amounts are then the driver's.

    Also made from a mapping with the keys `CPU` and `GPU`, a `tune.PlacementGroupFactory` or a
    `ray.train.ScalingConfig`.
    """

    renamed_fields: ClassVar[dict[str, str]] = {
        "cpus": "cpu",
        "num_cpus": "cpu",
        "gpus": "gpu",
        "num_gpus": "gpu",
        "custom_resources": "custom",
        "resources": "custom",
        "labels": "label_selector",
        "scaling": "train",
        "scaling_config": "train",
        "driver_labels": "driver_label_selector",
    }

    cpu: Amount = 1.0
    """CPUs of one trial; fractions allowed. With `train` 0, unless given."""
    gpu: Amount = 0.0
    """GPUs of one trial; fractions share a device."""
    gpu_memory: Annotated[Bytes, Field(ge=1)] | None = None
    """In place of `gpu`: so much memory of one GPU, in bytes or as `10GiB`; trials share it."""
    gpu_part: Annotated[float, Field(gt=0, le=1)] | None = None
    """Which part of a GPU that is. Found out when the sweep starts, not given."""
    memory: Annotated[int, Field(ge=1)] | None = None
    """Heap memory of one trial to reserve, in bytes."""
    by_config: ByConfig = ByConfig()
    """In a sweep: amounts by a trial's config; `memory` is then the least that a trial takes."""
    custom: dict[str, Amount] = Field(default_factory=dict)
    """Amounts of custom resources, by the name that the cluster gives them."""
    bundles: Annotated[tuple[dict[str, Amount], ...] | None, BeforeValidator(_bundles)] = None
    """Several bundles, placed as one group: the first is the trial's own, the rest is for what it starts.

    An empty first bundle means that the trial itself takes nothing.
    """
    strategy: Strategy = "PACK"
    """How the bundles are placed on nodes."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    pin_cpus: bool = False
    """Whether a trial's process runs on CPUs that no other pinned trial of the node runs on."""
    train: Scaling | None = None
    """The workers of the Ray Train run that the trial starts with `trainer.fit()`.

    They are placed together with the trial, which is their driver, or not at all. Also a
    `ray.train.ScalingConfig`.
    """
    driver_label_selector: dict[str, str] = Field(default_factory=dict)
    """With `train`: labels that the driver's node must have, in place of `label_selector`."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if rayobjects.is_placement_group_factory(given):
            given = rayobjects.placement_group_fields(given)
        elif rayobjects.is_scaling_config(given):
            given = rayobjects.scaling_resources(given)
        if not isinstance(given, Mapping):
            return given
        fields = ray_bundle(given)
        for name in ("CPU", "GPU"):
            if name in fields:
                fields[name.lower()] = fields.pop(name)
        return _memory_as_int(_of_driver(_own_from_head(fields)))

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        if self.train is None:  # specs without are written, and digested, as before there were any
            fields.pop("train", None)
        for name in ("driver_label_selector", "pin_cpus", "gpu_memory", "gpu_part"):
            if not fields[name]:
                del fields[name]
        if self.by_config == ByConfig():
            fields.pop("by_config", None)
        return fields

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_train()
        self._check_gpu_memory()
        if self.pin_cpus:
            check_pinned(self._own()["CPU"] if self.bundles is None else self.bundles[0].get("CPU", 0.0))
        if self.by_config.memory is not None and not self.memory:
            fix = "give memory too: the least that a trial takes, in bytes"
            raise Problem(
                "says what a trial takes beyond resources.memory, which is not given", fix, ("by_config",)
            )
        if self.bundles is not None:
            self._check_bundles(self.bundles)
        elif not self.to_bundles():
            raise Problem("asks for nothing", 'give an amount above 0, such as "cpu": 1')
        for name in self.custom:
            if name in _RAY_KEYS:
                raise Problem(
                    f"{name!r} is not a custom resource",
                    f"write {name.lower()!r} outside of custom",
                    ("custom",),
                )
        return self

    def _check_train(self) -> None:
        if self.train is None:
            if self.driver_label_selector:
                fix = "give train, the workers of the trial's Ray Train run, or use label_selector"
                raise Problem("is of the driver of a Ray Train run", fix, ("driver_label_selector",))
            return
        if self.bundles is not None:
            fix = "remove bundles: train gives one to each worker, and cpu, gpu and custom are the driver's"
            raise Problem("train says already what the trial's workers take", fix, ("bundles",))
        said = self.train.placement_strategy
        if self.strategy != said:
            problem = f"{show(self.strategy)} is not train.placement_strategy, {show(said)}"
            raise Problem(problem, "remove strategy: train says it", ("strategy",))
        if self.train.min_workers is not None:
            fix = "give one number: a trial holds what its workers take, from its start to its end"
            raise Problem("may not be a range in a sweep", fix, ("train", "num_workers"))
        if self.train.backend is not None:
            fix = "leave it out: the trainer sets its own up"
            raise Problem("is for trials that are gangs themselves", fix, ("train", "backend"))
        if self.train.metrics != "rank0":
            fix = "leave it out: rank 0's metrics are the trial's"
            raise Problem("is for trials that are gangs themselves", fix, ("train", "metrics"))
        if self.pin_cpus or self.train.pin_cpus:
            where = ("pin_cpus",) if self.pin_cpus else ("train", "pin_cpus")
            raise Problem("is not for the workers of a Ray Train run in a trial", "leave it out", where)
        if self.train.label_selector:
            fix = "write it as resources.label_selector, and the driver's as driver_label_selector"
            raise Problem("is said by the trial", fix, ("train", "label_selector"))
        if self.driver_label_selector and self.is_head_empty:
            fix = "give it something of that node, such as memory: 500000000"
            raise Problem("has no say where the driver takes nothing", fix, ("driver_label_selector",))

    def _check_gpu_memory(self) -> None:
        if self.gpu_memory is None:
            if self.gpu_part is not None:
                raise Problem("is found out from gpu_memory", "give gpu, or gpu_memory", ("gpu_part",))
            return
        other = next((name for name in ("bundles", "train") if getattr(self, name) is not None), "")
        if other or self.gpu:
            fix = f"leave it out, and give {'parts of GPUs in ' + other if other else 'gpu alone'}"
            raise Problem(f"stands in place of gpu, and not beside {other or 'it'}", fix, ("gpu_memory",))

    def _check_bundles(self, bundles: tuple[dict[str, float], ...]) -> None:
        if not any(self.to_bundles()):
            raise Problem(
                "asks for nothing", 'give a bundle an amount above 0, such as {"CPU": 1}', ("bundles",)
            )
        for number, bundle in enumerate(bundles[1:], start=1):
            if not any(bundle.values()):
                raise Problem("is empty", "remove it: only the first may be empty", ("bundles", number))
        for name, value in _head_fields(bundles[0]).items():
            if getattr(self, name) != value:
                raise Problem(
                    f"{show(getattr(self, name))} is not what the first bundle says, {show(value)}",
                    f"remove {name}: with bundles, the first bundle says it",
                    (name,),
                )

    @property
    def is_head_empty(self) -> bool:
        """True where the trial itself takes nothing and only its bundles for workers do."""
        if self.train is not None:
            return not any(self._own().values())
        return self.bundles is not None and not any(self.bundles[0].values())

    @property
    def total_gpus(self) -> float:
        """GPUs of the whole trial, all bundles together."""
        return sum(bundle.get("GPU", 0.0) for bundle in self.to_bundles())

    def to_bundles(self) -> list[dict[str, float]]:
        """The bundles of one trial's placement group in Ray's keys, the trial's own first; zeros left out.

        Where `is_head_empty`, the first is that of the first worker, as Ray has no empty bundles.
        """
        bundles = (self._own(),) if self.bundles is None else self.bundles
        if self.train is not None:
            bundles = (*bundles, *(self.train.worker_bundle(),) * self.train.num_workers)
        stripped = [{name: float(amount) for name, amount in bundle.items() if amount} for bundle in bundles]
        return [bundle for bundle in stripped if bundle]

    def to_label_selectors(self) -> list[dict[str, str]]:
        """What labels the node of each of `to_bundles` must have."""
        selectors = [self.label_selector] * len(self.to_bundles())
        return [self.driver_label_selector, *selectors[1:]] if self.driver_label_selector else selectors

    def with_gpu_part(self, part: float) -> Resources:
        """What this is where `gpu_memory` is such a part of a GPU, from 0 to 1."""
        return self.model_copy(update={"gpu_part": part})

    def settled_by(self, stored: Resources) -> Resources:
        """This, with the part of a GPU that the stored sweep had where this says none yet."""
        if self.gpu_memory is None or self.gpu_part is not None or stored.gpu_memory != self.gpu_memory:
            return self
        return self if stored.gpu_part is None else self.with_gpu_part(stored.gpu_part)

    def _own(self) -> dict[str, float]:
        # Until it is known, what it is at most.
        gpu = self.gpu if self.gpu_memory is None else (self.gpu_part or 1.0)
        return {"CPU": self.cpu, "GPU": gpu, "memory": float(self.memory or 0), **self.custom}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core))
        for name in ("cpu", "gpu"):
            about = {"type": "number", "minimum": 0, "description": f"The same as `{name}`."}
            schema["properties"][name.upper()] = about
        schema["properties"]["memory"]["anyOf"][0]["type"] = "number"
        return schema


def check_pinned(cpus: float) -> None:
    """Raises Problem where a process has no whole CPUs to be pinned to."""
    if cpus < 1 or cpus % 1:
        raise Problem(f"a process with {cpus:g} CPUs cannot be pinned", "give whole CPUs", ("pin_cpus",))


def resources_of_wrapped(asked: Any, given: Any) -> Resources:
    """What `tune.with_resources` asks for; `given` is what the spec says besides, if anything.

    Raises Problem where both say something else, or it is a function of the config.
    """
    if not rayobjects.is_placement_group_factory(asked):
        if given is not None:
            return Resources.model_validate(given)
        raise Problem(
            "tune.with_resources gives a function of the config",
            'give resources of the spec, such as {"cpu": 2}, that do for every config',
            ("resources",),
        )
    fields = rayobjects.placement_group_fields(asked)
    if len(fields["bundles"]) == 1:
        fields = {**_head_fields(fields["bundles"][0]), "label_selector": fields.get("label_selector", {})}
    wrapped = Resources.model_validate(fields)
    if given is not None and Resources.model_validate(given).to_bundles() != wrapped.to_bundles():
        raise Problem(
            f"{show(given)} is not what tune.with_resources asks for, {wrapped.to_bundles()}",
            "leave resources out, or take tune.with_resources away",
            ("resources",),
        )
    return wrapped if given is None else Resources.model_validate(given)


def _head_fields(head: Mapping[str, Any]) -> dict[str, Any]:
    memory = head.get("memory")
    custom = {name: float(value) for name, value in head.items() if name not in _RAY_KEYS.values()}
    own = {"cpu": float(head.get("CPU", 0.0)), "gpu": float(head.get("GPU", 0.0))}
    return {**own, "memory": int(memory) if memory else None, "custom": custom}


def _own_from_head(fields: dict[Any, Any]) -> dict[Any, Any]:
    """With bundles, the trial's own amounts are those of the first bundle, unless they are given too."""
    bundles = fields.get("bundles")
    if not isinstance(bundles, list | tuple):
        return fields
    if not bundles:
        raise Problem("has no bundle", "leave bundles out, or give at least one", ("bundles",))
    head = ray_bundle(bundles[0], ("bundles", 0))
    if not isinstance(head, Mapping):
        return fields
    if not all(isinstance(v, int | float) and 0 <= v < float("inf") for v in head.values()):
        return fields  # pydantic says what is wrong with the bundle
    return {**_head_fields(head), **fields}


def _of_driver(fields: dict[Any, Any]) -> dict[Any, Any]:
    """With a Ray Train run, the trial's own amounts are the driver's, who needs none."""
    train = fields.get("train")
    if train is None:
        return fields
    given = train.get("placement_strategy") if isinstance(train, Mapping) else None
    strategy = given or getattr(train, "placement_strategy", "PACK")
    return {"cpu": 0.0, "strategy": strategy, **fields}


def _memory_as_int(fields: dict[Any, Any]) -> dict[Any, Any]:
    """Ray's users write `memory=1e9`."""
    memory = fields.get("memory")
    if isinstance(memory, float) and memory.is_integer():
        return {**fields, "memory": int(memory)}
    return fields


def _backend(given: Any) -> Any:
    """Also Ray's `TorchConfig`. One that is not known is refused by its name."""
    if rayobjects.is_torch_config(given):
        return rayobjects.torch_backend(given)
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
        fields = rayobjects.scaling_fields(given) if rayobjects.is_scaling_config(given) else given
        return _of_range(fields) if isinstance(fields, Mapping) else fields

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        for name in ("backend", "min_workers", "resize_interval_s"):
            if fields[name] is None:  # specs without are written, and digested, as before there were any
                del fields[name]
        if self.metrics == "rank0":
            fields.pop("metrics", None)
        for name in ("label_selector", "pin_cpus"):
            if not fields[name]:
                del fields[name]
        return fields

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
        if self.pin_cpus:
            check_pinned(self.worker_bundle().get("CPU", 0.0))
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
        """What connects the workers of a trial."""
        if self.backend != "torch":
            return self.backend
        # Ranks that share a device cannot meet through NCCL.
        gpus = self.worker_bundle().get("GPU", 0.0)
        return "nccl" if gpus and gpus.is_integer() else "gloo"

    def to_resources(self) -> Resources:
        """What a trial takes: a bundle for each worker."""
        bundle = self.worker_bundle()
        return Resources(
            bundles=(bundle,) * self.num_workers,
            strategy=self.placement_strategy,
            label_selector=self.label_selector,
            pin_cpus=self.pin_cpus,
        )


Resources.model_rebuild()
