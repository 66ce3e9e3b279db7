"""NVIDIA's driver on GPUs: by its library where there is one, else by its program.

A device is named as in `CUDA_VISIBLE_DEVICES`: by its number, or by a UUID, of which the beginning is enough.
The driver counts devices in the order of the PCI bus. CUDA puts faster ones first unless CUDA_DEVICE_ORDER
says otherwise: where models differ, CUDA is asked which device a number is (`cuda_uuids`).
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

LIBRARY: Final = "libnvidia-ml.so.1"
PROGRAM: Final = "nvidia-smi"
_PROGRAM_S: Final = 30.0
_MOST_PROCESSES: Final = 1024
_TEXT_BYTES: Final = 96
_ASK_CUDA: Final = """
import ctypes, uuid
cuda = ctypes.CDLL("libcuda.so.1")
count, device, found = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
for number in range(count.value):
    code = code or cuda.cuDeviceGet(ctypes.byref(device), number)
    code = code or getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(found, device)
    print("GPU-" + str(uuid.UUID(bytes=bytes(found))))
raise SystemExit(code)
"""


class Memory(NamedTuple):
    """Of one GPU; `used_bytes` without what the driver reserves for itself, where it tells the two apart."""

    used_bytes: int
    total_bytes: int


class DriverError(Exception):
    """The driver does not answer, or knows no such device."""


class Driver(Protocol):
    """One way to ask.

    Each method raises `DriverError` where there is no answer.
    """

    def read(self, device: str) -> Memory:
        """The memory of the device that is in use, by any program."""
        ...

    def processes(self, device: str) -> frozenset[int] | None:
        """The processes that compute on it, by their pids as the host counts them; None: it does not say."""
        ...

    def models(self) -> frozenset[str]:
        """The names of the models of this machine's GPUs."""
        ...

    def count(self) -> int:
        """The number of this machine's GPUs."""
        ...


def find_driver() -> Driver | None:
    """The driver of this machine; None where it has none."""
    try:
        return Nvml()
    except (OSError, DriverError):
        return NvidiaSmi() if shutil.which(PROGRAM) else None


def cuda_uuids() -> list[str]:
    """The UUIDs of the devices that CUDA_VISIBLE_DEVICES names, in CUDA's order.

    A process of its own asks CUDA, as this one could not be forked after that.

    Raises:
        DriverError: CUDA does not answer.
    """
    command = [sys.executable, "-c", _ASK_CUDA]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise DriverError(f"CUDA does not tell its devices: {error}") from error
    return done.stdout.split()


class NvidiaSmi:
    """By the program."""

    def read(self, device: str) -> Memory:
        """See `Driver`."""
        for number, uuid, used, total, _ in self._rows():
            if device == number or (not device.isdecimal() and uuid.startswith(device)):
                return Memory(int(used) * 2**20, int(total) * 2**20)
        raise DriverError(f"{PROGRAM} names no GPU {device}")

    def all(self) -> list[Memory]:
        """The memory of each GPU of this machine.

        Raises:
            DriverError: There is no driver, or no GPU.
        """
        found = [Memory(int(used) * 2**20, int(total) * 2**20) for _, _, used, total, _ in self._rows()]
        if not found:
            raise DriverError(f"{PROGRAM} names no GPU")
        return found

    def processes(self, device: str) -> frozenset[int] | None:
        """See `Driver`."""
        return None

    def models(self) -> frozenset[str]:
        """See `Driver`."""
        return frozenset(row[4] for row in self._rows())

    def count(self) -> int:
        """See `Driver`."""
        return sum(1 for _ in self._rows())

    def _rows(self) -> Iterator[list[str]]:
        fields = "index,uuid,memory.used,memory.total,name"
        command = [PROGRAM, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_S, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            raise DriverError(f"{PROGRAM}: {error}") from error
        for line in done.stdout.splitlines():
            row = [field.strip() for field in line.split(",", 4)]
            if len(row) != 5 or not (row[2].isdecimal() and row[3].isdecimal()):
                raise DriverError(f"{PROGRAM} said {line!r}")
            yield row


class _MemoryInfo(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _MemoryInfo2(ctypes.Structure):
    """`nvmlMemory_v2_t`."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


_VERSION_2: Final = ctypes.sizeof(_MemoryInfo2) | 2 << 24


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
        handle, later = self._handle(device), _MemoryInfo2(version=_VERSION_2)
        with suppress(AttributeError, DriverError):  # an old driver
            self._call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(later))
            return Memory(later.used, later.total)
        found = _MemoryInfo()
        self._call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(found))
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

    def models(self) -> frozenset[str]:
        """See `Driver`."""
        return frozenset(self._text("nvmlDeviceGetName", handle) for handle in self._handles())

    def count(self) -> int:
        """See `Driver`."""
        return sum(1 for _ in self._handles())

    def _handle(self, device: str) -> ctypes.c_void_p:
        if device.isdecimal():
            return self._handle_at(int(device))
        handle = ctypes.c_void_p()
        try:
            self._call("nvmlDeviceGetHandleByUUID", device.encode(), ctypes.byref(handle))
        except DriverError:  # it takes whole UUIDs only
            named = [
                each for each in self._handles() if self._text("nvmlDeviceGetUUID", each).startswith(device)
            ]
            if len(named) != 1:
                raise DriverError(f"{len(named)} GPUs have a UUID that begins with {device}") from None
            (handle,) = named
        return handle

    def _handle_at(self, number: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(number), ctypes.byref(handle))
        return handle

    def _handles(self) -> Iterator[ctypes.c_void_p]:
        """Those of all GPUs that this process may ask about."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for number in range(count.value):
            with suppress(DriverError):
                yield self._handle_at(number)

    def _text(self, name: str, handle: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._call(name, handle, text, ctypes.c_uint(_TEXT_BYTES))
        return text.value.decode(errors="replace")

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise DriverError(f"{name} failed with {code}")
