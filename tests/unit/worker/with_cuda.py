"""A module that looks for GPUs when it is imported, and opens one if it is told to; its torch has none."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

opened: list[int] = []


def is_available() -> bool:
    """As torch does: without the variable it initialises CUDA's driver."""
    if os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") != "1":
        opened.append(0)
    return True


torch: Any = ModuleType("torch")
torch.cuda = SimpleNamespace(is_available=is_available, is_initialized=lambda: bool(opened))
sys.modules["torch"] = torch

if torch.cuda.is_available() and os.environ.get("RAYSWEEP_TEST_OPENS"):
    opened.append(0)


def train(config: dict[str, Any]) -> float:
    """Cannot use a GPU that was opened before the fork."""
    if opened:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
    return 1.0
