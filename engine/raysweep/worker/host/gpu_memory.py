"""A trial waits until the memory of its GPUs is free: that of a process which has just ended may not be yet.

A trial that has whole GPUs waits until they hold no more than before the last one, but only while what they
hold falls: what stays is held by another program, such as the notebook that runs the sweep. One that has a
part of a GPU waits until the last one's process is gone from it, as what others use there moves meanwhile.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from raysweep.messages import Job, TrialNoted
from raysweep.worker.host.nvidia import Driver, DriverError, Memory, cuda_uuids, find_driver
from raysweep.worker.link import Link

VARIABLE: Final = "RAYSWEEP_GPU_WAIT_S"
"""The longest wait of a trial, in seconds; 0: it does not wait."""
ORDER: Final = "CUDA_DEVICE_ORDER"
DEFAULT_WAIT_S: Final = 20.0
LOOK_S: Final = 0.05
SETTLED_S: Final = 2.0
"""The time without a fall after which memory in use on a GPU counts as another program's."""
FALL_BYTES: Final = 2**20
SLACK_BYTES: Final = 64 * 2**20
"""The bytes that a GPU may hold more than before, and count as free."""
IDLE_BYTES: Final = 512 * 2**20
IDLE_PART: Final = 0.01
"""The part of its memory, or `IDLE_BYTES`, that a GPU may hold and count as free when first seen."""
log = logging.getLogger("raysweep")


class GpuMemory:
    """That of the GPUs of one worker. The first answer that the driver owes ends all waits.

    `is_whole`: no other trial is meant to use them. `wait_s`: how long a wait may be.
    """

    def __init__(self, driver: Driver, devices: Sequence[str], *, is_whole: bool, wait_s: float) -> None:
        self._driver: Driver | None = driver
        self._devices = devices
        self._is_whole = is_whole
        self._wait_s = wait_s
        self._before: Mapping[str, Memory] = {}
        self._pid = 0
        self._note_text = ""

    def await_idle(self) -> None:
        """Wait for what ended before this worker began."""
        if self._is_whole:
            self._await_fall(lambda now: all(map(_is_idle, now.values())))

    def await_last(self) -> None:
        """Wait for the last process of this worker, then note what the GPUs hold without one."""
        if self._pid and self._is_whole:
            self._await_fall(self._is_as_before)
        elif self._pid:
            self._await(self._is_gone)
        if self._is_whole and self._driver is not None:
            self._await(self._note)

    def tell(self, job: Job, link: Link) -> None:
        """Note with the attempt that is about to begin, once a sweep, that another program uses its GPUs."""
        if self._note_text:
            link.send(TrialNoted(*job.who, text=self._note_text, is_shared=True))
            self._note_text = ""

    def ended(self, pid: int) -> None:
        """A process that ran on them has ended."""
        self._pid = pid

    def _await_fall(self, is_free: Callable[[Mapping[str, Memory]], bool]) -> None:
        """Wait while what the GPUs hold falls, until it `is_free`."""
        least, fell_at = math.inf, time.monotonic()

        def is_over(driver: Driver) -> bool:
            nonlocal least, fell_at
            now = self._read(driver)
            if is_free(now):
                return True
            held, at = sum(each.used_bytes for each in now.values()), time.monotonic()
            if held <= least - FALL_BYTES:
                least, fell_at = held, at
            if at - fell_at < SETTLED_S:
                return False
            self._note_held(held - sum(each.used_bytes for each in self._before.values()))
            return True

        self._await(is_over)

    def _note_held(self, held: int) -> None:
        names = ", ".join(self._devices)
        self._note_text = (
            f"another program holds {held / 2**30:.1f} GiB of its GPU, and trials begin beside it:"
            " end that program, or expect gpu_oom where a trial needs the whole GPU"
        )
        log.warning("GPU %s: another program holds %.1f GiB", names, held / 2**30)

    def _await(self, is_free: Callable[[Driver], bool]) -> None:
        began = time.monotonic()
        while self._driver is not None:
            try:
                if is_free(self._driver):
                    return
            except DriverError as error:
                log.warning("whether the memory of the trial's GPUs is free is not known: %s", error)
                self._driver = None
                return
            if time.monotonic() - began >= self._wait_s:
                names = ", ".join(self._devices)
                log.warning("GPU %s: memory of the last trial is in use after %g s", names, self._wait_s)
                return
            time.sleep(LOOK_S)

    def _note(self, driver: Driver) -> bool:
        self._before = self._read(driver)
        return True

    def _is_as_before(self, now: Mapping[str, Memory]) -> bool:
        return all(
            now[device].used_bytes <= before.used_bytes + SLACK_BYTES
            for device, before in self._before.items()
        )

    def _is_gone(self, driver: Driver) -> bool:
        return all(self._pid not in (driver.processes(device) or ()) for device in self._devices)

    def _read(self, driver: Driver) -> dict[str, Memory]:
        return {device: driver.read(device) for device in self._devices}


def watch_gpus(gpus: float) -> GpuMemory | None:
    """The wait of a worker with so many GPUs; None where it has none, or there is no driver to ask."""
    devices = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    wait_s = _wait_s()
    if not gpus or not devices or wait_s <= 0:
        return None
    driver = find_driver()
    if driver is None:
        return None
    devices = _as_driver_names(devices, driver)
    return GpuMemory(driver, devices, is_whole=gpus >= 1, wait_s=wait_s)


def _as_driver_names(devices: list[str], driver: Driver) -> list[str]:
    """The devices by UUID where their numbers may be others for CUDA than for the driver."""
    if not all(each.isdecimal() for each in devices) or os.environ.get(ORDER) == "PCI_BUS_ID":
        return devices
    try:
        return (cuda_uuids() or devices) if len(driver.models()) > 1 else devices
    except DriverError as error:
        log.warning("the GPUs are of several models, and %s", error)
        return devices


def _wait_s() -> float:
    said = os.environ.get(VARIABLE, "")
    try:
        return float(said) if said else DEFAULT_WAIT_S
    except ValueError:
        log.warning("%s is %r, not a number of seconds: taken for %g", VARIABLE, said, DEFAULT_WAIT_S)
        return DEFAULT_WAIT_S


def _is_idle(memory: Memory) -> bool:
    return memory.used_bytes <= max(IDLE_BYTES, IDLE_PART * memory.total_bytes)
