"""The same seed for the global generators of `random`, NumPy and PyTorch at the start of each attempt.

A trainable that imports one of them only while it runs must not draw other numbers in a worker's first trial
than in its later ones: the library is seeded when it is imported, then. Nothing here imports one.
"""

from __future__ import annotations

import random
from types import ModuleType

from raysweep.worker.process.import_hooks import after_import


def seed_generators(seed: int) -> None:
    """Seed `random`, and those of NumPy and PyTorch now or at their first import."""
    random.seed(seed)

    def seed_numpy(module: ModuleType) -> None:
        module.seed(seed % 2**32)

    def seed_torch(module: ModuleType) -> None:
        # All its devices; a GPU that is not in use yet gets the seed when it is.
        module.manual_seed(seed % 2**64)

    after_import("numpy.random", seed_numpy)
    after_import("torch", seed_torch, key="seed")
