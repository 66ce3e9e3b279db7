"""The same seed for the global generators of `random` and NumPy at the start of each attempt.

A trainable that imports NumPy only while it runs must not draw other numbers in a worker's first trial than
in its later ones: NumPy is seeded when it is imported, then.
"""

from __future__ import annotations

import random
from types import ModuleType

from raysweep.worker.imports import after_import


def seed_generators(seed: int) -> None:
    """Seed `random`, and NumPy's global generator now or at its first import."""
    random.seed(seed)

    def seed_numpy(module: ModuleType) -> None:
        module.seed(seed % 2**32)

    after_import("numpy.random", seed_numpy)
