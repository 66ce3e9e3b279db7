"""Keeps JAX and TensorFlow to a part of a GPU: at their first use both take most of the memory of a GPU."""

from __future__ import annotations

import os
from typing import Final

JAX_PART: Final = "XLA_PYTHON_CLIENT_MEM_FRACTION"
TENSORFLOW_GROWS: Final = "TF_FORCE_GPU_ALLOW_GROWTH"
_OF_JAX: Final = (
    JAX_PART,
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
)
"""Any of these means that the user has decided."""
_USABLE: Final = 0.9
"""Of a part; the rest is for the CUDA context, and libraries that allocate beside JAX."""


def limit_share(gpus: float) -> None:
    """Set the variables of both libraries where this process has a part of one GPU; what is set stands.

    JAX then takes 90 % of the part, and no more; TensorFlow takes what it needs. PyTorch takes what it needs.
    """
    if not 0 < gpus < 1:
        return
    if not any(name in os.environ for name in _OF_JAX):
        os.environ[JAX_PART] = f"{_USABLE * gpus:.3f}"
    os.environ.setdefault(TENSORFLOW_GROWS, "true")
