"""Recognises and unwraps Ray Tune's classes and wrappers by module and name, without importing Ray.

`tune.with_parameters` and `tune.with_resources` wrap a function or a class. The wrapped object gives the
sweep its name and its code digest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeGuard

_UTIL: Final = "ray.tune.trainable.util"
_PARAMETERS: Final = ("with_parameters.<locals>.inner", "with_parameters.<locals>._Inner")
_RESOURCES: Final = ("with_resources.<locals>._trainable", "with_resources.<locals>.ResourceTrainable")


def is_tune_class(found: object) -> TypeGuard[type[Any]]:
    """Whether it is a subclass of `ray.tune.Trainable`."""
    return isinstance(found, type) and any(
        base.__name__ == "Trainable" and base.__module__ == "ray.tune.trainable.trainable"
        for base in found.__mro__
    )


def has_parameters(found: object) -> bool:
    """Whether `tune.with_parameters` made it, perhaps under other wrappers."""
    while True:
        if _is(found, _PARAMETERS):
            return True
        inner = _below(found)
        if inner is found:
            return False
        found = inner


def unwrapped(found: Any) -> Any:
    """What the wrappers are around; itself where there are none."""
    while (inner := _below(found)) is not found:
        found = inner
    return found


def without_resources(found: Any) -> Any:
    """The class that `tune.with_resources` was given; anything else as it is."""
    while isinstance(found, type) and _is(found, _RESOURCES):
        found = _below(found)
    return found


def resources_of(found: Any) -> Any:
    """What `tune.with_resources` asked for: a PlacementGroupFactory, a function of the config, or None."""
    while True:
        if isinstance(found, type) and _is(found, _RESOURCES):
            return _held(vars(found)["default_resource_request"].__func__, "pgf")
        asked = None if isinstance(found, type) else getattr(found, "_resources", None)
        inner = _below(found)
        if asked is not None or inner is found:
            return asked
        found = inner


def _is(found: Any, names: tuple[str, ...]) -> bool:
    return getattr(found, "__module__", "") == _UTIL and getattr(found, "__qualname__", "") in names


def _below(found: Any) -> Any:
    if not _is(found, _PARAMETERS + _RESOURCES):
        return found
    return found.__bases__[0] if isinstance(found, type) else _held(found, "trainable")


def _held(function: Callable[..., Any], name: str) -> Any:
    """What a function's closure holds under a name."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return cells[name].cell_contents
