"""`Command`: the list of arguments that starts a program, and its checks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from raysweep.documents.placeholders import is_placeholder, names_in
from raysweep.documents.validation import Problem, show

SEVERAL: Final = ("args", "resume")
"""Placeholders that stand for several arguments."""
EXAMPLE: Final = 'write a list such as [python, train.py, "{args}"]'


def _command(given: Any) -> Any:
    if isinstance(given, str):
        raise Problem(
            f"expected a list of arguments, got the text {show(given)}",
            f"write {_as_list(given)}; for a shell, [bash, -c, …]",
        )
    if not isinstance(given, Sequence):
        raise Problem(f"expected a list of arguments, got {show(given)}", EXAMPLE)
    if not given:
        raise Problem("is empty", EXAMPLE)
    items = [_argument(item, index) for index, item in enumerate(given)]
    if not items[0].strip():
        raise Problem("names no program", EXAMPLE, (0,))
    for name in SEVERAL:
        for index, item in enumerate(items):
            if name in names_in(item) and not is_placeholder(item, name):
                fix = f'write "{{{name}}}" as an argument of its own'
                raise Problem(f"{show(item)} has {{{name}}}, which is several arguments", fix, (index,))
    return tuple(items)


def _argument(item: Any, index: int) -> str:
    if isinstance(item, bool) or not isinstance(item, str | int | float):
        raise Problem(f"expected text, got {show(item)}", "write it in quotes", (index,))
    if "\0" in str(item):
        raise Problem("has a null character, which no argument can have", "remove it", (index,))
    return str(item)


def _as_list(text: str) -> str:
    try:
        return f"[{', '.join(shlex.split(text))}]"
    except ValueError:
        return "a list"


Command = Annotated[
    tuple[str, ...],
    BeforeValidator(_command),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}),
]
