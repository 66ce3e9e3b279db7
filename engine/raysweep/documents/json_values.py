"""Values that JSON can hold, copied out of what Python users give."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from raysweep.documents.tuples import is_marked
from raysweep.documents.validation import Path, Problem, show


def unwrap_number(value: Any) -> Any:
    """A numpy scalar as the Python number it holds; anything else as it is."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value


def plain(value: Any, path: Path = (), *, keeps_tuples: bool = False) -> Any:
    """A deep copy made of what JSON holds: None, bool, int, float, str, list, dict with string keys.

    Tuples become lists and numpy scalars become numbers. Raises Problem for anything else, with the path.
    `keeps_tuples`: tuples stay tuples, and `{"tuple": [...]}` becomes one (see `raysweep.documents.tuples`).
    """
    if type(value) is int and -(2**63) <= value < 2**63:  # most values of a long choice
        return value
    value = unwrap_number(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return _integer(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Problem(f"{value} cannot be written in JSON", "use a finite number or a string", path)
        return float(value)
    if keeps_tuples and is_marked(value):
        return tuple(plain(value["tuple"], (*path, "tuple"), keeps_tuples=True))
    if isinstance(value, Mapping):
        return {
            text_key(key, path): plain(item, (*path, str(key)), keeps_tuples=keeps_tuples)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        items = [plain(item, (*path, n), keeps_tuples=keeps_tuples) for n, item in enumerate(value)]
        return tuple(items) if keeps_tuples and isinstance(value, tuple) else items
    raise Problem(
        f"{show(value)} is a {type(value).__name__}, which JSON cannot hold",
        "use numbers, strings, booleans, lists and mappings; build objects from them in the trainable",
        path,
    )


def leaves(
    value: Any,
    path: str = "",
    *,
    separator: str = ".",
    is_leaf: Callable[[Mapping[str, Any]], bool] = lambda _: False,
) -> Iterator[tuple[str, Any]]:
    """The values in nested mappings by their path: `{"net": {"depth": 2}}` has `("net.depth", 2)`.

    An empty mapping is a value too, unless it is the whole; so is one that `is_leaf` takes for one.
    """
    if isinstance(value, Mapping) and value and not is_leaf(value):
        for key, item in value.items():
            below = f"{path}{separator}{key}" if path else str(key)
            yield from leaves(item, below, separator=separator, is_leaf=is_leaf)
    elif path:
        yield path, value


def text_key(key: Any, path: Path) -> str:
    """A mapping's key, which must be a string."""
    if not isinstance(key, str):
        raise Problem(
            f"the key {show(key)} is a {type(key).__name__}", f'write it as a string: "{key}"', path
        )
    return _text(key, path)


def _text(value: str, path: Path) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Problem(f"{show(value)} is not valid Unicode", "use valid text", path) from None
    return str(value)


def _integer(value: int, path: Path) -> int:
    if not -(2**63) <= value < 2**63:
        raise Problem(f"{show(value)} does not fit in 64 bits", "use a smaller number, or a string", path)
    return int(value)
