"""Recognises and unwraps Ray Tune's classes and wrappers by module and name, without importing Ray.

`tune.with_parameters` and `tune.with_resources` wrap a function or a class. The wrapped object gives the
sweep its name and its code digest.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any, Final, TypeGuard

STOP_RULES: Final = "__raysweep_stop_rules__"
"""An attribute of a function: what of its reports says that its trial ends."""
_DEPTH: Final = 5
"""The number of wrappers that are looked through."""
_UTIL: Final = "ray.tune.trainable.util"
_PARAMETERS: Final = ("with_parameters.<locals>.inner", "with_parameters.<locals>._Inner")
_RESOURCES: Final = ("with_resources.<locals>._trainable", "with_resources.<locals>.ResourceTrainable")


def is_tune_class(found: object) -> TypeGuard[type[Any]]:
    """True if it is a subclass of `ray.tune.Trainable`."""
    return isinstance(found, type) and any(
        base.__name__ == "Trainable" and base.__module__ == "ray.tune.trainable.trainable"
        for base in found.__mro__
    )


def has_own(cls: type[Any], name: str) -> bool:
    """True if a class of Tune's has a method that is not Tune's own."""
    owner = next(base for base in cls.__mro__ if name in vars(base))
    return owner.__module__ != "ray.tune.trainable.trainable"


def has_parameters(found: object, depth: int = 0) -> bool:
    """True if `tune.with_parameters` made it, or a callable that it holds."""
    if _is(found, _PARAMETERS):
        return True
    return depth < _DEPTH and any(has_parameters(part, depth + 1) for part in _parts(found))


def _parts(found: Any) -> Iterator[Any]:
    """The callables that a callable holds."""
    if (inner := _below(found)) is not found:
        yield inner
    elif isinstance(found, functools.partial):
        yield found.func
    elif isinstance(found, types.MethodType):
        yield found.__func__
    elif isinstance(found, types.FunctionType):
        yield from (value for value in cells_of(found).values() if callable(value))


def unwrapped(found: Any) -> Any:
    """The object inside the wrappers; itself where there are none."""
    while (inner := _below(found)) is not found:
        found = inner
    return found


def without_resources(found: Any) -> Any:
    """The class that `tune.with_resources` was given; anything else as it is."""
    while isinstance(found, type) and _is(found, _RESOURCES):
        found = _below(found)
    return found


def resources_of(found: Any) -> Any:
    """The request of `tune.with_resources`: a PlacementGroupFactory, a function of the config, or None."""
    while True:
        if isinstance(found, type) and _is(found, _RESOURCES):
            return _held(vars(found)["default_resource_request"].__func__, "pgf")
        asked = None if isinstance(found, type) else getattr(found, "_resources", None)
        inner = _below(found)
        if asked is not None or inner is found:
            return asked
        found = inner


def _is(found: Any, names: tuple[str, ...]) -> bool:
    if getattr(found, "__module__", "") != _UTIL or getattr(found, "__qualname__", "") not in names:
        return False
    # `functools.wraps` gives these names to other functions.
    code = getattr(found, "__code__", None)
    return code is None or code.co_qualname == found.__qualname__


def _below(found: Any) -> Any:
    if not _is(found, _PARAMETERS + _RESOURCES):
        return found
    return found.__bases__[0] if isinstance(found, type) else _held(found, "trainable")


def _held(function: Any, name: str) -> Any:
    """The value under a name in a function's closure."""
    return cells_of(function)[name]


def cells_of(function: Any) -> dict[str, Any]:
    """The values in a function's closure so far, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  an empty cell raises here
    except ValueError:
        return False
    return True
