"""What a trial takes by its config: expressions of its parameters, beside the amounts that all take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from raysweep.spec.amounts import CUSTOM, Need, parse_amount
from raysweep.spec.base import SpecModel
from raysweep.spec.validation import Problem, show
from raysweep.spec.where import check_amount

if TYPE_CHECKING:
    from raysweep.spec.resources import Resources
    from raysweep.spec.sweep import SweepSpec

_EXAMPLES: Final = 'write such as "1e9 + 4e6 * batch_size", or the name of a parameter'


def _amount_text(given: Any) -> Any:
    if not isinstance(given, str):
        raise Problem(f"expected an expression, got {show(given)}", _EXAMPLES)
    return parse_amount(given).text


def _text_if_given(given: Any) -> Any:
    return None if given is None else _amount_text(given)


Expression = Annotated[str | None, BeforeValidator(_text_if_given)]


class _ByConfig(SpecModel):
    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: said for name, said in write(self).items() if said}

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, str]:
        """The expressions by the name of what they are the amount of (`Need.name`)."""
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
    custom: dict[str, Annotated[str, BeforeValidator(_amount_text)]] = Field(default_factory=dict)
    """Custom resources, such as `{"licence": "workers"}`; never below those of `resources.custom`."""

    @property
    def given(self) -> dict[str, str]:
        """The expressions by name; that of a custom resource by `custom.licence`."""
        return super().given | {CUSTOM + name: text for name, text in self.custom.items()}


class ScalingByConfig(_ByConfig):
    """How many workers a trial has, as an expression of its parameters."""

    num_workers: Expression = None
    """Such as `"workers"`, rounded up; never below `scaling.num_workers`."""


def needs_of(spec: SweepSpec) -> tuple[Need, ...]:
    """What trials of this sweep need by their configs."""
    resources = spec.resources
    found = [
        Need(f"resources.by_config.{name}", name, parse_amount(text), _usual_of(resources, name))
        for name, text in resources.by_config.given.items()
    ]
    if spec.scaling is not None and (text := spec.scaling.by_config.num_workers) is not None:
        usual = float(spec.scaling.num_workers)
        found.append(Need("scaling.by_config.num_workers", "num_workers", parse_amount(text), usual))
    return tuple(found)


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
