"""What NVIDIA's driver says of GPUs: by its library where there is one, else by its program.

A device is named as in `CUDA_VISIBLE_DEVICES`: by its number, or by a UUID, of which the beginning is enough.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

LIBRARY: Final = "libnvidia-ml.so.1"
PROGRAM: Final = "nvidia-smi"
_PROGRAM_S: Final = 30.0
_MOST_PROCESSES: Final = 1024


class Memory(NamedTuple):
    """Of one GPU."""

    used_bytes: int
    total_bytes: int


class DriverError(Exception):
    """The driver does not answer, or knows no such device."""


class Driver(Protocol):
    """One way to ask.

    Each method raises `DriverError` where there is no answer.
    """

    def read(self, device: str) -> Memory:
        """How much memory of the device is in use, by whomever."""
        ...

    def processes(self, device: str) -> frozenset[int] | None:
        """The processes that compute on it, by their pids as the host counts them; None: it does not say."""
        ...


def find_driver() -> Driver | None:
    """The driver of this machine; None where it has none."""
    try:
        return Nvml()
    except (OSError, DriverError):
        return NvidiaSmi() if shutil.which(PROGRAM) else None


class NvidiaSmi:
    """By the program."""

    def read(self, device: str) -> Memory:
        """See `Driver`."""
        for number, uuid, used, total in self._rows():
            if device == number or (not device.isdecimal() and uuid.startswith(device)):
                return Memory(int(used) * 2**20, int(total) * 2**20)
        raise DriverError(f"{PROGRAM} names no GPU {device}")

    def processes(self, device: str) -> frozenset[int] | None:
        """See `Driver`."""
        return None

    def _rows(self) -> Iterator[list[str]]:
        fields = "index,uuid,memory.used,memory.total"
        command = [PROGRAM, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise DriverError(f"{PROGRAM}: {error}") from error
        for line in done.stdout.splitlines():
            row = [field.strip() for field in line.split(",")]
            if len(row) != 4 or not (row[2].isdecimal() and row[3].isdecimal()):
                raise DriverError(f"{PROGRAM} said {line!r}")
            yield row


class _MemoryInfo(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _ProcessInfo(ctypes.Structure):
    """`nvmlProcessInfo_t` of the calls that end in `_v3`."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """By NVIDIA's management library, which allocates nothing on a GPU.

    Raises:
        OSError: It is not there.
        DriverError: It finds no driver.
    """

    def __init__(self) -> None:
        self._library: Any = ctypes.CDLL(LIBRARY)
        self._call("nvmlInit_v2")

    def read(self, device: str) -> Memory:
        """See `Driver`."""
        found = _MemoryInfo()
        self._call("nvmlDeviceGetMemoryInfo", self._handle(device), ctypes.byref(found))
        return Memory(found.used, found.total)

    def processes(self, device: str) -> frozenset[int] | None:
        """See `Driver`."""
        count = ctypes.c_uint(_MOST_PROCESSES)
        found = (_ProcessInfo * _MOST_PROCESSES)()
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if not hasattr(self._library, name):
            return None
        self._call(name, self._handle(device), ctypes.byref(count), found)
        return frozenset(each.pid for each in found[: count.value])

    def _handle(self, device: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        if device.isdecimal():
            number = ctypes.c_uint(int(device))
            self._call("nvmlDeviceGetHandleByIndex_v2", number, ctypes.byref(handle))
        else:
            self._call("nvmlDeviceGetHandleByUUID", device.encode(), ctypes.byref(handle))
        return handle

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise DriverError(f"{name} failed with {code}")
