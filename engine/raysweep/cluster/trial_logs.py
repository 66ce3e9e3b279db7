"""The controller's side of trial logs: before the end it waits until each node's log store has finished."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from raysweep.cluster.server import LinkServer
from raysweep.errors import SpecError
from raysweep.messages import Exit
from raysweep.storage.logs import DEFAULT_LIMIT_BYTES
from raysweep.worker.inline import INLINE_PREFIX
from raysweep.worker.output.log_store_start import KEEPER_PREFIX

VARIABLE: Final = "RAYSWEEP_LOG_BYTES"
"""The bytes kept of an attempt's output; 0: none, and it goes where Ray has its workers write."""
# A worker starts the first keeper when it starts itself.
START_S: Final = 5.0
# A storage that does not answer delays the end no longer; the keepers continue without the controller.
FINISH_S: Final = 10.0
HURRIED_S: Final = 0.3
log = logging.getLogger("raysweep")


def log_limit() -> int:
    """The number of bytes of each attempt's output that are kept.

    Raises:
        SpecError: The variable holds no such number.
    """
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return DEFAULT_LIMIT_BYTES
    if not text.isdigit():
        raise SpecError(VARIABLE, f"{text!r} is not a number of bytes", "give a number such as 1048576, or 0")
    return int(text)


class LogKeepers:
    """The keepers that are connected. On the event loop's thread."""

    def __init__(self, server: LinkServer) -> None:
        self._server = server
        self._connected: set[str] = set()
        self._has_workers = self._had_one = self._is_finishing = False
        self._changed = asyncio.Event()

    def connected(self, name: str) -> None:
        """A worker or a keeper is there."""
        if name.startswith(INLINE_PREFIX):
            return  # what it prints goes where this process prints
        self._has_workers = True
        if not name.startswith(KEEPER_PREFIX):
            return
        self._connected.add(name)
        self._had_one = True
        self._changed.set()
        if self._is_finishing:
            self._server.send(name, [Exit()])

    def gone(self, name: str) -> None:
        """A worker or a keeper is gone."""
        self._connected.discard(name)
        self._changed.set()

    async def finish(self, *, is_hurried: bool = False) -> None:
        """Wait until all logs are stored, but not for long: the keepers continue without this process."""
        if not self._has_workers or log_limit() == 0:
            return
        self._is_finishing = True
        for name in self._connected:
            self._server.send(name, [Exit()])
        with suppress(TimeoutError):
            await asyncio.wait_for(
                self._wait_for(lambda: self._had_one), HURRIED_S if is_hurried else START_S
            )
        try:
            await asyncio.wait_for(
                self._wait_for(lambda: not self._connected), HURRIED_S if is_hurried else FINISH_S
            )
        except TimeoutError:
            log.warning("the logs of some trials are not stored yet; their nodes continue for a minute")

    async def _wait_for(self, check: Callable[[], bool]) -> None:
        while not check():
            self._changed.clear()
            await self._changed.wait()
