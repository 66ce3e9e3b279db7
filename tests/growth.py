"""How the cost of an operation grows, by the number of calls that it makes and not by seconds."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

LIMIT = 1.2
"""The largest exponent on a usual path: n log n is below it at the sizes of tests."""


def calls(operation: Callable[[], object], name: str = "") -> int:
    """How many functions, of Python and of C, an operation calls; with `name`, only those of this name."""
    found = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal found
        if event == "call":
            found += not name or frame.f_code.co_name == name
        elif event == "c_call":
            found += not name

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return found


def exponent(operation: Callable[[int], object], fewer: int, more: int) -> float:
    """As `exponent_prepared`, of an operation that takes its size."""
    return exponent_prepared(lambda size: partial(operation, size), fewer, more)


def exponent_prepared(prepare: Callable[[int], Callable[[], object]], fewer: int, more: int) -> float:
    """The power of n with which the calls of what `prepare(n)` returns grow between two sizes.

    What every call costs, whatever the size, is that of the size 1, and is left out.
    """
    prepare(1)()  # what is imported and cached at the first call is no growth
    fixed, few, many = (calls(prepare(size)) for size in (1, fewer, more))
    return math.log(max(many - fixed, 1) / max(few - fixed, 1)) / math.log(more / fewer)
