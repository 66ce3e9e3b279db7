"""A schedule of configs: what a population's best trial was trained with, one config after the other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_serializer

from raysweep.documents.base import SpecModel
from raysweep.documents.json_values import plain
from raysweep.documents.tuples import marked
from raysweep.documents.validation import Problem, show

_FIX: Final = 'give a list such as [{"from": 0, "config": {"lr": 0.1}}, {"from": 20, "config": {"lr": 0.05}}]'


def check_config(given: Any) -> Any:
    """A config as plain JSON, with the tuples that it has. Raises Problem."""
    if not isinstance(given, Mapping):
        raise Problem(
            f"expected a mapping, got {show(given)}",
            "give the config of a trial, such as outcome.best.config",
        )
    return plain(given, keeps_tuples=True)


class ScheduledConfig(SpecModel):
    """One config of a schedule. In JSON and YAML: `{from: 20, config: {…}}`."""

    model_config = ConfigDict(populate_by_name=True)

    start: int = Field(ge=0, alias="from")
    """How many steps, which are reports of the trial, lay behind when it took over; it made the next one."""
    config: Annotated[dict[str, Any], BeforeValidator(check_config)]
    """What the trainable was given from there on."""

    @model_serializer(mode="plain")
    def _write(self) -> dict[str, Any]:
        return {"from": self.start, "config": marked(self.config)}


def _as_tuple(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return tuple(given)
    raise Problem(f"expected a list, got {show(given)}", _FIX)


def _check_order(given: tuple[ScheduledConfig, ...]) -> tuple[ScheduledConfig, ...]:
    starts = [each.start for each in given]
    if starts and starts[0] != 0:
        raise Problem(f"begins from {starts[0]}", "let the first config be from 0")
    for number, (before, after) in enumerate(pairwise(starts), start=1):
        if after <= before:
            raise Problem(
                f"{after} comes after {before}", "give the configs in order, each from once", (number, "from")
            )
    return given


Schedule = Annotated[tuple[ScheduledConfig, ...], BeforeValidator(_as_tuple), AfterValidator(_check_order)]
