"""Handlers of signals while Ray starts.

`ray.init` begins by having SIGTERM end the process by `sys.exit`, wherever it is: in the middle of Ray's own
C++ code that aborts it, and leaves Ray's processes behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Ray sets none for SIGTERM in here."""
    from ray._private import utils

    module: Any = utils
    before, module.set_sigterm_handler = module.set_sigterm_handler, lambda handler: None
    try:
        yield
    finally:
        module.set_sigterm_handler = before
