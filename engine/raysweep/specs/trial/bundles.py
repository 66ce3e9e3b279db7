"""The resources of one process, and bundles of amounts in Ray's keys: `{"CPU": 1, "licence": 2}`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import AfterValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Path, Problem
from raysweep.space.amounts import CUSTOM, refusal

RAY_KEYS: Final = {"cpu": "CPU", "gpu": "GPU", "CPU": "CPU", "GPU": "GPU", "memory": "memory"}
_NAMES: Final = {"CPU": "cpu", "GPU": "gpu", "memory": "memory"}


def ray_bundle(given: Any, path: Path = ()) -> Any:
    """One bundle with Ray's keys: `{"cpu": 1}` becomes `{"CPU": 1}`. Other than mappings is left as it is."""
    if not isinstance(given, Mapping):
        return given
    bundle: dict[Any, Any] = {}
    for key, value in given.items():
        name: Any = RAY_KEYS.get(key, key)
        if name in bundle:
            raise Problem(
                f"{name} is given twice", f"keep one of {name!r} and {name.lower()!r}", (*path, name)
            )
        bundle[name] = value
    return bundle


def need_name(key: str) -> str:
    """The name of a key of Ray's among needs (`amounts.Need.name`): `CPU` is `cpu`."""
    return _NAMES.get(key, CUSTOM + key)


def bundle_of(amounts: Mapping[str, float]) -> dict[str, float]:
    """Amounts by `amounts.Need.name` as a bundle."""
    return {RAY_KEYS.get(name, name.removeprefix(CUSTOM)): amount for name, amount in amounts.items()}


def show_bundle(bundle: Mapping[str, float]) -> str:
    """A bundle as one short text: `{CPU: 2, memory: 1.5 GiB}`."""
    shown = (
        f"{key}: {amount / 2**30:.3g} GiB" if key == "memory" else f"{key}: {amount:g}"
        for key, amount in bundle.items()
    )
    return "{" + ", ".join(shown) + "}"


def _countable(amount: float) -> float:
    if fix := refusal("", amount):
        raise Problem(f"{amount:g} is not an amount that Ray accepts", fix)
    return amount


Amount = Annotated[float, Field(ge=0), AfterValidator(_countable)]


def check_custom(names: Iterable[str], path: Path) -> None:
    """Raises Problem where a custom resource is one that has a field of its own."""
    for name in names:
        if name in RAY_KEYS:
            fix = f"write {name.lower()!r} outside of custom"
            raise Problem(f"{name!r} is not a custom resource", fix, path)


class ProcessResources(SpecModel):
    """The resources of one process: a trial's, or each worker's of a gang or a training."""

    renamed_fields: ClassVar[dict[str, str]] = {"resources": "custom"}

    cpu: Amount = 1.0
    """CPUs; fractions allowed."""
    gpu: Amount = 0.0
    """GPUs; fractions share a device."""
    memory: Annotated[int, Field(ge=1)] | None = None
    """Heap memory to reserve, in bytes."""
    custom: dict[str, Amount] = Field(default_factory=dict)
    """Amounts of custom resources, by the name that the cluster gives them."""

    @model_validator(mode="before")
    @classmethod
    def _read_memory(cls, given: Any) -> Any:
        """Ray's users write `memory=1e9`."""
        memory = given.get("memory") if isinstance(given, Mapping) else None
        if isinstance(memory, float) and memory.is_integer():
            return {**given, "memory": int(memory)}
        return given

    @model_validator(mode="after")
    def _check_custom(self) -> Self:
        check_custom(self.custom, ("custom",))
        for name, amount in self.custom.items():
            if fix := refusal(CUSTOM + name, amount):
                raise Problem(f"{amount:g} is not an amount that Ray accepts", fix, ("custom", name))
        return self

    def to_bundle(self) -> dict[str, float]:
        """The amounts in Ray's keys; zeros are left out."""
        amounts = {"CPU": self.cpu, "GPU": self.gpu, "memory": float(self.memory or 0), **self.custom}
        return {name: float(amount) for name, amount in amounts.items() if amount}

    def usual(self, name: str) -> float:
        """The amount of a need (`amounts.Need.name`)."""
        if name.startswith(CUSTOM):
            return self.custom.get(name.removeprefix(CUSTOM), 0.0)
        return float(getattr(self, name) or 0)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(core, handler))
        schema["properties"]["memory"]["anyOf"][0]["type"] = "number"
        return schema


def process_fields(bundle: Mapping[str, float]) -> dict[str, Any]:
    """A bundle in Ray's keys as the fields of `ProcessResources`."""
    memory = bundle.get("memory")
    custom = {name: float(amount) for name, amount in bundle.items() if name not in RAY_KEYS.values()}
    own = {"cpu": float(bundle.get("CPU", 0.0)), "gpu": float(bundle.get("GPU", 0.0))}
    return {**own, "memory": int(memory) if memory else None, "custom": custom}
