"""Keeps JAX and TensorFlow to a part of a GPU: at their first use both take most of the memory of a GPU.

With `gpu_memory: {enforce: true}` PyTorch is kept to it as well, and none of them can take more: a trial that
asks for more fails with the library's own out-of-memory error.
"""

from __future__ import annotations

import os
from functools import partial
from types import ModuleType
from typing import Any, Final

from raysweep.worker.process.import_hooks import after_import

JAX_PART: Final = "XLA_PYTHON_CLIENT_MEM_FRACTION"
TENSORFLOW_GROWS: Final = "TF_FORCE_GPU_ALLOW_GROWTH"
ENFORCED: Final = "RAYSWEEP_GPU_SHARE"
"""The part of a GPU, and the bytes, that the trials of this process are kept to: `0.225 9663676416`."""
_JAX_ALLOCATOR: Final = "XLA_PYTHON_CLIENT_ALLOCATOR"
_OF_JAX: Final = (
    JAX_PART,
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    _JAX_ALLOCATOR,
)
"""Any of these means that the user has decided."""
_USABLE: Final = 0.9
"""Of a part; the rest is for the CUDA context, and libraries that allocate beside these."""
_MIB: Final = 1024 * 1024


def limit_share(gpus: float, limit_bytes: int = 0) -> None:
    """Set the variables of both libraries where this process has a part of one GPU; what is set stands.

    JAX then takes 90 % of the part, and no more; TensorFlow takes what it needs. PyTorch takes what it needs.

    Args:
        gpus: The part of a GPU.
        limit_bytes: Above 0, the share is enforced: JAX's limit replaces what the user has set, and
            `enforce_share` sets those of the others.
    """
    os.environ.pop(ENFORCED, None)  # of a worker of another shape, whose environment this one may have
    if not 0 < gpus < 1:
        return
    part = _USABLE * gpus
    if limit_bytes:
        os.environ[ENFORCED] = f"{part:.6f} {int(_USABLE * limit_bytes)}"
        os.environ[JAX_PART] = f"{part:.3f}"
        os.environ.pop(_JAX_ALLOCATOR, None)  # that of the platform has no limit
    elif not any(name in os.environ for name in _OF_JAX):
        os.environ[JAX_PART] = f"{part:.3f}"
    os.environ.setdefault(TENSORFLOW_GROWS, "true")


def enforce_share() -> None:
    """Keep PyTorch and TensorFlow to the share once they are imported; call in the process of the trials.

    Not in the fork server: TensorFlow looks for GPUs then, after which no child could use one.
    """
    found = os.environ.get(ENFORCED)
    if found is None:
        return
    part, limit_bytes = found.split()
    after_import("torch", partial(_limit_torch, float(part)), key="gpu_share")
    after_import("tensorflow", partial(_limit_tensorflow, int(limit_bytes)), key="gpu_share")


def _limit_torch(part: float, torch: ModuleType) -> None:
    cuda: Any = torch.cuda
    # The call itself starts CUDA, which takes half a GiB: it waits for the trial's own first use.
    cuda._lazy_call(lambda: cuda.set_per_process_memory_fraction(part))


def _limit_tensorflow(limit_bytes: int, tensorflow: ModuleType) -> None:
    config: Any = tensorflow.config
    for device in config.list_physical_devices("GPU"):
        limit = config.LogicalDeviceConfiguration(memory_limit=limit_bytes // _MIB)
        config.set_logical_device_configuration(device, [limit])
