"""A module that loads CUDA's driver when it is imported, and initialises it if it is told to."""

from __future__ import annotations

import ctypes
import os
from typing import Any

CUDA: Any = ctypes.CDLL(os.environ["RAYSWEEP_TEST_CUDA"])
if os.environ.get("RAYSWEEP_TEST_OPENS"):
    assert CUDA.cuInit(0) == 0


def train(config: dict[str, Any]) -> dict[str, float]:
    """What CUDA says in a trial."""
    code = CUDA.cuInit(0) or CUDA.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))
    if code:
        raise RuntimeError(f"CUDA error {code}: initialization error")
    return {"loss": 1.0, "parent": float(os.getppid())}
