"""What a trial takes by its config: expressions of its parameters, beside the amounts that all take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem, show
from raysweep.space.amounts import CUSTOM, Need, parse_amount
from raysweep.space.where import check_amount
from raysweep.specs.bundles import need_name, ray_bundle

if TYPE_CHECKING:
    from raysweep.specs.resources import Resources
    from raysweep.specs.scaling import Scaling
    from raysweep.specs.sweep import SweepSpec

_EXAMPLES: Final = 'write such as "1e9 + 4e6 * batch_size", or the name of a parameter'


def _amount_text(given: Any) -> Any:
    if not isinstance(given, str):
        raise Problem(f"expected an expression, got {show(given)}", _EXAMPLES)
    return parse_amount(given).text


def _text_if_given(given: Any) -> Any:
    return None if given is None else _amount_text(given)


Expression = Annotated[str | None, BeforeValidator(_text_if_given)]
Named = Annotated[str, BeforeValidator(_amount_text)]


class _ByConfig(SpecModel):
    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: said for name, said in write(self).items() if said}

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, str]:
        """The expressions by the field of what they are the amount of."""
        fields = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: text for name, text in fields if isinstance(text, str)}


class ByConfig(_ByConfig):
    """What a trial takes beyond the sweep's usual amounts, as expressions of its parameters."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "cpus": "cpu",
        "num_cpus": "cpu",
        "gpus": "gpu",
        "num_gpus": "gpu",
        "custom_resources": "custom",
        "resources": "custom",
    }

    cpu: Expression = None
    """CPUs, such as `"threads"`; never below `resources.cpu`."""
    gpu: Expression = None
    """GPUs, a part of one or whole ones; never below `resources.gpu`."""
    memory: Expression = None
    """Heap memory in bytes, such as `"1e9 + 4e6 * width"`; never below `resources.memory`."""
    custom: dict[str, Named] = Field(default_factory=dict)
    """Custom resources, such as `{"licence": "workers"}`; never below those of `resources.custom`."""

    @property
    def given(self) -> dict[str, str]:
        """The expressions by name; that of a custom resource by `custom.licence`."""
        return super().given | {CUSTOM + name: text for name, text in self.custom.items()}


class ScalingByConfig(_ByConfig):
    """How many workers a trial has, and what each takes, as expressions of its parameters."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "workers": "num_workers",
        "cpu": "resources_per_worker.CPU",
        "gpu": "resources_per_worker.GPU",
        "memory": "resources_per_worker.memory",
        "custom": "resources_per_worker",
        "resources": "resources_per_worker",
    }

    num_workers: Expression = None
    """Such as `"workers"`, rounded up; never below `scaling.num_workers`."""
    resources_per_worker: Annotated[dict[str, Named], BeforeValidator(ray_bundle)] = Field(
        default_factory=dict
    )
    """What each worker takes, in Ray's keys: `{"CPU": "threads", "memory": "1e9 + 4e6 * width"}`.

    Never below `scaling.resources_per_worker`, which has to name memory where this does.
    """

    @property
    def given(self) -> dict[str, str]:
        """The expressions by field; what each worker takes by `resources_per_worker.CPU`."""
        return super().given | {f"resources_per_worker.{k}": v for k, v in self.resources_per_worker.items()}


def needs_of(spec: SweepSpec) -> tuple[Need, ...]:
    """What trials of this sweep need by their configs."""
    resources = spec.resources
    found = [
        Need(f"resources.by_config.{name}", name, parse_amount(text), _usual_of(resources, name))
        for name, text in resources.by_config.given.items()
    ]
    return tuple(found) if spec.scaling is None else (*found, *_needs_of_workers(spec.scaling))


def _needs_of_workers(scaling: Scaling) -> Iterator[Need]:
    asked, usual = scaling.by_config, scaling.worker_bundle()
    if asked.num_workers is not None:
        least = float(scaling.num_workers)
        yield Need("scaling.by_config.num_workers", "num_workers", parse_amount(asked.num_workers), least)
    for key, text in asked.resources_per_worker.items():
        yield Need(
            f"scaling.by_config.resources_per_worker.{key}",
            need_name(key),
            parse_amount(text),
            usual.get(key, 0.0),
            is_pinned=scaling.pin_cpus and key == "CPU",
        )


def _usual_of(resources: Resources, name: str) -> float:
    if name.startswith(CUSTOM):
        return resources.custom.get(name.removeprefix(CUSTOM), 0.0)
    return float(getattr(resources, name) or 0)


def check_by_config(spec: SweepSpec) -> None:
    """See that what trials take by their configs follows from parameters. Imports nothing. Raises Problem."""
    needs = needs_of(spec)
    for need in needs:
        check_amount(need.amount, spec.param_space, tuple(need.field.split(".")))
    if any(need.name != "memory" for need in needs) and spec.stop.budget.model_dump(exclude_none=True):
        fix = "use stop.time_budget_s or stop.deadline, or leave by_config out"
        raise Problem(
            "counts what slots use that are all alike, and by_config makes them differ",
            fix,
            ("stop", "budget"),
        )
