"""The same seed for the global generators of `random` and NumPy at the start of each attempt.

A trainable that imports NumPy only while it runs must not draw other numbers in a worker's first trial than
in its later ones: NumPy is seeded when it is imported, then.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_RANDOM = "numpy.random"


def seed_generators(seed: int) -> None:
    """Seed `random`, and NumPy's global generator now or at its first import."""
    random.seed(seed)
    numpy_random = sys.modules.get(_RANDOM)
    if numpy_random is not None:
        numpy_random.seed(seed % 2**32)
        return
    _Seeder.seed = seed % 2**32
    if not any(isinstance(finder, _Seeder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Seeder())


class _Seeder(MetaPathFinder):
    """Finds `numpy.random` as any other import does, and seeds it when it has been loaded."""

    seed = 0

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _RANDOM:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _SeedingLoader(spec.loader)
        return spec


class _SeedingLoader(Loader):
    def __init__(self, inner: Loader) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        module.seed(_Seeder.seed)

    def __getattr__(self, name: str) -> Any:
        # Resources, source code and the like are the real loader's business.
        return getattr(self._inner, name)
