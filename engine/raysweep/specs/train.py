"""The spec of a full-scale training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import (
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from raysweep.hooks.spec import with_masked
from raysweep.specs.bridge import BridgeSpec
from raysweep.specs.carried import CarriedConfig
from raysweep.specs.checks.train import check_train, with_scale
from raysweep.specs.scheduled_config import ScheduledConfig
from raysweep.specs.train_fields import TrainFields
from raysweep.specs.train_parts import TrainFailure, TrainStop
from raysweep.specs.trial.program import ProgramSpec, require_command, with_runner
from raysweep.specs.trial.scaling import Scaling

if TYPE_CHECKING:
    import os


class TrainSpec(TrainFields):
    """The spec of one training run: code, config and resources. Frozen; invalid input raises SpecError."""

    model_config = ConfigDict(defer_build=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            trainable: str | Callable[..., Any] | None = None,
            command: Sequence[str | float] | None = None,
            program: ProgramSpec | Mapping[str, Any] | None = None,
            name: str = "train",
            config: Mapping[str, Any] = ...,
            scale: Mapping[str, float] = ...,
            transfer: Mapping[str, str] = ...,
            bridge: BridgeSpec | Mapping[str, Any] | None = None,
            carried: CarriedConfig | Mapping[str, Any] | None = None,
            schedule: Sequence[Mapping[str, Any] | ScheduledConfig] = ...,
            framework: str = "data_parallel",
            scaling: Scaling | Mapping[str, Any] | object = ...,
            data: Mapping[str, str] = ...,
            warm_start_checkpoint: str | None = None,
            datasets: Mapping[str, Any] = ...,
            failure: TrainFailure | Mapping[str, Any] = ...,
            stop: TrainStop | Mapping[str, Any] = ...,
            callbacks: Sequence[object] = (),
            storage_path: str | os.PathLike[str] = "~/raysweep",
            tags: Mapping[str, str] = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return with_scale(with_runner(given)) if isinstance(given, Mapping) else given

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON Schema (2020-12) of the JSON and YAML form. It accepts all that the model accepts."""
        return require_command(super().json_schema())

    @model_serializer(mode="wrap")
    def _write(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """With `trainable`, or with `command` and `program`: the spec has one of the two."""
        fields: dict[str, Any] = write(self)
        fields.pop("trainable" if self.command is not None else "command", None)
        if self.command is None:
            fields.pop("program", None)
        for name in ("scale", "transfer", "bridge", "carried", "callbacks"):
            if not getattr(self, name):
                fields.pop(name, None)
        return fields

    def to_stored(self) -> dict[str, Any]:
        """As `to_dict`, for the storage: the secrets of callbacks are masked."""
        return with_masked(self.to_dict(), self.callbacks)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_train(self)
        return self
