"""The spec of a full-scale training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raysweep.spec.document import Name, SpecDocument, StoragePath, Trainable
from raysweep.spec.identity import Kind
from raysweep.spec.jsonable import plain
from raysweep.spec.resources import Scaling
from raysweep.spec.validation import Problem, show

if TYPE_CHECKING:
    import os

Framework = Literal["data_parallel", "torch", "lightgbm"]


def _config(given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise Problem(
            f"expected a mapping, got {show(given)}",
            "give the config of a trial, such as outcome.best.config",
        )
    return plain(given)


class TrainSpec(SpecDocument):
    """What one training run trains, with which config, on what. Frozen; invalid input raises SpecError."""

    kind: ClassVar[Kind] = "train"
    renamed_fields: ClassVar[dict[str, str]] = {
        "scaling_config": "scaling",
        "num_workers": "scaling.num_workers",
        "train_loop_config": "config",
        "resume_from_checkpoint": "warm_start_checkpoint",
        "resources": "scaling",
    }

    name: Name = "train"
    """The run's name; its id starts with it."""
    trainable: Trainable
    """What each worker runs: an import path `package.module:function`, or in Python a callable."""
    config: Annotated[dict[str, Any], BeforeValidator(_config)] = Field(default_factory=dict)
    """What the trainable is given: plain JSON."""
    framework: Framework = "data_parallel"
    """Which Ray Train trainer sets up the workers."""
    scaling: Scaling = Scaling()
    """The workers."""
    warm_start_checkpoint: Annotated[str, Field(min_length=1)] | None = None
    """The URI of a checkpoint to start from."""
    max_failures: int = Field(default=1, ge=0)
    """How many times the run is retried after a failure."""
    storage_path: StoragePath = "~/raysweep"
    """Where the run is stored: a local path, or a URL of scheme file, s3, gs, az or memory."""
    tags: dict[str, str] = Field(default_factory=dict)
    """Free labels; not part of the digest."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            trainable: str | Callable[..., Any],
            name: str = "train",
            config: Mapping[str, Any] = ...,
            framework: str = "data_parallel",
            scaling: Scaling | Mapping[str, Any] | object = ...,
            warm_start_checkpoint: str | None = None,
            max_failures: int = 1,
            storage_path: str | os.PathLike[str] = "~/raysweep",
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.scaling.backend is not None:
            fix = "leave it out: framework says which trainer sets the workers up"
            raise Problem("is for the trials of a sweep", fix, ("scaling", "backend"))
        return self
