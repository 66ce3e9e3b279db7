"""Field types of a sweep's spec: metrics, search space, points, repeats and warm start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from raysweep.documents.base import SpecModel
from raysweep.documents.json_values import plain
from raysweep.documents.mode import MODES, Mode
from raysweep.documents.validation import WHOLE, Problem, did_you_mean, show
from raysweep.errors import SpecError
from raysweep.search.machinery.repeat import Repeat
from raysweep.space.parsed import normalise, space_to_json

Isolation = Literal["worker", "process", "actor", "inline"]


class WorkerOptions(SpecModel):
    """The life of a warm worker."""

    max_trials: Annotated[int, Field(ge=1)]
    """After so many trials, or one that failed, the worker is replaced by a new one."""


class WorkerIsolation(SpecModel):
    """The long form of `isolation: worker`."""

    worker: WorkerOptions
    """Its options."""


class ShareSpec(SpecModel):
    """The part of a cluster that a sweep gets beside other sweeps."""

    weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 1.0
    """The part that it gets for each slot of a sweep with weight 1, while both want more than there is."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """A sweep of a higher priority gets all that it wants before one of a lower gets anything."""


def _isolation(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if not isinstance(given, Mapping):
        return given if isinstance(given, WorkerIsolation) else handler(given)
    if list(given) != ["worker"]:
        fix = "write worker, process, actor, inline, or {worker: {max_trials: 50}}"
        raise Problem(f"only worker has options, got {show(dict(given))}", fix)
    if not given["worker"]:
        return "worker"
    try:
        return WorkerIsolation(worker=WorkerOptions.model_validate(given["worker"]))
    except SpecError as error:
        under = () if error.field in ("", WHOLE) else tuple(error.field.split("."))
        raise Problem(error.problem, error.fix, ("worker", *under)) from None


if TYPE_CHECKING:
    IsolationSpec = Isolation | WorkerIsolation
else:
    # The literal alone is validated: of a union, each wrong word would have two errors.
    IsolationSpec = Annotated[
        Isolation,
        WrapValidator(_isolation, json_schema_input_type=Isolation | WorkerIsolation),
        PlainSerializer(lambda value: value if isinstance(value, str) else value.model_dump()),
    ]
ParamSpace = Annotated[
    dict[str, Any],
    BeforeValidator(normalise),
    PlainSerializer(space_to_json, return_type=dict[str, Any]),
    WithJsonSchema(
        {"type": "object"}
    ),  # json_schema() puts space_schema() here: pydantic knows no foreign $ref
]


def _none_one_or_several(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "array", "items": schema, "minItems": 1}, {"type": "null"}]}


METRIC_SCHEMA: Final = _none_one_or_several({"type": "string", "minLength": 1})
MODE_SCHEMA: Final = _none_one_or_several({"type": "string", "enum": list(MODES)})


def with_goal(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a spec with metric and mode where it has both or none. Raises Problem."""
    metric, mode = given.get("metric"), given.get("mode")
    if metric is None:
        if mode is not None:
            fix = "add it: which reported value ranks the trials; or leave mode out, and nothing is ranked"
            raise Problem(f"is required with mode: {show(mode)}", fix, ("metric",))
        return {name: value for name, value in given.items() if name not in ("metric", "mode")}
    if metric == "":
        raise Problem("is empty", "give it a value, or leave it out: nothing is ranked then", ("metric",))
    if mode is None:
        raise Problem("is required with a metric", "add it: min or max", ("mode",))
    return given


def split_metrics(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a spec with the first metric and its mode, and the others beside them. Raises Problem."""
    metrics, modes = given.get("metric"), given.get("mode")
    if not isinstance(metrics, list | tuple) and not isinstance(modes, list | tuple):
        return given
    if not isinstance(metrics, list | tuple):
        raise Problem(f"has {len(modes or ())} for one metric", "give one: min or max", ("mode",))
    if not isinstance(modes, list | tuple):
        raise Problem(
            f"is {show(modes)} for {len(metrics)} metrics", "give one for each, such as [max, min]", ("mode",)
        )
    if given.get("others"):
        raise Problem("lists all metrics already", "leave others out", ("metric",))
    if len(metrics) != len(modes):
        problem = f"has {len(modes)} for {len(metrics)} metrics"
        raise Problem(problem, "give one for each, in their order", ("mode",))
    _check_metrics(metrics, modes)
    return {
        **given,
        "metric": metrics[0],
        "mode": modes[0],
        "others": dict(zip(metrics[1:], modes[1:], strict=True)),
    }


def _check_metrics(metrics: list[Any] | tuple[Any, ...], modes: list[Any] | tuple[Any, ...]) -> None:
    if not metrics:
        raise Problem("lists no metric", "name at least one", ("metric",))
    for place, metric in enumerate(metrics):
        if not isinstance(metric, str) or not metric:
            raise Problem(
                f"expected a metric's name, got {show(metric)}", "write its name", ("metric", place)
            )
        if metric in metrics[:place]:
            raise Problem(f"{show(metric)} is there twice", "leave one of them out", ("metric", place))
    for place, mode in enumerate(modes):
        if mode not in MODES:
            raise Problem(f"{show(mode)} is not known here", did_you_mean(str(mode), MODES), ("mode", place))


def join_metrics(fields: dict[str, Any], others: Mapping[str, Mode]) -> dict[str, Any]:
    """The fields as they are written: with all metrics where there are several."""
    fields.pop("others", None)
    if not fields["metric"]:
        return fields | {"metric": None, "mode": None}
    if others:
        fields["metric"] = [fields["metric"], *others]
        fields["mode"] = [fields["mode"], *others.values()]
    return fields


def _points(given: Any) -> Any:
    if not isinstance(given, list | tuple):
        raise Problem(f"expected a list of configs, got {show(given)}", 'write [{"lr": 0.1}, {"lr": 0.2}]')
    for number, point in enumerate(given):
        if not isinstance(point, Mapping) or not point:
            raise Problem(f"expected a config, got {show(point)}", 'write {"lr": 0.1}', (number,))
    return tuple(plain(dict(point), (number,)) for number, point in enumerate(given))


Points = Annotated[
    tuple[dict[str, Any], ...],
    BeforeValidator(_points),
    WithJsonSchema({"type": "array", "items": {"type": "object", "minProperties": 1}}),
]


def _times(given: Any) -> Any:
    is_number = isinstance(given, int) and not isinstance(given, bool)
    return {"times": given} if is_number else given


RepeatSpec = Annotated[Repeat, BeforeValidator(_times, json_schema_input_type=Repeat | int)]


class Memory(SpecModel):
    """Earlier runs of the same name, as far as some of their configs, run again, show that they hold."""

    renamed_fields: ClassVar[dict[str, str]] = {"runs": "nights"}

    nights: int = Field(default=14, ge=1)
    """The number of earlier runs, the newest."""
    anchors: int = Field(default=4, ge=3)
    """The number of their configs that run again, after the champion, to compare tonight by."""
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
