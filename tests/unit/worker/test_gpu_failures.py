"""A GPU that is out of memory, in the words of each library: seen on an H100, or in their sources."""

from __future__ import annotations

import pytest

from raysweep.core.vocabulary.failures import classify
from raysweep.errors import RaysweepError
from raysweep.fleet.message_events import failure_of
from raysweep.worker.host.gpu_failures import find_gpu_oom
from raysweep.worker.runner import describe


class OutOfMemoryError(RuntimeError):
    """As PyTorch and CuPy have it."""


class RayError(Exception):
    """As Ray has it."""


class RayOutOfMemoryError(OutOfMemoryError, RayError):
    """Ray's error of that name, about the host's memory."""


class AcceleratorError(RuntimeError):
    """As PyTorch has it since 2.8."""


GPU = [
    "CUDA out of memory. Tried to allocate 186.26 GiB. GPU 0 has a total capacity of 79.19 GiB",
    "HIP out of memory. Tried to allocate 2.00 GiB",
    "MPS backend out of memory (MPS allocated: 9.05 GB)",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call",
    "CUDA driver error: out of memory",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 200000000000 bytes.",
    "RESOURCE_EXHAUSTED: Out of memory allocating 200000000000 bytes",
    "RESOURCE_EXHAUSTED: Failed to allocate request for 186.26GiB (200000000000B) on device ordinal 0",
    "INTERNAL: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    "[2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "[CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation: out of memory",
    "std::bad_alloc: out_of_memory: CUDA error at: rmm/cuda.hpp:62: cudaErrorMemoryAllocation out of memory",
    "NCCL error: unhandled cuda error; Cuda failure 2 'out of memory'",
    "OOM when allocating tensor with shape[9,9] on /job:localhost/replica:0/task:0/device:GPU:0",
    "{{function_node __wrapped__Fill_device_/device:GPU:0}} failed to allocate memory [Op:Fill]",
]
OTHER = [
    "the word out of memory in a sentence",
    "OOM when allocating tensor with shape[9,9] on /job:localhost/replica:0/task:0/device:CPU:0",
    "RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)",
    "CUDA error: device-side assert triggered",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasSgemm(handle)`",
    "Unable to allocate 9. GiB for an array",
]


def kind_of(error: BaseException) -> str:
    return classify(failure_of(describe(error)))


@pytest.mark.parametrize("message", GPU)
def test_each_librarys_words_are_a_gpu_out_of_memory(message: str) -> None:
    assert kind_of(RuntimeError(message)) == "gpu_oom"
    assert find_gpu_oom(f"Epoch 1\nTraceback (most recent call last):\nSomeError: {message}\n")


@pytest.mark.parametrize("message", OTHER)
def test_other_failures_stay_the_users(message: str) -> None:
    assert kind_of(RuntimeError(message)) == "user_error"
    assert not find_gpu_oom(message)


def test_the_class_says_it_too_and_rays_is_about_the_host() -> None:
    assert kind_of(OutOfMemoryError("Out of memory allocating 200,000,000,000 bytes")) == "gpu_oom"
    assert kind_of(AcceleratorError("CUDA error: out of memory")) == "gpu_oom"
    assert (
        kind_of(RayOutOfMemoryError("Task was killed due to the node running low on memory.")) == "user_error"
    )


def raised(how: str) -> BaseException:
    """An error around one about a GPU's memory."""
    try:
        try:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        except OutOfMemoryError as error:
            if how == "from":
                raise ValueError("the batch does not fit") from error
            if how == "instead":
                raise ValueError("give a smaller batch") from None
            if how == "group":
                raise ExceptionGroup("workers", [ValueError("x"), error]) from None
            raise RaysweepError("step") from RuntimeError(error)
    except Exception as error:  # noqa: BLE001  each case raises another
        return error


@pytest.mark.parametrize("how", ["from", "group", "twice"])
def test_the_causes_of_an_error_count(how: str) -> None:
    assert kind_of(raised(how)) == "gpu_oom"


def test_a_cause_that_the_user_took_away_does_not_count() -> None:
    assert kind_of(raised("instead")) == "user_error"


def test_one_that_was_caught_before_another_error_does_not_count() -> None:
    """As a program's: what ended the trial counts."""

    def smaller_batch() -> None:
        try:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        except OutOfMemoryError:
            raise ValueError("a batch of 0")  # noqa: B904  what Python calls its context

    def cleared() -> None:
        try:
            smaller_batch()
        except ValueError as error:
            raise RuntimeError("the epoch failed") from error

    for fails in (smaller_batch, cleared):
        with pytest.raises((ValueError, RuntimeError)) as raised:
            fails()
        assert kind_of(raised.value) == "user_error"


def test_a_circle_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert kind_of(first) == "user_error"


def test_an_error_that_cannot_be_shown_is_the_users() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert kind_of(Mute()) == "user_error"
