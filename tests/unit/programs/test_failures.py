"""The failure class of a program follows from its exit code, its signal and the last lines of stderr."""

from __future__ import annotations

import pytest

from raysweep.core.vocabulary.failures import classify
from raysweep.fleet.message_events import failure_of as core_failure
from raysweep.programs.failures import failure_of
from raysweep.worker.runner import describe

CASES = [
    (1, "Traceback …\nValueError: bad lr", False, "user_error"),
    (2, "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lr", False, "user_error"),
    (1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", False, "gpu_oom"),
    (1, "torch.cuda.OutOfMemoryError: HIP out of memory.", False, "gpu_oom"),
    (1, "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x", False, "gpu_oom"),
    (1, "jaxlib.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes", False, "gpu_oom"),
    (
        1,
        "torch.AcceleratorError: CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in",
        False,
        "gpu_oom",
    ),
    (
        1,
        "numba.cuda.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        False,
        "gpu_oom",
    ),
    (134, "2026 E cuda_driver.cc] failed to allocate: CUDA_ERROR_OUT_OF_MEMORY\nAborted", False, "gpu_oom"),
    (1, "tensorflow.ResourceExhaustedError: {{node}} failed to allocate memory [Op:Fill]", False, "gpu_oom"),
    (1, "MemoryError", False, "oom"),
    (1, "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 9. GiB", False, "oom"),
    (134, "terminate called after throwing an instance of 'std::bad_alloc'", False, "oom"),
    (
        1,
        "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
        False,
        "oom",
    ),
    (-9, "", True, "oom"),
    (137, "Killed", True, "oom"),
    (1, "torch.distributed.elastic: failed (exitcode: -9) local_rank: 1", True, "oom"),
    (-9, "", False, "worker_died"),
    (137, "Killed", False, "worker_died"),
    (-11, "", False, "worker_died"),
    (139, "Segmentation fault", False, "worker_died"),
    (130, "", False, "user_error"),
    (255, "", False, "user_error"),
    (1, "ValueError: the word out of memory in a sentence", False, "user_error"),
]


@pytest.mark.parametrize(("code", "stderr", "is_kernel_oom", "kind"), CASES)
def test_class_of_a_failure(code: int, stderr: str, is_kernel_oom: bool, kind: str) -> None:
    error = failure_of(["python", "train.py"], code, stderr, is_kernel_oom=is_kernel_oom)
    failure = core_failure(describe(error))
    assert classify(failure) == kind
    assert failure.message.startswith("train.py ")
    assert failure.exit_code == code
    assert failure.traceback == stderr


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
HEAD = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    step()\n'
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
FROM = "\nThe above exception was the direct cause of the following exception:\n\n"
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 1, in <module>
  | ExceptionGroup: workers (1 sub-exception)
  +-+---------------- 1 ----------------
    | torch.OutOfMemoryError: CUDA out of memory.
    +------------------------------------
"""
ENDS = [
    (f"WARNING: CUDA out of memory; half the batch\nstep 1\n{HEAD}ValueError: bad", 1, "user_error"),
    (f"WARNING: MemoryError: no 3 GiB; half the batch\n{HEAD}ValueError: bad", 1, "user_error"),
    (f"{HEAD}{OOM}\nhalf the batch\n{HEAD}ValueError: bad", 1, "user_error"),  # logging.exception
    (f"{HEAD}{OOM}\n{DURING}{HEAD}ValueError: bad", 1, "user_error"),
    (f"{HEAD}{OOM}\n{FROM}{HEAD}ValueError: it does not fit", 1, "gpu_oom"),
    (f"{HEAD}{OOM}\n{FROM}{HEAD}E: 1\n{FROM}{HEAD}ValueError: it does not fit", 1, "gpu_oom"),
    (f"{HEAD}MemoryError\n{FROM}{HEAD}ValueError: it does not fit", 1, "oom"),
    (f"{HEAD}ValueError: bad\n{FROM}{HEAD}{OOM}", 1, "gpu_oom"),
    (f"{HEAD}{OOM}\nIf reserved memory is large see the notes\nwandb: synced 5 files", 1, "gpu_oom"),
    (f"{HEAD}{OOM}\nValueError: the batch is empty", 1, "user_error"),
    (GROUP, 1, "gpu_oom"),
    ("WARNING: CUDA out of memory; half the batch", 3, "user_error"),
    ("UserWarning: CUDA out of memory\n  warnings.warn(text)\ntrain.sh: no data", 3, "user_error"),
    ("CUDA out of memory\nValueError: bad", 1, "user_error"),
    (f"{HEAD}ValueError: bad\nterminate called after throwing 'std::bad_alloc'", -6, "oom"),
    ("terminate called after throwing an instance of 'std::bad_alloc'\n" + "frame\n" * 99, -6, "oom"),
    (f"[rank0]: {OOM}\n[rank1]: {HEAD}[rank1]: RuntimeError: NCCL was aborted", 1, "gpu_oom"),
    ("a worker died with <Signals.SIGKILL: 9>, once more\n" + HEAD + "ValueError: bad", 1, "user_error"),
]


@pytest.mark.parametrize(("stderr", "code", "kind"), ENDS)
def test_what_a_program_caught_is_not_why_it_failed(stderr: str, code: int, kind: str) -> None:
    error = failure_of(["python", "train.py"], code, stderr, is_kernel_oom=False)
    assert classify(core_failure(describe(error))) == kind
    launched = failure_of(["accelerate", "train.py"], code, stderr + "\n" + ACCELERATE, is_kernel_oom=False)
    assert classify(core_failure(describe(launched))) == kind


PLAIN = 'Traceback (most recent call last):\n  File "bad.py", line 1, in <module>\nValueError: bad lr\n'
ACCELERATE = """Traceback (most recent call last):
  File "/bin/accelerate", line 10, in <module>
    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)
subprocess.CalledProcessError: Command '['/bin/python', 'bad.py']' returned non-zero exit status 1.
"""
TORCHRUN = """E1126 17:50:00.256000 22668 torch/distributed/elastic/api.py:1002] failed (exitcode: 1) …
Traceback (most recent call last):
  File "/torch/distributed/launcher/api.py", line 383, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\x20
============================================================
bad.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 22897)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize(
    ("stderr", "last"),
    [
        (PLAIN, "ValueError: bad lr"),
        (PLAIN + ACCELERATE, "ValueError: bad lr"),
        (PLAIN + PLAIN + TORCHRUN, "ValueError: bad lr"),
        (
            "[rank1]: Traceback …\n[rank1]: a.BadError: no\nnote\n" + TORCHRUN,
            "[rank1]: a.BadError: no",
        ),
        ("usage: bad.py\nbad.py: error: no --lr\n" + ACCELERATE, "bad.py: error: no --lr"),
        (ACCELERATE, "subprocess.CalledProcessError: Command '['/bin/python', 'bad.py']' returned non-zero"),
        (PLAIN + "the program cleaned up\n", "the program cleaned up"),
    ],
)
def test_the_message_has_what_the_program_said_and_not_its_launcher(stderr: str, last: str) -> None:
    error = failure_of(["accelerate", "launch", "bad.py"], 1, stderr, is_kernel_oom=False)
    assert str(error).startswith(f"bad.py ended with exit code 1: {last}")
