"""The same seed for the global generators of `random`, NumPy and PyTorch at the start of each attempt.

A trainable that imports one of them only while it runs must not draw other numbers in a worker's first trial
than in its later ones: the library is seeded when it is imported, then. Nothing here imports one.
"""

from __future__ import annotations

import random
import sys
from types import ModuleType
from typing import Final

from raysweep.worker.process.import_hooks import after_import, is_awaited

_seed = 0


def seed_generators(seed: int) -> None:
    """Seed `random`, and those of NumPy and PyTorch now or at their first import."""
    global _seed
    random.seed(seed)
    _seed = seed
    for name, call in _LIBRARIES.items():
        if name in sys.modules or not is_awaited(name, "seed"):
            after_import(name, call, key="seed")


def _seed_numpy(module: ModuleType) -> None:
    module.seed(_seed % 2**32)


def _seed_torch(module: ModuleType) -> None:
    # All its devices; a GPU that is not in use yet gets the seed when it is.
    module.manual_seed(_seed % 2**64)


_LIBRARIES: Final = {"numpy.random": _seed_numpy, "torch": _seed_torch}
