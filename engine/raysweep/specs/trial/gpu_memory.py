"""`resources.gpu_memory`: an amount, or an amount with the word that it is enforced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainSerializer, ValidatorFunctionWrapHandler, WrapValidator

from raysweep.documents.base import SpecModel
from raysweep.documents.sizes import Bytes


class GpuMemory(SpecModel):
    """The long form of `gpu_memory`."""

    size: Annotated[Bytes, Field(ge=1)]
    """The memory of one GPU, in bytes or as `10GiB`."""
    enforce: bool = False
    """Keep PyTorch, JAX and TensorFlow to 90 % of it; the rest is for the CUDA context."""


def _gpu_memory(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if not isinstance(given, Mapping | GpuMemory):
        return handler(given)
    found = given if isinstance(given, GpuMemory) else GpuMemory.model_validate(given)
    return found if found.enforce else found.size


if TYPE_CHECKING:
    GpuMemorySpec = int | GpuMemory
else:
    # The plain form alone is validated by pydantic: of a union, each wrong value would have two errors.
    GpuMemorySpec = Annotated[
        Annotated[Bytes, Field(ge=1)],
        WrapValidator(_gpu_memory, json_schema_input_type=Annotated[Bytes, Field(ge=1)] | GpuMemory),
        PlainSerializer(lambda value: value if isinstance(value, int) else value.model_dump()),
    ]
