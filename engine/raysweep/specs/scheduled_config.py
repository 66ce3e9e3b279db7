"""One config of a schedule: outcomes name it too, so it needs no other part of a spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, model_serializer

from raysweep.documents.base import SpecModel
from raysweep.documents.json_values import plain
from raysweep.documents.tuples import marked
from raysweep.documents.validation import Problem, show


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
    """The steps, which are reports of the trial, before it took over; it made the next one."""
    config: Annotated[dict[str, Any], BeforeValidator(check_config)]
    """The config of the trainable from there on."""

    @model_serializer(mode="plain")
    def _write(self) -> dict[str, Any]:
        return {"from": self.start, "config": marked(self.config)}
