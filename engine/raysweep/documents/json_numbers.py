"""Field types of stored documents: NaN and infinity written by name, and counts of trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, GetCoreSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema, core_schema

_ENDS: Final = ("completed", "stopped", "failed", "cancelled")
_NAMES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def with_names(value: Any) -> Any:
    """NaN and infinity by name, as JSON has no numbers for them."""
    if type(value) is dict and _are_finite(value):
        return value.copy()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {key: with_names(item) for key, item in value.items()}
    return [with_names(item) for item in value] if isinstance(value, list | tuple) else value


def without_names(value: Any) -> Any:
    """The numbers that `"NaN"`, `"Infinity"` and `"-Infinity"` stand for; all else as it is."""
    if type(value) is dict and _are_finite(value):
        return value.copy()
    if isinstance(value, str):
        return _NAMES.get(value, value)
    if isinstance(value, dict):
        return {key: without_names(item) for key, item in value.items()}
    return [without_names(item) for item in value] if isinstance(value, list | tuple) else value


def _are_finite(values: dict[Any, Any]) -> bool:
    """True if all are numbers that JSON has, as nearly all metrics are: these have no names."""
    for value in values.values():
        if type(value) is not float and type(value) is not int:
            return False
        if not -math.inf < value < math.inf:
            return False
    return True


Metrics = Annotated[
    dict[str, Any], BeforeValidator(without_names), PlainSerializer(with_names, when_used="json")
]
"""The values that a trial reported; NaN and infinity are "NaN", "Infinity" and "-Infinity" in JSON."""
Number = Annotated[float, PlainSerializer(with_names, when_used="json")]
"""pydantic reads the names of NaN and infinity itself."""


class Counts(dict[str, int]):
    """The number of trials in each state."""

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Self:
        """The counts, without those that are 0."""
        return cls({state: number for state, number in counts.items() if number})

    @property
    def finished(self) -> int:
        """The number that came to an end of their own, or were stopped early."""
        return self._sum("completed", "stopped")

    @property
    def ended(self) -> int:
        """The number that have ended, in whatever way."""
        return self._sum(*_ENDS)

    @property
    def failed(self) -> int:
        """The number that have failed."""
        return self._sum("failed")

    @property
    def total(self) -> int:
        """The number of trials."""
        return self._sum(*self)

    @property
    def shown(self) -> dict[str, int]:
        """As people see them: a trial that is asked to stop still runs, and one in line is not counted."""
        number = {state: self.get(state, 0) for state in (*_ENDS, "running", "waiting")}
        return Counts.of(number | {"running": self._sum("running", "stopping")})

    def _sum(self, *states: str) -> int:
        return sum(self.get(state, 0) for state in states)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, handler(dict[str, int]))
