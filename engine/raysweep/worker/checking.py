"""What can be told of a trainable before a trial runs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from raysweep.errors import TrainableImportError

_FIELD: Final = "trainable"


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
        raise TrainableImportError(_FIELD, f"{name!r} is an async function, which nobody would await", fix)
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
