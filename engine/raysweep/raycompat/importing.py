"""The messages of Ray while it is imported, kept quiet. Imports nothing of Ray itself."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_import() -> Iterator[None]:
    """In a notebook, Ray and tqdm would say of each other's optional widgets that they are not installed.

    Not on several threads at once: Python's filters of warnings are the process's.
    """
    logger = logging.getLogger("ray.widgets.util")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"\s*IProgress not found")
            yield
    finally:
        logger.setLevel(before)
