"""Resources of a trial by its config: expressions of its parameters, beside the amounts that all take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem, show
from raysweep.space.amounts import CUSTOM, parse_amount

if TYPE_CHECKING:
    pass

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
    """The resources of a trial beyond the sweep's usual amounts, as expressions of its parameters."""

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
    """The number of a trial's workers, and the resources of each, as expressions of its parameters."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "workers": "num_workers",
        "resources_per_worker": "scaling.by_config.resources",
    }

    num_workers: Expression = None
    """Such as `"workers"`, rounded up; never below `scaling.num_workers`."""
    resources: ByConfig = ByConfig()
    """The resources of each worker: `{cpu: threads, memory: "1e9 + 4e6 * width"}`.

    Never below `scaling.resources`, which has to name memory where this does.
    """

    @property
    def given(self) -> dict[str, str]:
        """The expressions by field; what each worker takes by `resources.cpu`."""
        return super().given | {f"resources.{name}": text for name, text in self.resources.given.items()}
