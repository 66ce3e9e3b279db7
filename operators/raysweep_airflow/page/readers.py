"""The readers of the sweeps whose pages are open: a few at a time, and none for longer than its page."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from raysweep.runs.reading.glances import read_training
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.reading.status import RunStatus
from raysweep_airflow.page.place import Place

MAX_READERS: Final = 8
IDLE_S: Final = 600.0


class Readers:
    """Keeps the newest readers, so that a page that asks every few seconds costs little; any thread may."""

    def __init__(
        self,
        *,
        max_readers: int = MAX_READERS,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max = max_readers
        self._idle_s = idle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[float, SweepReader]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, place: Place) -> RunStatus | None:
        """How it stands; None where nothing of it is stored yet.

        Raises: StorageError for what cannot be read, and for a storage path that names no store.
        """
        if place.kind == "train":
            return read_training(place.storage_path, place.run_id)
        return self.of(place).read()

    def of(self, place: Place) -> SweepReader:
        """The reader of this sweep. Raises: StorageError for a storage path that names no store."""
        name, now = (place.storage_path, place.run_id), self._clock()
        with self._lock:
            kept = self._kept.pop(name, None)
            reader = kept[1] if kept is not None else SweepReader(place.storage_path, place.run_id)
            self._kept[name] = (now, reader)
            while len(self._kept) > self._max or self._oldest_at() < now - self._idle_s:
                self._kept.popitem(last=False)
            return reader

    def _oldest_at(self) -> float:
        return next(iter(self._kept.values()))[0]
