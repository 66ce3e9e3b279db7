"""The resources of one trial, or one training run, on the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from raysweep.documents.code import ray_objects
from raysweep.documents.validation import Problem, show
from raysweep.space.amounts import CUSTOM, USUAL, Need, Needs, amounts_of, parse_amount
from raysweep.specs.trial.bundles import (
    Amount,
    ProcessResources,
    bundle_of,
    check_custom,
    process_fields,
    ray_bundle,
)
from raysweep.specs.trial.gpu_memory import GpuMemory, GpuMemorySpec
from raysweep.specs.trial.resources_by_config import ByConfig
from raysweep.specs.trial.scaling import Scaling, check_pinned
from raysweep.specs.trial.shape import Bundle, Shape, Strategy

_FIXED: Final = {
    "cpu": ("bundles", "pin_cpus"),
    "gpu": ("bundles", "gpu_memory"),
    "memory": (),
}
"""The fields that cannot be combined with an amount by config, as they are the same for all trials."""


def _bundles(given: Any) -> Any:
    if not isinstance(given, list | tuple):
        return given
    return tuple(ray_bundle(bundle, (number,)) for number, bundle in enumerate(given))


class Resources(ProcessResources):
    """The resources of one trial: one bundle of amounts, or several `bundles`, the first being its own.

    Also made from a `tune.PlacementGroupFactory` or a `ray.train.ScalingConfig`.
    """

    renamed_fields: ClassVar[dict[str, str]] = {
        **ProcessResources.renamed_fields,
        "labels": "label_selector",
        "scaling_config": "scaling",
        "train": "scaling, with driver: {}",
        "driver_label_selector": "scaling.driver.label_selector",
    }

    cpu: Amount = 1.0
    """CPUs; fractions allowed."""
    gpu_memory: GpuMemorySpec | None = None
    """In place of `gpu`: so much memory of one GPU, in bytes or as `10GiB`; trials share it.

    `{size: 10GiB, enforce: true}` keeps the libraries of each trial to its share.
    """
    gpu_part: SkipJsonSchema[Annotated[float, Field(gt=0, le=1)] | None] = None
    """The part of a GPU that `gpu_memory` is. No option: computed at each start, stored with the sweep."""
    by_config: ByConfig = ByConfig()
    """In a sweep: amounts by a trial's config; `cpu`, `gpu`, `memory` and `custom` are then the least."""
    bundles: Annotated[tuple[dict[str, Amount], ...] | None, BeforeValidator(_bundles)] = None
    """Several bundles, placed as one group: the first is the trial's own, the rest is for what it starts.

    An empty first bundle means that the trial itself takes nothing.
    """
    strategy: Strategy = "PACK"
    """The placement of the bundles on nodes."""
    label_selector: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have."""
    pin_cpus: bool = False
    """Run a trial's process on CPUs that no other pinned trial of the node runs on."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if ray_objects.is_placement_group_factory(given):
            given = ray_objects.placement_group_fields(given)
        elif ray_objects.is_scaling_config(given):
            given = ray_objects.scaling_resources(given)
        if not isinstance(given, Mapping):
            return given
        return _own_from_head(dict(given))

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_gpu_memory()
        if self.pin_cpus:
            check_pinned(self._own()["CPU"] if self.bundles is None else self.bundles[0].get("CPU", 0.0))
        self._check_by_config()
        if self.bundles is not None:
            self._check_bundles(self.bundles)
        elif not self._asked():
            raise Problem("asks for nothing", 'give an amount above 0, such as "cpu": 1')
        return self

    def _check_by_config(self) -> None:
        given = self.by_config
        if given.memory is not None and not self.memory:
            fix = "give memory too: the least that a trial takes, in bytes"
            raise Problem("requires memory, the least that a trial gets", fix, ("by_config",))
        check_custom(given.custom, ("by_config", "custom"))
        for name in given.given:
            others = _FIXED.get(name, ("bundles",))
            other = next((other for other in others if getattr(self, other)), None)
            if other is not None:
                fix = f"leave one of the two out: {other} is the same for all trials"
                raise Problem(f"does not go with {other}", fix, ("by_config", *name.split(".", 1)))

    def _check_gpu_memory(self) -> None:
        if self.gpu_memory is None:
            if self.gpu_part is not None:
                raise Problem("is computed from gpu_memory", "give gpu, or gpu_memory", ("gpu_part",))
            return
        other = "bundles" if self.bundles is not None else ""
        if other or self.gpu:
            fix = f"leave it out, and give {'parts of GPUs in bundles' if other else 'gpu alone'}"
            raise Problem(f"replaces gpu, and cannot be combined with {other or 'it'}", fix, ("gpu_memory",))

    def _check_bundles(self, bundles: tuple[dict[str, float], ...]) -> None:
        if not any(self._asked()):
            raise Problem(
                "asks for nothing", 'give a bundle an amount above 0, such as {"CPU": 1}', ("bundles",)
            )
        for number, bundle in enumerate(bundles[1:], start=1):
            if not any(bundle.values()):
                raise Problem("is empty", "remove it: only the first may be empty", ("bundles", number))
        for name, value in process_fields(bundles[0]).items():
            if getattr(self, name) != value:
                raise Problem(
                    f"{show(getattr(self, name))} differs from the first bundle, {show(value)}",
                    f"remove {name}: the first bundle has it",
                    (name,),
                )

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = write(self)
        if self.gpu_part is None:
            fields.pop("gpu_part", None)
        return fields

    @property
    def needs(self) -> tuple[Need, ...]:
        """The amounts that depend on a trial's config."""
        return tuple(
            Need(f"resources.by_config.{name}", name, parse_amount(text), self.usual(name))
            for name, text in self.by_config.given.items()
        )

    def shape(self, needs: Needs = USUAL, *, is_gang: bool = False) -> Shape:
        """The placement group of a trial with these needs.

        The memory that it needs is that of the first bundle; of a gang each member has it, and the other
        amounts.
        """
        sized = self if needs is USUAL else self._sized(needs, is_gang=is_gang)
        bundles = sized._asked()
        return Shape(
            bundles=bundles,
            label_selectors=self._selectors(len(bundles)),
            label_fields=self._label_fields(len(bundles)),
            strategy=self.strategy,
            is_head_empty=self._is_head_empty(),
            fields=self._fields(len(bundles)),
            field=self._field(),
        )

    def _is_head_empty(self) -> bool:
        return self.bundles is not None and not any(self.bundles[0].values())

    def _asked(self) -> tuple[Bundle, ...]:
        bundles = (self._own(),) if self.bundles is None else self.bundles
        stripped = ({name: float(amount) for name, amount in bundle.items() if amount} for bundle in bundles)
        return tuple(bundle for bundle in stripped if bundle)

    def _selectors(self, count: int) -> tuple[Mapping[str, str], ...]:
        return (self.label_selector,) * count

    def _label_fields(self, count: int) -> tuple[str, ...]:
        return (f"{self._field()}.label_selector",) * count

    def _fields(self, count: int) -> tuple[str, ...]:
        if self.bundles is None or count == 1:
            return ("resources",) * count
        return tuple(f"resources.bundles[{number}]" for number in range(count))

    def _field(self) -> str:
        return "resources"

    def _sized(self, needs: Needs, *, is_gang: bool) -> Resources:
        amounts, memory_bytes = amounts_of(needs.size), needs.memory_bytes
        if self._is_head_empty() or not (amounts or memory_bytes):
            return self
        memory = {} if memory_bytes is None else {"memory": memory_bytes}
        if self.bundles is None:
            return self.model_copy(update={**self._with_custom(amounts), **memory})
        head, *rest = self.bundles
        if not is_gang:
            return self.model_copy(update={"bundles": ({**head, **memory}, *rest)})
        num_workers = int(amounts.pop("num_workers", len(self.bundles)))
        member = {**head, **bundle_of(amounts), **memory}
        return self.model_copy(update={"bundles": (member,) * num_workers})

    def _with_custom(self, amounts: Mapping[str, float]) -> dict[str, Any]:
        """The fields that these amounts (`amounts.Need.name`) are."""
        own = {name: amount for name, amount in amounts.items() if not name.startswith(CUSTOM)}
        custom = {name.removeprefix(CUSTOM): amounts[name] for name in amounts if name not in own}
        if self.gpu_memory is not None and "gpu" in own:
            own["gpu_part"] = own.pop("gpu")
        return {**own, "custom": {**self.custom, **custom}}

    @property
    def gpu_memory_bytes(self) -> int | None:
        """The amount that `gpu_memory` asks for."""
        return self.gpu_memory.size if isinstance(self.gpu_memory, GpuMemory) else self.gpu_memory

    @property
    def gpu_limit_bytes(self) -> int:
        """The amount that each trial is kept to; 0: its share is not enforced."""
        return self.gpu_memory.size if isinstance(self.gpu_memory, GpuMemory) else 0

    def with_gpu_part(self, part: float) -> Resources:
        """These resources where `gpu_memory` is such a part of a GPU, from 0 to 1."""
        return self.model_copy(update={"gpu_part": part})

    def settled_by(self, stored: Resources) -> Resources:
        """This, with the part of a GPU that the stored sweep had where this says none yet."""
        if (
            self.gpu_memory is None
            or self.gpu_part is not None
            or stored.gpu_memory_bytes != self.gpu_memory_bytes
        ):
            return self
        return self if stored.gpu_part is None else self.with_gpu_part(stored.gpu_part)

    def _own(self) -> dict[str, float]:
        # Until it is known, what it is at most.
        gpu = self.gpu if self.gpu_memory is None else (self.gpu_part or 1.0)
        return {"CPU": self.cpu, "GPU": gpu, "memory": float(self.memory or 0), **self.custom}


class GangResources(Resources):
    """The resources of a trial with `scaling`: made by `resources_of`, never written in a spec."""

    scaling: Scaling

    def _selectors(self, count: int) -> tuple[Mapping[str, str], ...]:
        selectors, driver = super()._selectors(count), self.scaling.driver
        if driver is None or not driver.label_selector:
            return selectors
        return (driver.label_selector, *selectors[1:])

    def _label_fields(self, count: int) -> tuple[str, ...]:
        fields, driver = super()._label_fields(count), self.scaling.driver
        if driver is None or not driver.label_selector:
            return fields
        return ("scaling.driver.label_selector", *fields[1:])

    def _fields(self, count: int) -> tuple[str, ...]:
        driver, fields = self.scaling.driver, ["scaling.resources"] * count
        if driver is not None and driver.data_cpus:
            fields[-1] = "scaling.driver.data_cpus"
        if driver is not None and not self._is_head_empty():
            fields[0] = "scaling.driver"
        return tuple(fields)

    def _field(self) -> str:
        return "scaling"


def resources_of(scaling: Scaling) -> Resources:
    """The resources of a trial with workers: a bundle for each, and those of its driver and its data sets."""
    bundles, driver = (scaling.worker_bundle(),) * scaling.max_workers, scaling.driver
    if driver is not None:
        data = ({"CPU": float(driver.data_cpus)},) if driver.data_cpus else ()
        bundles = (driver.to_bundle(), *bundles, *data)
    return GangResources(
        bundles=bundles,
        strategy=scaling.placement_strategy,
        label_selector=scaling.label_selector,
        pin_cpus=scaling.pin_cpus,
        scaling=scaling,
    )


def resources_of_wrapped(asked: Any, given: Any) -> Resources:
    """The request of `tune.with_resources`; `given` is what the spec says besides, if anything.

    Raises Problem where both say something else, or it is a function of the config.
    """
    if not ray_objects.is_placement_group_factory(asked):
        if given is not None:
            return Resources.model_validate(given)
        raise Problem(
            "tune.with_resources gives a function of the config",
            'give resources of the spec, such as {"cpu": 2}, that do for every config',
            ("resources",),
        )
    fields = ray_objects.placement_group_fields(asked)
    if len(fields["bundles"]) == 1:
        fields = {**process_fields(fields["bundles"][0]), "label_selector": fields.get("label_selector", {})}
    wrapped = Resources.model_validate(fields)
    if given is not None and Resources.model_validate(given).shape().bundles != wrapped.shape().bundles:
        raise Problem(
            f"{show(given)} is not what tune.with_resources asks for, {[*wrapped.shape().bundles]}",
            "leave resources out, or take tune.with_resources away",
            ("resources",),
        )
    return wrapped if given is None else Resources.model_validate(given)


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
    return {**process_fields(head), **fields}
