"""Uses of Ray in the code of a tuner's trainable, found without running it."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from raysweep.documents.code.tune_objects import cells_of, is_tune_class, unwrapped
from raysweep.threads import loaded_module

RETURNED: Final = "_metric"
"""Tune's name for a number that a function returns."""
_MOST: Final = 2000
_CALLS: Final = frozenset({"cluster_resources", "data", "get", "init", "put", "remote", "util", "wait"})
_CONNECTED: Final = frozenset({"ActorClass", "ActorHandle", "Dataset", "ObjectRef", "RemoteFunction"})
"""Objects of Ray that only a process connected to Ray can use."""


def uses_ray(trainable: Any) -> bool:
    """True if it, or what it holds, uses Ray itself: not only `ray.tune` and `ray.train`."""
    return any(map(_is_connected, _held_by(trainable)))


def returns_a_number(trainable: Any) -> bool:
    """True if it is a function that reports nothing by a call of `report`."""
    if isinstance(trainable, str) or is_tune_class(trainable):
        return False
    codes = [code for found in _held_by(trainable) for code in _codes(found)]
    return bool(codes) and not any("report" in code.co_names for code in codes)


def _held_by(trainable: Any) -> list[Any]:
    """It, and what its closures, defaults, methods and globals hold: the first `_MOST` of these."""
    found, seen = [trainable], {id(trainable)}
    for each in found:
        for part in islice(_parts(unwrapped(each)), _MOST - len(found)):
            if id(part) not in seen:
                seen.add(id(part))
                found.append(part)
    return found


def _parts(found: Any) -> Iterator[Any]:
    if isinstance(found, functools.partial):
        yield from (found.func, *found.args, *found.keywords.values())
    elif isinstance(found, types.MethodType):
        yield from (found.__func__, found.__self__)
    elif isinstance(found, types.FunctionType):
        yield from cells_of(found).values()
        yield from found.__defaults__ or ()
        names = {name for code in _codes(found) for name in code.co_names}
        yield from (value for name, value in _own_globals(found).items() if name in names)
    elif is_tune_class(found):
        yield from (each for each in vars(found).values() if isinstance(each, types.FunctionType))
    elif isinstance(found, dict):
        yield from found.values()
    elif isinstance(found, list | tuple):
        yield from found
    elif not isinstance(found, type | types.ModuleType) and type(found).__module__ != "builtins":
        yield from vars(found).values() if hasattr(found, "__dict__") else ()


def _own_globals(function: types.FunctionType) -> dict[str, Any]:
    """Of a library's function none: what it does is its own."""
    return function.__globals__ if str(function.__module__).partition(".")[0] != "ray" else {}


def _codes(found: Any) -> Iterator[types.CodeType]:
    code = found if isinstance(found, types.CodeType) else getattr(found, "__code__", None)
    if code is not None:
        yield code
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from _codes(constant)


def _is_connected(found: Any) -> bool:
    if isinstance(found, types.FunctionType):
        return any(_calls_ray(code, found.__globals__) for code in _codes(found))
    module = type(found).__module__.partition(".")[0]
    return module == "ray" and any(base.__name__ in _CONNECTED for base in type(found).__mro__)


def _calls_ray(code: types.CodeType, known: dict[str, Any]) -> bool:
    """True if it names the module `ray`, of its globals or imported in it, and one of the calls of that."""
    is_ray = "ray" not in known or known["ray"] is loaded_module("ray")
    return is_ray and ("ray.data" in code.co_names or ("ray" in code.co_names and _names_call(code)))


def _names_call(code: types.CodeType) -> bool:
    return not _CALLS.isdisjoint(code.co_names)
