"""What a trial takes by its config: expressions of its parameters, beside the amounts that all take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, model_serializer

from raysweep.spec.amounts import Need, parse_amount
from raysweep.spec.base import SpecModel
from raysweep.spec.validation import Problem, show
from raysweep.spec.where import check_amount

if TYPE_CHECKING:
    from raysweep.spec.sweep import SweepSpec

_EXAMPLES: Final = 'write such as "1e9 + 4e6 * batch_size", or the name of a parameter'


def _amount_text(given: Any) -> Any:
    if given is not None and not isinstance(given, str):
        raise Problem(f"expected an expression, got {show(given)}", _EXAMPLES)
    return given if given is None else parse_amount(given).text


Expression = Annotated[str | None, BeforeValidator(_amount_text)]


class _ByConfig(SpecModel):
    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: text for name, text in write(self).items() if text is not None}

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, str]:
        """The expressions by name."""
        fields = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: text for name, text in fields if text is not None}


class ByConfig(_ByConfig):
    """What a trial takes beyond the sweep's usual amounts, as expressions of its parameters."""

    cpu: Expression = None
    """CPUs, such as `"threads"`; never below `resources.cpu`."""
    gpu: Expression = None
    """GPUs, a part of one or whole ones; never below `resources.gpu`."""
    memory: Expression = None
    """Heap memory in bytes, such as `"1e9 + 4e6 * width"`; never below `resources.memory`."""


class ScalingByConfig(_ByConfig):
    """How many workers a trial has, as an expression of its parameters."""

    num_workers: Expression = None
    """Such as `"workers"`, rounded up; never below `scaling.num_workers`."""


def needs_of(spec: SweepSpec) -> tuple[Need, ...]:
    """What trials of this sweep need by their configs."""
    resources = spec.resources
    found = [
        Need(f"resources.by_config.{name}", name, parse_amount(text), float(getattr(resources, name) or 0))
        for name, text in resources.by_config.given.items()
    ]
    if spec.scaling is not None and (text := spec.scaling.by_config.num_workers) is not None:
        usual = float(spec.scaling.num_workers)
        found.append(Need("scaling.by_config.num_workers", "num_workers", parse_amount(text), usual))
    return tuple(found)


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
