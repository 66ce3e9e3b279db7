"""Ray below `uv run`: its workers run in the environment that they find, not in one that is made for them.

By default Ray looks for `uv run` among the ancestors of a process that calls `ray.init`. It uploads the
working directory, and starts each worker by the same command in a copy. That fails in a sub-folder of the
project, and takes minutes, or for ever, in its root. A head that `uv run` has started does it to all jobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

VARIABLE: Final = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
"""Ray's switch; where a person has set it, it decides."""


@contextmanager
def found_environment() -> Iterator[None]:
    """`ray.init` in here makes no environment of `uv run`."""
    from ray._private import ray_constants

    module: Any = ray_constants  # imported once: it has read the variable by now
    before = getattr(module, VARIABLE, None)
    if VARIABLE in os.environ or before is None:
        yield
        return
    setattr(module, VARIABLE, False)
    try:
        yield
    finally:
        setattr(module, VARIABLE, before)
