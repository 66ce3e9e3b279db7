"""What a sweep starts from: the champion, earlier runs as they were, or as tonight confirms them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainSerializer, PlainValidator

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem, show

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec


class Memory(SpecModel):
    """Earlier runs of the same name, as far as some of their configs, run again, show that they hold."""

    renamed_fields: ClassVar[dict[str, str]] = {"runs": "nights"}

    nights: int = Field(default=14, ge=1)
    """How many earlier runs, the newest."""
    anchors: int = Field(default=4, ge=3)
    """How many of their configs run again, after the champion, to compare tonight by."""
    half_life: Annotated[float, Field(gt=0)] | None = 7
    """After how many runs the scores of one count half; null: all count the same."""


def _warm_start(given: Any) -> Any:
    """Not validated as a union: its errors would name the branches."""
    if given is None or given in ("champion", "last"):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return given
    if isinstance(given, Mapping | Memory):
        return Memory.model_validate(given)
    raise Problem(
        f"expected champion, last, a number of runs or a mapping, got {show(given)}",
        'write such as "last", or {"nights": 14, "anchors": 4}',
    )


_Branches = Literal["champion", "last"] | Annotated[int, Field(ge=1)] | Memory
WarmStartFrom = Annotated[
    _Branches | None,
    PlainValidator(_warm_start, json_schema_input_type=_Branches | None),
    PlainSerializer(lambda given: given.model_dump() if isinstance(given, Memory) else given),
]


def check_memory(spec: SweepSpec) -> None:
    """See that anchors can be compared, and are of use. Raises Problem."""
    memory = spec.warm_start
    if not isinstance(memory, Memory):
        return
    options = spec.search.options
    if not options.is_adaptive or options.wants_rungs:
        why = "learns from rungs" if options.wants_rungs else "does not look at results"
        raise Problem(
            f"anchors are for a search that learns from final results, and {show(spec.search.kind)} {why}",
            "set search to auto or tpe, or warm_start to champion",
            ("warm_start",),
        )
    if spec.others:
        raise Problem(
            "anchors are compared by one metric, and there are several",
            "give one metric, or a number of runs, which are told as they are",
            ("warm_start",),
        )
    count = 1 + memory.anchors + len(spec.points)
    if spec.num_samples is not None and count >= spec.num_samples:
        raise Problem(
            f"the champion, {memory.anchors} anchors and {len(spec.points)} points leave nothing of"
            f" num_samples {spec.num_samples} to search with",
            f"set num_samples to more than {count}, or fewer anchors",
            ("warm_start", "anchors"),
        )
