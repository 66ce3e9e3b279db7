"""The field `registry` of a pipeline: where champions are registered, `mlflow` or a class by import path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from raysweep.documents.base import SpecModel
from raysweep.documents.code.plugins import Plugins
from raysweep.documents.kinds import CLASS_EXAMPLE, KindSpec, PluginOptions, load_kinds
from raysweep.documents.validation import Problem

KINDS: Final[Mapping[str, str]] = {"mlflow": "raysweep.hooks.mlflow_registry:MlflowRegistryOptions"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A champion with its model, as a registry gets it."""

    id: str
    """Of this champion: the same however often it is registered, also after a rollback to it."""
    name: str
    """The champion's name."""
    metric: str
    mode: str
    data: str = ""
    """The data set that it was compared on, as the gate names it."""
    source: str
    """The address of the model: that of the training, else the trial's checkpoint."""
    run_id: str = ""
    """The training; empty where the model is a trial's checkpoint."""
    sweep_id: str
    trial_id: str = ""
    key: str = ""
    mean: float
    """Of the metric, over the gate's seeds."""
    config: Mapping[str, Any] = field(default_factory=dict)
    code_digest: str = ""
    spec_digest: str = ""


class ModelRegistry:
    """The base of every registry: called again after an error, and after a kill that may hide a success."""

    def make_champion(self, release: Release) -> str:
        """Register the model, unless this release is registered, and let it be the champion.

        Returns: The registry's name of the version.

        Raises: SinkDownError: it does not answer, and is asked again; any other error is told, and it is
            asked again with the next night.
        """
        raise NotImplementedError

    def close(self) -> None:
        """It is not called any more."""


class RegistryOptions(SpecModel):
    """Options of a registry of raysweep's own. Imported with the spec: keep it light."""

    def check(self) -> None:
        """See, before a pipeline starts, that it can be used in this process. Raises: SpecError."""

    def make(self) -> ModelRegistry:
        """The registry. Raises: SinkDownError, SpecError."""
        raise NotImplementedError


class RegistrySpec(KindSpec):
    """A registry of models: `mlflow`, or `module:Class`, with its options."""

    kinds: ClassVar[Mapping[str, type[RegistryOptions]]] = load_kinds(KINDS)
    field = "registry"

    kind: str
    """The registry, or the import path of a class with `make_champion`."""
    options: RegistryOptions | PluginOptions
    """Its options. They are stored: secrets belong into the environment."""

    @classmethod
    def _left_open(cls) -> dict[str, Any]:
        raise Problem("names no registry", f'write "{next(iter(cls.kinds))}" or "{CLASS_EXAMPLE}"')


PLUGINS: Final[Plugins[ModelRegistry]] = Plugins(
    "registry", ModelRegistry, "raysweep.hooks.model_registry", required=("make_champion",)
)


def check_registry(spec: RegistrySpec) -> None:
    """See that a registry can be used here. Raises: SpecError."""
    if isinstance(spec.options, RegistryOptions):
        spec.options.check()
        return
    PLUGINS.load(spec.kind)
    PLUGINS.check_options(spec.kind, spec.options)


def make_registry(spec: RegistrySpec) -> ModelRegistry:
    """The registry of a spec. Raises: SpecError; SinkDownError."""
    if isinstance(spec.options, RegistryOptions):
        return spec.options.make()
    PLUGINS.load(spec.kind)
    return PLUGINS.make(spec.kind, spec.options, None)
