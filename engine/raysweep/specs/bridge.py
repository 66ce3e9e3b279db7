"""The bridge of a training: configs that run at a scale between before the training, and what they gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem, did_you_mean
from raysweep.errors import SpecError
from raysweep.space.scales import Scale, ScaleField, show_scale
from raysweep.specs.policies import Limit

Way = Literal["carried", "copied", "lower", "upper"]
EXAMPLE: Final = "write such as {scale: {rows: 160000}, seeds: 2}"


class BridgeSpec(SpecModel):
    """Runs the carried config, the copied one and two neighbours before the training; the best is trained."""

    scale: ScaleField = Field(default_factory=dict)
    """Their scale: between the sweep's largest scale and the training's. Default with `until`: the
    training's scale."""
    until: dict[str, Limit] = Field(default_factory=dict)
    """Or how far each runs at the training's scale: the first part of the run, `{training_iteration: 5}`."""
    seeds: int = Field(default=2, ge=2)
    """Seeds that each config runs with; all get the same."""
    seed_param: Annotated[str, Field(min_length=1)] | None = None
    """A parameter of the config that gets the seed; default: the trainable uses the seed of its context."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.scale) == bool(self.until):
            raise Problem("requires one of scale and until", EXAMPLE)
        return self


class BridgedConfig(SpecModel):
    """One config of a bridge, and its scores."""

    way: Way
    """Its way from the sweep's best config; `lower` and `upper` have the ends of the law's intervals."""
    config: dict[str, Any] = Field(default_factory=dict)
    """As it ran."""
    scores: list[float | None] = Field(default_factory=list)
    """By seed; None where the trial gave none."""
    gain: float | None = None
    """The mean difference to the config that it has to beat, by seed; positive is better."""
    error: float | None = None
    """The standard error of the gain."""
    at_least: float | None = None
    """The gain is above this with 90 % confidence, however many configs are compared."""


class Bridged(SpecModel):
    """The trials of a bridge, the winner, and the reason."""

    scale: dict[str, int | float] = Field(default_factory=dict)
    """The scale at which its trials ran."""
    sweep_id: str = ""
    """Its sweep, stored beside the training; empty where there was nothing to compare."""
    ran: list[BridgedConfig] = Field(default_factory=list)
    won: Way = "copied"
    """The way in which the trained config was carried."""
    why: str = ""
    began_at: float = 0.0
    """The begin of it, in UTC seconds: a time of day as the training's deadline counts from then."""
    active_s: float = 0.0
    """The time that it was at work: that much less of `stop.time_budget_s` is left to the training."""
    asked: dict[str, Any] = Field(default_factory=dict)
    """`config` and `carried` of the training's spec before the bridge: what the law said without it."""

    @property
    def line(self) -> str:
        """`bridge at rows=160000: carried won: no config beats it ...`."""
        return f"bridge at {show_scale(self.scale) or 'the full scale'}: {self.won} won: {self.why}"


def as_asked(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a training's spec as they were before its bridge decided."""
    carried = fields.get("carried") or {}
    bridged = carried.get("bridge") if isinstance(carried, Mapping) else None
    return {**fields, **bridged["asked"]} if bridged else fields


def check_bridge(bridge: BridgeSpec, largest: Scale, target: Scale) -> None:
    """See that a bridge is between two scales. Raises SpecError.

    Args:
        bridge: The bridge.
        largest: The sweep's largest scale.
        target: The training's.
    """
    if not largest:
        raise SpecError("bridge", "the sweep names no scale", "give the sweep scale or scales")
    for name, value in bridge.scale.items():
        if name not in largest:
            raise SpecError(
                f"bridge.scale.{name}", "the sweep has no such scale", did_you_mean(name, largest)
            )
        low, high = sorted((largest[name], target[name]))
        if not low <= value <= high:
            problem = (
                f"{value:g} is not between the sweep's {largest[name]:g} and the training's {target[name]:g}"
            )
            raise SpecError(f"bridge.scale.{name}", problem, "choose a value between")
    here = {**largest, **bridge.scale}
    if bridge.scale and (here == dict(largest) or all(here[name] == target[name] for name in here)):
        which = "sweep" if here == dict(largest) else "training"
        problem = f"{show_scale(here)} is the scale of the {which}"
        raise SpecError("bridge.scale", problem, "choose one between")
