"""Checks of a trainable before a trial runs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from raysweep.documents.code import tune_objects
from raysweep.errors import TrainableImportError
from raysweep.worker.sweep_info import SweepPlace

_FIELD: Final = "trainable"


def check_resources(found: Callable[..., Any], place: SweepPlace) -> None:
    """See that the sweep gives what `tune.with_resources` asks for, unless that follows from the config.

    Raises:
        TrainableImportError: It gives something else.
    """
    asked = tune_objects.resources_of(found)
    if place.is_sized or asked is None or not hasattr(asked, "bundles"):
        return  # a function of the config says nothing before there is one
    total: dict[str, float] = {}
    for bundle in asked.bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    if {name: amount for name, amount in total.items() if amount} != place.resources:
        raise TrainableImportError(
            _FIELD,
            f"tune.with_resources asks for {total}, and the sweep's resources are {place.resources}",
            "write the same into resources of the spec, or take tune.with_resources away",
        )


def check_forkable(is_forkable: bool) -> None:
    """See that a process that has not imported the trainable can be forked.

    Raises:
        TrainableImportError: What connects a gang has initialised CUDA.
    """
    if not is_forkable:
        problem = "CUDA is initialised before its module is imported, and no forked process can use it"
        raise TrainableImportError(_FIELD, problem, "set isolation: actor")


def check_trainable(found: Callable[..., Any]) -> None:
    """See that it can be called with a config, and does its work when it is.

    Raises:
        TrainableImportError: It is an async function, a generator, or takes another number of arguments.
    """
    name = getattr(found, "__qualname__", type(found).__name__)
    is_plain = inspect.isroutine(found) or inspect.isclass(found)
    called = found if is_plain else type(found).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        fix = "make it a plain function; what has to be awaited, give to asyncio.run in it"
        raise TrainableImportError(_FIELD, f"{name!r} is an async function, which is never awaited", fix)
    if inspect.isgeneratorfunction(called):
        fix = "call raysweep.report(…) where it yields"
        raise TrainableImportError(_FIELD, f"{name!r} yields, so that a call would run nothing of it", fix)
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return  # of a builtin, say
    try:
        signature.bind({})
    except TypeError as error:
        fix = "let it take one argument, the config (a dict)"
        raise TrainableImportError(
            _FIELD, f"{name}{signature} cannot be called with a config: {error}", fix
        ) from None
