"""Configs that a sweep runs first: what can be said of them without their domains, which may need imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from raysweep.documents.json_values import plain
from raysweep.documents.validation import Problem, did_you_mean, show
from raysweep.search.spec import SearchSpec


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


def check_points(
    points: tuple[dict[str, Any], ...], search: SearchSpec, space: Mapping[str, Any], num_samples: int | None
) -> None:
    """See that there is room for them, and that the space has their parameters. Raises Problem."""
    if not points:
        return
    if search.options.is_listed:
        raise Problem(
            f"cannot be combined with the {search.kind} search", "put them into its configs", ("points",)
        )
    for number, point in enumerate(points):
        for name in point:
            if name not in space:
                problem = f"{name!r} is not in param_space"
                raise Problem(problem, did_you_mean(name, space), ("points", number))
    if num_samples is not None and len(points) > num_samples and not search.adds_points(space):
        raise Problem(
            f"{len(points)} configs are more than num_samples {num_samples}",
            f"set num_samples to {len(points)} or more, or leave some out",
            ("points",),
        )
