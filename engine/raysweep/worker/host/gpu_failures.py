"""Recognises errors that mean a GPU is out of memory, in the words of each library that allocates there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_MAX_CHAIN: Final = 50
_TEXT: Final = re.compile(
    # PyTorch: its allocators, and errors of the runtime that an allocation of the driver ended with.
    r"\b(CUDA|HIP|XPU|MPS)( backend)? out of memory"
    r"|\b(CUDA|HIP) (driver )?(error|failure)\b[^\n]{0,60}out of memory"
    # The codes of the driver, the runtime, and the libraries for one operation each.
    r"|CUDA_ERROR_OUT_OF_MEMORY|(cuda|hip)ErrorMemoryAllocation|hipErrorOutOfMemory"
    r"|(CUBLAS|CUBLASLT|CUDNN|CUSPARSE|CUSOLVER|CURAND|HIPBLAS|ROCBLAS|MIOPEN)\w*_ALLOC(ATION)?_FAILED"
    r"|CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED|CUFFT_ALLOC_FAILED|CL_MEM_OBJECT_ALLOCATION_FAILURE"
    # No handle: PyTorch itself takes this for a lack of memory, frees its cache, and tries once more.
    r"|CUBLAS_STATUS_NOT_INITIALIZED when calling .?cublas(Lt)?Create"
    # JAX, and TensorFlow's two messages; the latter names the device, which may be the CPU.
    r"|RESOURCE_EXHAUSTED: [^\n]{0,80}(out of memory|failed to allocate)"
    r"|OOM when allocating tensor\b(?![^\n]*device:CPU)"
    r"|failed to allocate memory \[Op:"
    # As the last lines of a program name the classes of PyTorch and CuPy.
    r"|\b(torch(\.cuda)?|cupy\.cuda\.memory)\.OutOfMemoryError",
    re.IGNORECASE,
)


def find_gpu_oom(text: str) -> str:
    """The words in a text that mean that a GPU is out of memory; empty where there are none."""
    found = _TEXT.search(text)
    return found[0] if found is not None else ""


def is_gpu_oom(error: BaseException) -> bool:
    """True if an exception, one of its group, or one that it was raised `from` is about a GPU's memory.

    One that was caught before another was raised is not: the trial may have continued with a smaller batch.
    """
    return any(_is_gpu_oom(each) for each in _chain(error))


def _is_gpu_oom(error: BaseException) -> bool:
    names = {cls.__name__ for cls in type(error).__mro__}
    # PyTorch and CuPy. Ray has an error of that name too, about the host's memory.
    if "OutOfMemoryError" in names and "RayError" not in names:
        return True
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001  a user's class may raise anything here, SystemExit included
        return False
    return bool(find_gpu_oom(text))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, those of its group and those that it was raised `from`, each once."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _MAX_CHAIN:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions
        if each.__cause__ is not None:
            waiting.append(each.__cause__)
