"""A trial waits until the memory of its GPUs is free: that of a process which has just ended may not be yet.

A trial that has whole GPUs waits until they hold no more than before the last one. One that has a part of a
GPU waits until the last one's process is gone from it, as what others use there moves meanwhile.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from raysweep.worker.host.nvidia import Driver, DriverError, Memory, find_driver

VARIABLE: Final = "RAYSWEEP_GPU_WAIT_S"
"""How long a trial waits at most, in seconds; 0: not at all."""
DEFAULT_WAIT_S: Final = 20.0
LOOK_S: Final = 0.05
SLACK_BYTES: Final = 64 * 2**20
"""What a GPU may hold more than before, and count as free."""
IDLE_BYTES: Final = 512 * 2**20
IDLE_PART: Final = 0.01
"""What a GPU may hold that counts as free where nothing is known of before: so much, or this part of it."""
log = logging.getLogger("raysweep")


class GpuMemory:
    """That of the GPUs of one worker. The first answer that the driver owes ends all waits.

    `is_whole`: nobody else is meant to use them. `wait_s`: how long a wait may be.
    """

    def __init__(self, driver: Driver, devices: Sequence[str], *, is_whole: bool, wait_s: float) -> None:
        self._driver: Driver | None = driver
        self._devices = devices
        self._is_whole = is_whole
        self._wait_s = wait_s
        self._before: Mapping[str, Memory] = {}
        self._pid = 0

    def await_idle(self) -> None:
        """Wait for what ended before this worker began."""
        if self._is_whole:
            self._await(lambda driver: all(map(_is_idle, self._read(driver).values())))

    def await_last(self) -> None:
        """Wait for the last process of this worker, then note what the GPUs hold without one."""
        if self._pid:
            self._await(self._is_whole_again if self._is_whole else self._is_gone)
        if self._is_whole and self._driver is not None:
            self._await(self._note)

    def ended(self, pid: int) -> None:
        """A process that ran on them has ended."""
        self._pid = pid

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

    def _is_whole_again(self, driver: Driver) -> bool:
        now = self._read(driver)
        return all(
            now[device].used_bytes <= before.used_bytes + SLACK_BYTES
            for device, before in self._before.items()
        )

    def _is_gone(self, driver: Driver) -> bool:
        return all(self._pid not in (driver.processes(device) or ()) for device in self._devices)

    def _read(self, driver: Driver) -> dict[str, Memory]:
        return {device: driver.read(device) for device in self._devices}


def watch_gpus(gpus: float) -> GpuMemory | None:
    """What a worker with so many GPUs waits for; None where it has none, or there is nobody to ask."""
    devices = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    wait_s = _wait_s()
    if not gpus or not devices or wait_s <= 0:
        return None
    driver = find_driver()
    if driver is None:
        return None
    return GpuMemory(driver, devices, is_whole=gpus >= 1, wait_s=wait_s)


def _wait_s() -> float:
    said = os.environ.get(VARIABLE, "")
    try:
        return float(said) if said else DEFAULT_WAIT_S
    except ValueError:
        log.warning("%s is %r, not a number of seconds: taken for %g", VARIABLE, said, DEFAULT_WAIT_S)
        return DEFAULT_WAIT_S


def _is_idle(memory: Memory) -> bool:
    return memory.used_bytes <= max(IDLE_BYTES, IDLE_PART * memory.total_bytes)
