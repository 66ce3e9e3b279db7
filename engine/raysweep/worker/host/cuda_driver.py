"""Asks CUDA's driver whether this process has initialised it: no process forked after that can use a GPU."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_MAPS: Final = Path("/proc/self/maps")
_LIBRARY: Final = "libcuda.so"
_NOT_INITIALISED: Final = 3
"""`CUDA_ERROR_NOT_INITIALIZED`: what each call but `cuInit` answers before it."""


def has_opened_gpu() -> bool:
    """True if any library of this process has initialised CUDA: PyTorch, JAX, CuPy, numba, or user code.

    It loads nothing, and initialises nothing. PyTorch is asked too: it may be one for AMD's GPUs.
    """
    if any(_has_been_initialised(path) for path in _loaded()):
        return True
    with suppress(AttributeError):  # it is being imported, or is something else of this name
        torch = sys.modules.get("torch")
        return torch is not None and bool(torch.cuda.is_initialized())
    return False


def _loaded() -> set[str]:
    """The files of the driver's library that this process has loaded."""
    with suppress(OSError):
        files = (line.split(maxsplit=5)[5:] for line in _MAPS.read_bytes().splitlines())
        paths = {os.fsdecode(path[0]) for path in files if path}  # a name may be no UTF-8
        return {path for path in paths if path.rpartition("/")[2].startswith(_LIBRARY)}
    return set()


def _has_been_initialised(path: str) -> bool:
    try:
        library: Any = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        return bool(library.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _NOT_INITIALISED)
    except (OSError, AttributeError):  # it was taken away since, or is something else of this name
        return False
